package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/atonce"
	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// ownZones are those of runs to which nobody but workers publishes: without room there, no run goes on. sharedZones are those that others
// publish to: any of them may fill one, which is not for them to make workers unready with.
var (
	ownZones    = []streams.Zone{streams.Out, streams.Done, streams.Timer, streams.Run, streams.Cold}
	sharedZones = []streams.Zone{streams.Start, streams.In}
)

// Writable returns nil when the server takes writes and the streams that workers write have room, or why not. What it writes is gone after a second.
func (c *Conn) Writable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m := &nats.Msg{Subject: c.leaseSubject("writable")}
	stream, err := c.streamFor(ctx, m.Subject)
	if err == nil {
		_, err = c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(stream), jetstream.WithMsgTTL(time.Second))
	}
	if err != nil {
		return leader.Unwritten(stream, err)
	}
	return c.checkRoom(ctx)
}

// checkRoom returns the first of the streams that workers write which has no room left: CodeUnavailable.
func (c *Conn) checkRoom(ctx context.Context) error {
	names, err := c.streamsOfZones(ctx, ownZones)
	if err != nil {
		return err
	}
	_, err = atonce.Take(len(names), func(i int) (struct{}, error) {
		full, err := c.noRoom(ctx, names[i])
		if err == nil && full != "" {
			err = sdk.Errorf(sdk.CodeUnavailable, "%s", full)
		}
		return struct{}{}, err
	})
	return err
}

// Room is whether a stream has room.
type Room struct {
	Stream string
	// Full says which limit of its own leaves it none, and what to do; "" is that it has room.
	Full string
}

// Rooms are those of the streams that others than workers publish to: without room there nobody starts, answers or steers a run.
func (c *Conn) Rooms(ctx context.Context) ([]Room, error) {
	names, err := c.streamsOfZones(ctx, sharedZones)
	if err != nil {
		return nil, err
	}
	return atonce.Take(len(names), func(i int) (Room, error) {
		full, err := c.noRoom(ctx, names[i])
		return Room{names[i], full}, err
	})
}

func (c *Conn) streamsOfZones(ctx context.Context, zones []streams.Zone) ([]string, error) {
	layout, err := c.Layout(ctx)
	if err != nil {
		return nil, fmt.Errorf("look how streams are divided: %w", err)
	}
	var names []string
	for _, z := range zones {
		for _, part := range layout.Zones(z) {
			names = append(names, streams.Name(c.subjects, part))
		}
	}
	return names, nil
}

// noRoom is why a stream has no room, and what to do; "" where it has, where there is no such stream, and where this user may not look at it.
func (c *Conn) noRoom(ctx context.Context, name string) (string, error) {
	s, err := c.js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at stream %s: %w", name, err)
	}
	full := streams.Fullness(s.CachedInfo())
	if full != "" {
		full += "; give it room, or " + streams.Unbounded(name, 0)
	}
	return full, nil
}
