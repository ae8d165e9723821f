package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk/wire"
)

func (c *Conn) leaseSubject(name string) string {
	return c.subjects.Root() + "." + string(wire.KindTimer) + "." + streams.LeaseToken + "." + name
}

// Lease takes a lease on a name for a time, whole seconds, unless somebody has it. It ends by itself, or with EndLease.
// The broker keeps the time.
func (c *Conn) Lease(ctx context.Context, name string, d time.Duration) (bool, error) {
	sequence, err := c.takeLease(ctx, name, nil, d)
	return sequence > 0, err
}

// takeLease is the sequence of the message that is the lease; 0 is that somebody has it.
func (c *Conn) takeLease(ctx context.Context, name string, holder []byte, d time.Duration) (sequence uint64, err error) {
	sequence, err = c.putLease(ctx, name, holder, d, 0)
	if err == nil || wrongSequence(err) {
		return sequence, nil
	}
	return 0, fmt.Errorf("take lease %s: %w", name, err)
}

// putLease makes one attempt to put a lease in place of the message with a sequence; 0 is of none.
func (c *Conn) putLease(ctx context.Context, name string, holder []byte, d time.Duration, former uint64) (sequence uint64, err error) {
	m := &nats.Msg{Subject: c.leaseSubject(name), Data: holder, Header: nats.Header{jetstream.MsgRollup: {jetstream.MsgRollupSubject}}}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	stream, err := c.streamFor(ctx, m.Subject)
	if err != nil {
		return 0, err
	}
	put, err := c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(stream),
		jetstream.WithExpectLastSequencePerSubject(former), jetstream.WithMsgTTL(d))
	if err != nil {
		return 0, err
	}
	return put.Sequence, nil
}

// EndLease ends whoever's lease on a name within a second.
func (c *Conn) EndLease(ctx context.Context, name string) error {
	return c.keepLast(ctx, c.leaseSubject(name), nil, shortestTTL)
}

// ErrLeaseLost is that a lease could not be renewed, and somebody else may have it.
var ErrLeaseLost = errors.New("the lease could not be renewed in time, and somebody else may have it")

// Hold is a lease that is renewed for as long as its holder lives. The holder calls Close.
type Hold struct {
	conn     *Conn
	name     string
	holder   []byte
	d        time.Duration
	sequence uint64

	close   context.CancelFunc
	renewal sync.WaitGroup
	lost    context.Context
	lose    context.CancelCauseFunc
}

// Hold takes a lease on a name, unless somebody has it: then it returns nil. It is renewed each third of d, whole seconds, until ctx ends or
// it is lost; who dies has it for d at most. Its holder gives it up a third of d before others can have it: what is under way then must
// have ended by that time.
func (c *Conn) Hold(ctx context.Context, name string, d time.Duration) (*Hold, error) {
	h := &Hold{conn: c, name: name, holder: []byte(nats.NewInbox()[len(nats.InboxPrefix):]), d: d}
	now := time.Now()
	var err error
	if h.sequence, err = c.takeLease(ctx, name, h.holder, d); err != nil || h.sequence == 0 {
		return nil, err
	}
	ctx, h.close = context.WithCancel(ctx)
	h.lost, h.lose = context.WithCancelCause(context.Background())
	h.renewal.Go(func() { h.renew(ctx, now) })
	return h, nil
}

// Close ends the renewals. The lease ends by itself.
func (h *Hold) Close() {
	h.close()
	h.renewal.Wait()
}

// Lost reports whether somebody else may have the lease.
func (h *Hold) Lost() bool { return h.lost.Err() != nil }

// While is a context that ends with ctx, or with ErrLeaseLost as its cause when the lease is lost. Its user calls end.
func (h *Hold) While(ctx context.Context) (held context.Context, end func()) {
	held, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(h.lost, func() { cancel(context.Cause(h.lost)) })
	return held, func() { stop(); cancel(context.Canceled) }
}

// renew renews the lease, which was put at a time or later, until ctx ends.
func (h *Hold) renew(ctx context.Context, put time.Time) {
	third := h.d / 3
	for retry.Sleep(ctx, third) == nil {
		until, cancel := context.WithDeadline(ctx, put.Add(2*third))
		err := publishing.Do(until, retry.Sleep, func() error {
			put = time.Now()
			return h.putAgain(until)
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			h.lose(fmt.Errorf("%s: %w: %w", h.name, ErrLeaseLost, err))
			return
		}
	}
}

// putAgain puts the lease in place of itself. An error is final when somebody else has it, or nobody.
func (h *Hold) putAgain(ctx context.Context) error {
	sequence, err := h.conn.putLease(ctx, h.name, h.holder, h.d, h.sequence)
	if err == nil {
		h.sequence = sequence
		return nil
	}
	if !wrongSequence(err) {
		return err
	}
	there, lastErr := h.conn.Last(ctx, h.conn.leaseSubject(h.name))
	switch {
	case errors.Is(lastErr, ErrNotStored), lastErr == nil && !bytes.Equal(there.Data, h.holder):
		return retry.Final(err)
	case lastErr != nil:
		return lastErr
	}
	h.sequence = there.Sequence // the answer to an earlier attempt was lost
	return err
}
