package survey

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
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

// Holdings are what the streams of a plan hold, and how far the readers of its consumers are. What does not exist is left out:
// provision.Verify finds that.
func Holdings(ctx context.Context, c *broker.Conn, p provision.Plan) (held []StreamState, read []broker.ConsumerState, err error) {
	p.Index, p.Cold = true, true // they may be there
	layout, err := c.Layout(ctx)
	if err != nil {
		return nil, nil, err
	}
	p.Partitions = layout.Partitions()
	for _, planned := range p.Streams(c.Subjects()) {
		s, err := c.JetStream().Stream(ctx, planned.Name)
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
		held = append(held, state)
	}
	for _, ref := range p.Consumers(c.Subjects()) {
		state, err := c.ConsumerState(ctx, ref)
		if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		read = append(read, state)
	}
	return held, read, nil
}
