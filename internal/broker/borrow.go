package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// zoneBorrowed is a stream that is there only while a root is borrowed. It names the borrower, so that a root can be told from one in
// which somebody's runs are.
const zoneBorrowed Zone = "BORROWED"

// kindBorrowed is the first token, after the root, of what the borrower may publish there.
const kindBorrowed = "borrowed"

// Borrowing is a root that one program has for itself, for a while.
type Borrowing struct {
	// By says who has it, and Since since when.
	By    string
	Since time.Time
}

// Borrow takes the connection's root for this program, until GiveBack. A root that has any stream is refused: CodeConfig. It cannot be
// borrowed twice.
func (c *Conn) Borrow(ctx context.Context, by string) error {
	if other, err := c.Borrowed(ctx); err != nil || other != nil {
		return errors.Join(err, taken(c.subjects.Root(), other))
	}
	there, err := c.ownStreams(ctx)
	if err != nil {
		return err
	}
	if len(there) > 0 {
		return sdk.Errorf(sdk.CodeConfig, "the root %q is in use: the server has its stream %s; choose another", c.subjects.Root(), there[0])
	}
	_, err = c.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: StreamName(c.subjects, zoneBorrowed), Description: by, Subjects: []string{c.subjects.Root() + "." + kindBorrowed + ".>"},
		Retention: jetstream.LimitsPolicy, Storage: jetstream.FileStorage,
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return taken(c.subjects.Root(), &Borrowing{By: "another program", Since: time.Now()})
	}
	if err != nil {
		return fmt.Errorf("take the root %q: %w", c.subjects.Root(), err)
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

// Borrowed says who has the root; nil is nobody.
func (c *Conn) Borrowed(ctx context.Context) (*Borrowing, error) {
	s, err := c.look(ctx, StreamName(c.subjects, zoneBorrowed))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look who has the root %q: %w", c.subjects.Root(), err)
	}
	return &Borrowing{By: s.CachedInfo().Config.Description, Since: s.CachedInfo().Created}, nil
}

// GiveBack removes all streams of a borrowed root, with what is in them, and last what says that it is borrowed: it may be repeated. A
// root that nobody borrowed is left as it is: CodeConfig.
func (c *Conn) GiveBack(ctx context.Context) error {
	by, err := c.Borrowed(ctx)
	if err != nil {
		return err
	}
	if by == nil {
		return sdk.Errorf(sdk.CodeConfig, "nobody has taken the root %q, so that nothing of it is removed", c.subjects.Root())
	}
	streams, err := c.ownStreams(ctx)
	if err != nil {
		return err
	}
	for _, name := range append(streams, StreamName(c.subjects, zoneBorrowed)) {
		if err := c.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("remove stream %s: %w", name, err)
		}
	}
	return nil
}

// ownStreams are the streams of the root that are there, the buckets' included, but for what says that it is borrowed.
func (c *Conn) ownStreams(ctx context.Context) ([]string, error) {
	names := Streams(c.subjects, Plan{Index: true, Cold: true})
	var there []string
	all := c.js.StreamNames(ctx)
	for name := range all.Name() {
		if slices.Contains(names, wholeName(name)) {
			there = append(there, name)
		}
	}
	if err := all.Err(); err != nil {
		return nil, fmt.Errorf("list the streams of the root %q: %w", c.subjects.Root(), err)
	}
	return there, nil
}

// PublishBorrowed stores a message that means nothing, on a borrowed root.
func (c *Conn) PublishBorrowed(ctx context.Context, body []byte) error {
	_, err := c.js.Publish(ctx, c.subjects.Root()+"."+kindBorrowed+".probe", body)
	if err != nil {
		return fmt.Errorf("write to stream %s: %w", StreamName(c.subjects, zoneBorrowed), err)
	}
	return nil
}
