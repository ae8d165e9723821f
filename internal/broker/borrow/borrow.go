// Package borrow lets one program have a root for itself, for a while, and give it back with all that it has made there.
package borrow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// zone is a stream that is there only while a root is borrowed. It names the borrower, so that a root can be told from one in
// which somebody's runs are.
const zone streams.Zone = "BORROWED"

// kind is the first token, after the root, of what the borrower may publish there.
const kind = "borrowed"

// Borrowing is a root that one program has for itself, for a while.
type Borrowing struct {
	// By says who has it, and Since since when.
	By    string
	Since time.Time
}

// Take takes the connection's root for this program, until GiveBack. A root that has any stream is refused: CodeConfig. It cannot be
// borrowed twice.
func Take(ctx context.Context, c *broker.Conn, by string) error {
	if other, err := By(ctx, c); err != nil || other != nil {
		return errors.Join(err, taken(c.Subjects().Root(), other))
	}
	there, err := ownStreams(ctx, c)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return sdk.Errorf(sdk.CodeConfig, "the root %q is in use: the server has its stream %s; choose another", c.Subjects().Root(), there[0])
	}
	_, err = c.JetStream().CreateStream(ctx, jetstream.StreamConfig{
		Name: streams.Name(c.Subjects(), zone), Description: by, Subjects: []string{c.Subjects().Root() + "." + kind + ".>"},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return taken(c.Subjects().Root(), &Borrowing{By: "another program", Since: time.Now()})
	}
	if err != nil {
		return fmt.Errorf("take the root %q: %w", c.Subjects().Root(), err)
	}
	return nil
}

func taken(root string, by *Borrowing) error {
	if by == nil {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "the root %q is taken since %s by %s; choose another, or if that program is gone, remove what it left: agentd bench --remove --root %s",
		root, by.Since.Local().Format(time.DateTime), by.By, root)
}

// By says who has the root; nil is nobody.
func By(ctx context.Context, c *broker.Conn) (*Borrowing, error) {
	s, err := c.JetStream().Stream(ctx, streams.Name(c.Subjects(), zone))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look who has the root %q: %w", c.Subjects().Root(), err)
	}
	return &Borrowing{By: s.CachedInfo().Config.Description, Since: s.CachedInfo().Created}, nil
}

// GiveBack removes all streams of a borrowed root, with what is in them, and last what says that it is borrowed: it may be repeated. A
// root that nobody borrowed is left as it is: CodeConfig.
func GiveBack(ctx context.Context, c *broker.Conn) error {
	by, err := By(ctx, c)
	if err != nil {
		return err
	}
	if by == nil {
		return sdk.Errorf(sdk.CodeConfig, "nobody has taken the root %q, so that nothing of it is removed", c.Subjects().Root())
	}
	there, err := ownStreams(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range append(there, streams.Name(c.Subjects(), zone)) {
		if err := c.JetStream().DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", name, err)
		}
	}
	return nil
}

// ownStreams are the streams of the root that are there, the buckets' included, but for what says that it is borrowed.
func ownStreams(ctx context.Context, c *broker.Conn) ([]string, error) {
	planned := provision.Plan{Index: true, Cold: true}.Streams(c.Subjects())
	var there []string
	all := c.JetStream().StreamNames(ctx)
	for name := range all.Name() {
		if slices.ContainsFunc(planned, func(s jetstream.StreamConfig) bool { return s.Name == streams.Whole(name) }) {
			there = append(there, name)
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list the streams of the root %q: %w", c.Subjects().Root(), err)
	}
	return there, nil
}

// Publish stores a message that means nothing, on a borrowed root.
func Publish(ctx context.Context, c *broker.Conn, body []byte) error {
	_, err := c.JetStream().Publish(ctx, c.Subjects().Root()+"."+kind+".probe", body)
	if err != nil {
		return fmt.Errorf("write to stream %s: %w", streams.Name(c.Subjects(), zone), err)
	}
	return nil
}
