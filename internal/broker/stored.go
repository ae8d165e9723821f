package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
)

// ErrNotStored says that a stream has no such message, or no longer.
var ErrNotStored = errors.New("no such message is stored")

// Stored is a message of a stream, looked at and not consumed.
type Stored struct {
	Stream   string
	Sequence uint64
	Subject  string
	Headers  map[string][]string
	Data     []byte
	// At is when the broker stored it, in Unix milliseconds.
	At int64
}

// Header returns the value of a header by any spelling of its name, or "".
func (m *Stored) Header(name string) string { return header(m.Headers, name) }

// At returns the message of a zone at a sequence, or ErrNotStored.
func (c *Conn) At(ctx context.Context, z streams.Zone, sequence uint64) (Stored, error) {
	return c.stored(ctx, streams.Name(c.subjects, z), leader.Query{Sequence: sequence})
}

// Last returns the last message on a subject, or ErrNotStored.
func (c *Conn) Last(ctx context.Context, subject string) (Stored, error) {
	stream, err := c.streamFor(ctx, subject)
	if err != nil {
		return Stored{}, err
	}
	return c.last(ctx, stream, subject)
}

// Scan calls each with the messages of a zone whose subjects match filter, in order, from a sequence to the last one that
// is there at the beginning, until each returns false. Of a zone that is divided it does so for one stream after the other. One message is
// in memory at a time.
func (c *Conn) Scan(ctx context.Context, z streams.Zone, filter string, from uint64, each func(Stored) (bool, error)) error {
	zones, err := c.zones(ctx, z, filter)
	for i, more := 0, true; i < len(zones) && more && err == nil; i++ {
		err = c.scan(ctx, zones[i], filter, from, func(m Stored) (bool, error) {
			var err error
			more, err = each(m)
			return more, err
		})
	}
	return err
}

func (c *Conn) scan(ctx context.Context, z streams.Zone, filter string, from uint64, each func(Stored) (bool, error)) error {
	bounds, err := c.Bounds(ctx, z)
	if err != nil {
		return err
	}
	for next := max(from, 1); next <= bounds.Last; {
		m, err := c.stored(ctx, streams.Name(c.subjects, z), leader.Query{Sequence: next, NextOn: filter})
		if errors.Is(err, ErrNotStored) || err == nil && m.Sequence > bounds.Last {
			return nil
		}
		if err != nil {
			return err
		}
		if more, err := each(m); err != nil || !more {
			return err
		}
		next = m.Sequence + 1
	}
	return nil
}

// Bounds are the first and the last sequence of a stream, of an empty one Last is First - 1, and when it was made, in Unix nanoseconds.
type Bounds struct {
	First, Last uint64
	Created     int64
}

// Bounds returns those of a zone's stream.
func (c *Conn) Bounds(ctx context.Context, z streams.Zone) (Bounds, error) {
	name := streams.Name(c.subjects, z)
	s, err := c.js.Stream(ctx, name)
	if err != nil {
		return Bounds{}, fmt.Errorf("look at stream %s: %w", name, err)
	}
	return bounds(s), nil
}

func bounds(s jetstream.Stream) Bounds {
	info := s.CachedInfo()
	return Bounds{info.State.FirstSeq, info.State.LastSeq, info.Created.UnixNano()}
}

// SequenceAt returns the sequence of the first message of a zone that was stored at that time or later: one more than the
// last, if there is none.
func (c *Conn) SequenceAt(ctx context.Context, z streams.Zone, at time.Time) (uint64, error) {
	bounds, err := c.Bounds(ctx, z)
	if err != nil {
		return 0, err
	}
	low, high := max(bounds.First, 1), bounds.Last+1
	for low < high {
		middle := low + (high-low)/2
		m, err := c.stored(ctx, streams.Name(c.subjects, z), leader.Query{Sequence: middle, NextOn: ">"})
		switch {
		case errors.Is(err, ErrNotStored):
			high = middle
		case err != nil:
			return 0, err
		case m.At >= at.UnixMilli():
			high = middle
		default:
			low = m.Sequence + 1
		}
	}
	return low, nil
}

// MaxAge is how long a zone's messages are kept, by the stream of it that does so for the shortest time; 0 is for ever.
func (c *Conn) MaxAge(ctx context.Context, z streams.Zone) (time.Duration, error) {
	zones, err := c.zones(ctx, z)
	if err != nil {
		return 0, err
	}
	var shortest time.Duration
	for _, part := range zones {
		name := streams.Name(c.subjects, part)
		s, err := c.js.Stream(ctx, name)
		if err != nil {
			return 0, fmt.Errorf("look at stream %s: %w", name, err)
		}
		if age := s.CachedInfo().Config.MaxAge; age != 0 && (shortest == 0 || age < shortest) {
			shortest = age
		}
	}
	return shortest, nil
}

// AckFloor is the sequence up to which a consumer's messages are all settled. One that does not exist is ErrNotStored.
func (c *Conn) AckFloor(ctx context.Context, ref streams.ConsumerRef) (uint64, error) {
	consumer, err := c.js.Consumer(ctx, streams.Name(c.subjects, ref.Zone), ref.Name)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return 0, fmt.Errorf("consumer %s: %w", ref.Name, ErrNotStored)
	}
	if err != nil {
		return 0, fmt.Errorf("look at consumer %s/%s: %w", streams.Name(c.subjects, ref.Zone), ref.Name, err)
	}
	return consumer.CachedInfo().AckFloor.Stream, nil
}

func (c *Conn) last(ctx context.Context, stream, subject string) (Stored, error) {
	return c.stored(ctx, stream, leader.Query{LastOn: subject})
}

func (c *Conn) stored(ctx context.Context, stream string, q leader.Query) (Stored, error) {
	m, err := leader.Read(ctx, c.js, stream, q)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		err = ErrNotStored
	}
	if err != nil {
		return Stored{}, fmt.Errorf("read %s %+v: %w", stream, q, err)
	}
	return Stored{stream, m.Sequence, m.Subject, m.Header, m.Data, m.Time.UnixMilli()}, nil
}
