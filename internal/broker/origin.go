package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/internal/retry"
)

// ErrOtherStream says that a stream is not the one that was read until now: it was made anew, or set back to an older copy. What was read
// of it may be gone, and what is there now may not have been read: a reader begins anew.
var ErrOtherStream = errors.New("the stream was made anew, or set back to an older copy")

const (
	// lookAgain is how often a reader to whom nothing comes looks whether its stream is still the same. It also does so whenever
	// the connection was made anew.
	lookAgain = 5 * time.Second
	// lookTwice lies between two looks that must both find a stream set back: a new leader may not have applied yet what another has
	// told of.
	lookTwice = time.Second
)

// Continues reports whether b can be the same stream as before, later. The zero value is nothing known.
func (b Bounds) Continues(before Bounds) bool {
	return before.Created == 0 || b.Created == before.Created && b.Last >= before.Last
}

// readOn is read until the stream is another, which is ErrOtherStream. Where this user may not look at the stream, that goes unnoticed.
func (c *Conn) readOn(
	ctx context.Context, stream string, config jetstream.OrderedConsumerConfig, begin func(left uint64) bool,
	handle func(jetstream.Msg, *jetstream.MsgMetadata) bool,
) error {
	watched, end := context.WithCancelCause(ctx)
	o := &origin{conn: c, stream: stream}
	if err := o.look(watched); err != nil {
		c.log.Debug("a stream is read without looking whether it stays the same", "stream", stream, "error", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := o.watch(watched); err != nil {
			end(err)
		}
	}()
	defer func() {
		end(nil)
		<-done
	}()
	err := c.read(watched, stream, config, begin, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		o.saw(meta.Sequence.Stream, meta.Timestamp)
		return handle(m, meta)
	})
	if cause := context.Cause(watched); err != nil && cause != nil && ctx.Err() == nil {
		return fmt.Errorf("read %s: %w", stream, cause)
	}
	return err
}

// origin is what is known of a stream that is read.
type origin struct {
	conn   *Conn
	stream string

	mu    sync.Mutex
	known Bounds
	// at is when the last message of known was stored, and server the process of the server when known was.
	at     time.Time
	server string
}

// saw notes that a message with a sequence was there, and when it was stored. What comes from another process of the server does not count
// before it has been looked at.
func (o *origin) saw(sequence uint64, at time.Time) {
	here := o.conn.Server()
	o.mu.Lock()
	defer o.mu.Unlock()
	if sequence > o.known.Last && here == o.server {
		o.known.Last, o.at = sequence, at
	}
}

// look compares the stream with what is known, and notes how it is.
func (o *origin) look(ctx context.Context) error {
	o.mu.Lock()
	before, at, server := o.known, o.at, o.server
	o.mu.Unlock()
	s, err := o.conn.js.Stream(ctx, o.stream)
	if err != nil {
		return err
	}
	now, here := bounds(s), o.conn.Server()
	if !now.Continues(before) || server != here && o.replaced(ctx, before.Last, at) {
		return ErrOtherStream
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.server = here
	if now.Last >= o.known.Last {
		o.at = s.CachedInfo().State.LastTime
	}
	now.Last = max(now.Last, o.known.Last) // others came meanwhile
	o.known = now
	return nil
}

// replaced reports whether another message is under a sequence than the one that was stored there at a time: a server that was started again
// may have forgotten it, and have got further since. Of one that is gone nothing is known.
func (o *origin) replaced(ctx context.Context, sequence uint64, at time.Time) bool {
	if sequence == 0 || at.IsZero() {
		return false
	}
	var m Stored
	err := o.conn.Permitted(ctx, func(ctx context.Context) (err error) {
		m, err = o.conn.stored(ctx, o.stream, leader.Query{Sequence: sequence})
		return err
	})
	return err == nil && m.At != at.UnixMilli()
}

// WatchStreams calls other with a zone whose stream was made anew, or set back to an older copy, each time, until ctx ends. It looks
// every 5 s, and whenever the connection was made anew. One call of other is made at a time.
func (c *Conn) WatchStreams(ctx context.Context, zones []streams.Zone, other func(streams.Zone)) {
	var calling sync.Mutex
	var watching sync.WaitGroup
	for _, z := range zones {
		watching.Go(func() {
			for ctx.Err() == nil {
				o := &origin{conn: c, stream: streams.Name(c.subjects, z)}
				err := o.look(ctx)
				if err == nil {
					err = o.watch(ctx)
				}
				if errors.Is(err, ErrOtherStream) {
					calling.Lock()
					other(z)
					calling.Unlock()
					continue
				}
				_ = retry.Sleep(ctx, lookAgain) // it is away, and may be there again
			}
		})
	}
	watching.Wait()
}

// watch looks until ctx ends or the stream is another. One that is away, or may not be looked at, may be there again.
func (o *origin) watch(ctx context.Context) error {
	reconnected, stop, err := o.conn.hear()
	if err != nil {
		return err
	}
	defer stop()
	for {
		reconnected.wait(ctx, lookAgain)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(o.look(ctx), ErrOtherStream) {
			continue
		}
		if retry.Sleep(ctx, lookTwice) == nil && errors.Is(o.look(ctx), ErrOtherStream) {
			return ErrOtherStream
		}
	}
}
