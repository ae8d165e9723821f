package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// ZoneState is what a stream holds.
type ZoneState struct {
	// Last is the sequence of its last message, Subjects the number of subjects with messages, Messages and Bytes what it keeps.
	Last, Subjects, Messages, Bytes uint64
	// MaxAge is how long it keeps a message; 0 is for ever.
	MaxAge time.Duration
	// PersistMode is whether it confirms what it has written, or before.
	PersistMode streams.PersistMode
}

// ZoneState asks the stream's leader.
func (c *Conn) ZoneState(ctx context.Context, z streams.Zone) (ZoneState, error) {
	s, err := c.stream(ctx, z)
	if err != nil {
		return ZoneState{}, err
	}
	info := s.CachedInfo()
	state := info.State
	return ZoneState{state.LastSeq, state.NumSubjects, state.Msgs, state.Bytes, info.Config.MaxAge, streams.PersistModeOf(info.Config)}, nil
}

// NotProvisioned reports whether an error, also one of a store on JetStream, is that the server does not have a stream.
func NotProvisioned(err error) bool { return errors.Is(err, jetstream.ErrStreamNotFound) }

// CheckProvisioned reports that the server does not have agentd's streams: CodeConfig. It is nil where they are there, and where this
// user may not see whether they are.
func (c *Conn) CheckProvisioned(ctx context.Context) error {
	_, err := c.js.Stream(ctx, streams.Name(c.subjects, streams.Start))
	if !NotProvisioned(err) {
		return nil
	}
	return sdk.Errorf(sdk.CodeConfig, "the server is not provisioned: it has no stream %s; %s",
		streams.Name(c.subjects, streams.Start), streams.Remedy).WithCause(err)
}

func (c *Conn) stream(ctx context.Context, z streams.Zone) (jetstream.Stream, error) {
	s, err := c.js.Stream(ctx, streams.Name(c.subjects, z))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, sdk.Errorf(sdk.CodeConfig, "stream %s does not exist; %s", streams.Name(c.subjects, z), streams.Remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("look at stream %s: %w", streams.Name(c.subjects, z), err)
	}
	return s, nil
}

// HasStream reports whether the stream of a zone exists that no layout divides.
func (c *Conn) HasStream(ctx context.Context, z streams.Zone) (bool, error) {
	name := streams.Name(c.subjects, z)
	_, err := c.js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for stream %s: %w", name, err)
	}
	return true, nil
}

// HasConsumer reports whether a consumer exists.
func (c *Conn) HasConsumer(ctx context.Context, ref streams.ConsumerRef) (bool, error) {
	_, err := c.js.Consumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, nil
	}
	return err == nil, err
}

// SubjectsUnder lists, in order, the subjects under filter that have messages. They are held in memory.
func (c *Conn) SubjectsUnder(ctx context.Context, z streams.Zone, filter string) ([]string, error) {
	zones, err := c.zones(ctx, z, filter)
	if err != nil {
		return nil, err
	}
	var subjects []string
	for _, part := range zones {
		s, err := c.stream(ctx, part)
		if err != nil {
			return nil, err
		}
		info, err := s.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return nil, fmt.Errorf("list subjects under %s: %w", filter, err)
		}
		subjects = slices.AppendSeq(subjects, maps.Keys(info.State.Subjects))
	}
	slices.Sort(subjects)
	return subjects, nil
}
