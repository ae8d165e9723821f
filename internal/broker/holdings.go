package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// StreamState is what a stream holds.
type StreamState struct {
	Name string
	// Messages it has, in Bytes, on so many Subjects.
	Messages, Bytes, Subjects uint64
	// Replicas is how many servers have it, and Leader the one that answers for it; empty is a server alone.
	Replicas int
	Leader   string
}

// ConsumerState is how far the readers of a consumer are.
type ConsumerState struct {
	Stream, Name string
	Backlog
	// Redelivered is how many messages were delivered again that are not finished.
	Redelivered int64
	Paused      bool
}

// Holdings are what the streams of a plan hold, and how far the readers of its consumers are. What does not exist is left out: Verify finds
// that.
func (c *Conn) Holdings(ctx context.Context, p Plan) (streams []StreamState, consumers []ConsumerState, err error) {
	p.Index, p.Cold = true, true // they may be there
	if p, _, err = c.laidOut(ctx, p); err != nil {
		return nil, nil, err
	}
	for _, planned := range c.streams(p) {
		s, err := c.look(ctx, planned.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("look at stream %s: %w", planned.Name, err)
		}
		info := s.CachedInfo() // it was just asked for
		state := StreamState{
			Name: planned.Name, Messages: info.State.Msgs, Bytes: info.State.Bytes, Subjects: info.State.NumSubjects, Replicas: info.Config.Replicas,
		}
		if info.Cluster != nil {
			state.Leader = info.Cluster.Leader
		}
		streams = append(streams, state)
	}
	for _, planned := range c.consumers(p) {
		info, err := c.consumerInfo(ctx, planned.ConsumerRef)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		consumers = append(consumers, ConsumerState{
			Stream: info.Stream, Name: info.Name, Backlog: backlogOf(info), Redelivered: int64(info.NumRedelivered), Paused: info.Paused,
		})
	}
	return streams, consumers, nil
}
