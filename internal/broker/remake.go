package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Rebuildable are the zones whose streams Provision cannot make as a plan says once they are there: the server neither changes the persistence of
// a stream nor gives replicas to an asynchronous one. Package rebuild makes them anew.
var Rebuildable = []Zone{ZoneOut, ZoneDone, ZoneTimer}

// Remake is a stream that may be made anew, with what a plan decides of it and Provision cannot change.
type Remake struct {
	Name string
	// There is the stream's configuration, nil where there is none.
	There *jetstream.StreamConfig
	// persistence is as the plan has it; replicas are 0 where it leaves them as they are.
	persistence jetstream.PersistModeType
	replicas    int
}

// Made is how a stream is to be that was otherwise.
func (r Remake) Made(was jetstream.StreamConfig) jetstream.StreamConfig {
	next := was
	next.PersistMode, next.Replicas = r.persistence, cmp.Or(r.replicas, was.Replicas)
	if next.Replicas > 1 {
		next.PersistMode = jetstream.DefaultPersistMode // the server has no other with replicas
	}
	return next
}

// Stays reports whether the stream is there as it should be.
func (r Remake) Stays() bool {
	return r.There != nil && r.Made(*r.There).PersistMode == r.There.PersistMode
}

// Change says what making the stream anew changes, of one that was.
func (r Remake) Change(was jetstream.StreamConfig) Change {
	return Change{Kind: kindStream, Name: r.Name, Action: actionRebuilt, What: differences(was, r.Made(was))}
}

// Remakes looks at the streams of zones that are Rebuildable.
func (c *Conn) Remakes(ctx context.Context, p Plan, zones ...Zone) ([]Remake, error) {
	p, other, err := c.laidOut(ctx, p)
	if err == nil && other != nil {
		err = other
	}
	if err != nil {
		return nil, err
	}
	streams := c.streams(p)
	var all []Remake
	for _, zone := range zones {
		if !slices.Contains(Rebuildable, zone) {
			return nil, sdk.Errorf(sdk.CodeConfig, "stream %s is not one that is rebuilt: these are %v", StreamName(c.subjects, zone), Rebuildable)
		}
		for _, part := range p.Layout().Zones(zone) {
			name := StreamName(c.subjects, part)
			want := streams[slices.IndexFunc(streams, func(s jetstream.StreamConfig) bool { return s.Name == name })]
			r := Remake{Name: name, persistence: want.PersistMode, replicas: p.Replicas}
			have, err := c.js.Stream(ctx, name)
			if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil, fmt.Errorf("look at stream %s: %w", name, err)
			}
			if err == nil {
				got := have.CachedInfo().Config
				r.There = &got
			}
			all = append(all, r)
		}
	}
	return all, nil
}

// Working names a consumer that a worker reads, or has read within the last minute; "" is that no worker runs.
func (c *Conn) Working(ctx context.Context) (consumer string, err error) {
	stream, err := c.js.Stream(ctx, StreamName(c.subjects, ZoneStart))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look who reads init events: %w", err)
	}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		b := backlogOf(info)
		if b.Pulls > 0 || b.Unacked > 0 && info.TimeStamp.UnixMilli()-b.Delivered < readSince.Milliseconds() {
			consumer = info.Stream + "/" + info.Name
		}
	}
	if err := consumers.Err(); err != nil {
		return "", fmt.Errorf("look who reads init events: %w", err)
	}
	return consumer, nil
}

// DeleteStream deletes a stream, if it is there.
func (c *Conn) DeleteStream(ctx context.Context, name string) error {
	return leader.Patiently(ctx, c.js, "stream "+name, func(ctx context.Context) error {
		if err := c.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("delete stream %s: %w", name, err)
		}
		return nil
	})
}

// ForgetRefilled has workers that start refill the streams of agents, and of Unserved, as after a restart of the server.
func (c *Conn) ForgetRefilled(ctx context.Context, agents ...AgentPlan) error {
	for _, a := range agents {
		if err := c.NoteRefilled(ctx, wire.NameToken(a.Name), ""); err != nil {
			return err
		}
	}
	return c.NoteRefilled(ctx, Unserved, "")
}
