package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// ConsumeOptions say what to read and who handles it.
type ConsumeOptions struct {
	Consumers []ConsumerRef
	// Slots is how many deliveries are handled at once, over all consumers; 0 is 64.
	Slots int
	// Handle settles its delivery. Its context ends when the grace period is over.
	Handle func(context.Context, Delivery)
	// Grace is how long running handlers may go on after ctx ended; 0 is 30 s.
	Grace time.Duration
	// Drain is called when ctx ends, before the grace period.
	Drain func()
}

const (
	// fetchWait is how long one request for a message stays open.
	fetchWait = 10 * time.Second
	// patience is how long a message may wait for a slot. It is much shorter than AckWait.
	patience = time.Second
	// A consumer that cannot be read is looked for this often.
	shortestRetry, longestRetry = 250 * time.Millisecond, 5 * time.Second
)

// Consume reads the consumers until ctx ends, then lets running handlers finish within the grace period. A consumer or a
// server that is away is waited for.
//
// All consumers share the slots, first come, first served. A consumer is asked for its next message, one at a time, only
// while a slot is free. When other consumers take the last slot meanwhile, the message waits for a moment and is then
// given back, so that a busy worker keeps nothing from an idle one.
func (c *Conn) Consume(ctx context.Context, o ConsumeOptions) {
	if o.Slots == 0 {
		o.Slots = 64
	}
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	handling, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	l := &intake{Conn: c, ConsumeOptions: o, slots: semaphore.NewWeighted(int64(o.Slots)), handling: handling}
	var pullers sync.WaitGroup
	for _, ref := range o.Consumers {
		pullers.Go(func() { l.pull(ctx, ref) })
	}
	<-ctx.Done()
	if o.Drain != nil {
		o.Drain()
	}
	pullers.Wait()
	l.finish()
}

// intake is one Consume.
type intake struct {
	*Conn
	ConsumeOptions
	slots    *semaphore.Weighted
	handlers sync.WaitGroup
	// handling is the context of handlers.
	handling context.Context
}

// finish waits for the handlers, and abandons those that take longer than the grace period: their messages are delivered
// again.
func (l *intake) finish() {
	done := make(chan struct{})
	go func() {
		l.handlers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(l.Grace):
		l.log.Warn("handlers did not finish in time; their messages are left to others", "grace", l.Grace)
	}
}

// pull reads one consumer.
func (l *intake) pull(ctx context.Context, ref ConsumerRef) {
	name := StreamName(l.subjects, ref.Zone) + "/" + ref.Name
	delay := shortestRetry
	for ctx.Err() == nil {
		consumer, err := l.js.Consumer(ctx, StreamName(l.subjects, ref.Zone), ref.Name)
		if err == nil {
			delay = shortestRetry
			err = l.read(ctx, consumer)
		}
		if ctx.Err() != nil {
			return
		}
		l.log.Warn("consumer cannot be read; trying again", "consumer", name, "error", err)
		select {
		case <-time.After(delay):
		case <-ctx.Done():
		}
		delay = min(2*delay, longestRetry)
	}
}

// read hands out deliveries until something is wrong with the consumer. It asks for each message by itself: the client's
// iterator with a batch of one can skip its own next request when a message arrives while the last request is still
// being sent, and then stalls until a heartbeat is missed.
func (l *intake) read(ctx context.Context, consumer jetstream.Consumer) error {
	for {
		if err := l.slots.Acquire(ctx, 1); err != nil {
			return err
		}
		l.slots.Release(1) // not held while waiting for a message: another consumer may have one
		m, err := l.next(ctx, consumer)
		if err != nil {
			return err
		}
		if m == nil {
			continue
		}
		if !l.take(ctx) {
			if err := m.Nak(); err != nil {
				return fmt.Errorf("give back a delivery: %w", err)
			}
			continue
		}
		l.handlers.Go(func() {
			defer l.slots.Release(1)
			l.handle(m)
		})
	}
}

// next asks for one message; nil when none came for a while.
func (l *intake) next(ctx context.Context, consumer jetstream.Consumer) (jetstream.Msg, error) {
	asking, cancel := context.WithTimeout(ctx, fetchWait)
	defer cancel()
	m, err := consumer.Next(jetstream.FetchContext(asking))
	if err != nil && ctx.Err() == nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout)) {
		return nil, nil
	}
	return m, err
}

// take takes a slot for a message that is already here.
func (l *intake) take(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return l.slots.Acquire(ctx, 1) == nil
}

// handle keeps a handler's panic from taking the worker down: the message is tried again later.
func (l *intake) handle(m jetstream.Msg) {
	d, err := newDelivery(m)
	if err != nil {
		l.log.Error("message without metadata", "subject", m.Subject(), "error", err)
		return
	}
	defer func() {
		if p := recover(); p != nil {
			l.log.Error("handler panicked", "subject", d.Subject(), "panic", p, "stack", string(debug.Stack()))
			if err := d.Nak(AckWait); err != nil {
				l.log.Warn("delivery could not be settled", "subject", d.Subject(), "error", err)
			}
		}
	}()
	l.Handle(l.handling, d)
}

// delivery is a Delivery of JetStream.
type delivery struct {
	jetstream.Msg
	meta *jetstream.MsgMetadata
}

func newDelivery(m jetstream.Msg) (delivery, error) {
	meta, err := m.Metadata()
	return delivery{m, meta}, err
}

func (d delivery) Stream() string               { return d.meta.Stream }
func (d delivery) Consumer() string             { return d.meta.Consumer }
func (d delivery) Sequence() uint64             { return d.meta.Sequence.Stream }
func (d delivery) Header(name string) string    { return header(d.Msg.Headers(), name) }
func (d delivery) Headers() map[string][]string { return d.Msg.Headers() }
func (d delivery) Delivered() int               { return int(d.meta.NumDelivered) }
func (d delivery) Received() int64              { return d.meta.Timestamp.UnixMilli() }
func (d delivery) Nak(delay time.Duration) error {
	if delay == 0 {
		return d.Msg.Nak()
	}
	return d.Msg.NakWithDelay(delay)
}

var _ Delivery = delivery{}

// header finds a header by any spelling.
func header(headers map[string][]string, name string) string {
	for have, values := range headers {
		if strings.EqualFold(have, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}
