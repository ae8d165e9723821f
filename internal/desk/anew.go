package desk

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/requests"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// again is how often it is tried to read streams again that are away, or not yet provisioned.
const again = time.Second

// reading is one reading of the streams, from their beginning. It ends when one of them is another.
type reading struct {
	d *Desk
	// ended gets why it ended, for the first reason.
	ended chan error
	stop  context.CancelFunc
	done  sync.WaitGroup

	mu sync.Mutex
	// into gets what is read.
	into *inbox
}

// keep takes a message.
func (r *reading) keep(take func(*inbox, broker.Delivery) error) func(broker.Delivery) error {
	return func(m broker.Delivery) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return take(r.into, m)
	}
}

// end notes why it ended.
func (r *reading) end(err error) {
	select {
	case r.ended <- err:
	default: // another of these streams ended before, which says enough
	}
}

// close stops it.
func (r *reading) close() {
	r.stop()
	r.done.Wait()
}

// read reads the streams into an inbox, one after the other: what was answered means nothing without what was asked. It goes on after
// everything that was there has been read, until close.
func (d *Desk) read(opening, working context.Context, into *inbox) (*reading, error) {
	working, stop := context.WithCancel(working)
	r := &reading{d: d, into: into, ended: make(chan error, 1), stop: stop}
	err := r.begin(opening, working)
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *reading) begin(opening, working context.Context) error {
	subjects := r.d.o.Conn.Subjects()
	var calls, answers []string
	for _, domain := range r.d.o.Domains {
		token := domain
		if domain != "*" {
			token = wire.DomainToken(domain)
		}
		calls = append(calls, subjects.Root()+".*."+token+".>")
		answers = append(answers, subjects.Root()+"."+string(wire.KindIn)+"."+token+".>")
	}
	for _, filter := range calls {
		if err := r.follow(opening, working, streams.Out, filter, r.keep((*inbox).called), r.end); err != nil {
			return err
		}
	}
	// Without these, answers count all the same; only less is known of them.
	lacking := func(err error) { r.d.o.Logger.Warn("answers cannot be read; less is shown of them", "error", err) }
	later := func(err error) {
		if errors.Is(err, broker.ErrOtherStream) {
			r.end(err)
			return
		}
		lacking(err)
	}
	parts, err := r.d.o.Conn.Zones(opening, streams.In)
	if err != nil {
		return err
	}
	for _, part := range parts {
		letters := subjects.Root() + "." + string(wire.KindDLQ) + ".*." + strings.ToLower(streams.Name(subjects, part)) + ".>"
		if err := r.follow(opening, working, streams.DLQ, letters, r.keep((*inbox).rejected), later); err != nil {
			if opening.Err() != nil || errors.Is(err, broker.ErrOtherStream) {
				return err
			}
			lacking(err)
		}
	}
	for _, filter := range answers {
		if err := r.follow(opening, working, streams.In, filter, r.keep((*inbox).answered), later); err != nil {
			if opening.Err() != nil || errors.Is(err, broker.ErrOtherStream) {
				return err
			}
			lacking(err)
		}
	}
	return nil
}

// follow reads a stream until working ends, and returns when everything that was there has been handled. Until opening ends it
// waits for a worker. later is told of an error after that.
func (r *reading) follow(
	opening, working context.Context, zone streams.Zone, filter string, handle func(broker.Delivery) error, later func(error),
) error {
	caughtUp, failed := make(chan struct{}), make(chan error, 1)
	r.done.Go(func() {
		err := r.d.o.Conn.Follow(working, opening, zone, filter, func() { close(caughtUp) }, func(m broker.Delivery) {
			if err := handle(m); err != nil {
				r.d.o.Logger.Warn("message is left out", "subject", m.Subject(), "error", err)
			}
		})
		select {
		case <-caughtUp:
			if working.Err() == nil {
				later(err)
			}
		default:
			failed <- err
		}
	})
	select {
	case <-caughtUp:
		return nil
	case err := <-failed:
		return err
	}
}

// keepReading reads on until ctx ends. When a stream was made anew, or set back to an older copy, it reads all of them from the
// beginning: meanwhile the desk shows what it had.
func (d *Desk) keepReading(ctx context.Context, r *reading) {
	defer func() { r.close() }()
	for {
		var err error
		select {
		case err = <-r.ended:
		case <-ctx.Done():
			return
		}
		if !errors.Is(err, broker.ErrOtherStream) {
			d.failed <- err
			return
		}
		d.o.Logger.Warn("the streams are read again from the beginning", "error", err)
		r.close()
		next, err := d.readAnew(ctx)
		if err != nil {
			if ctx.Err() == nil {
				d.failed <- err
			}
			return
		}
		r = next
	}
}

// readAnew reads the streams from the beginning, and then replaces what the desk has. It tries until ctx ends, the desk
// may not read, or its connection is closed.
func (d *Desk) readAnew(ctx context.Context) (*reading, error) {
	for {
		fresh := newInbox(d.o.Conn.Subjects(), d.now)
		r, err := d.read(ctx, ctx, fresh)
		if err == nil {
			r.mu.Lock()
			d.inbox.adopt(fresh)
			r.into = d.inbox
			r.mu.Unlock()
			return r, nil
		}
		if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) || broker.Closed(err) {
			return nil, err
		}
		d.o.Logger.Warn("the streams cannot be read yet; trying again", "error", err)
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// adopt puts what another inbox has read in the place of what this one has, and tells the differences. The other one is not used
// afterwards.
func (b *inbox) adopt(fresh *inbox) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fresh.mu.Lock()
	defer fresh.mu.Unlock()
	why := map[string]requests.Reason{}
	for _, c := range fresh.changes {
		if c.Kind == requests.ChangeRemoved {
			why[c.Item.Subject] = c.Reason
		}
	}
	for subject := range b.open {
		if fresh.open[subject] == nil {
			reason := why[subject]
			if reason == "" {
				reason = requests.ReasonGone
			}
			b.remove(subject, reason)
		}
	}
	before := b.open
	b.open, b.subjectOf, b.early, b.voided, b.unusable = fresh.open, fresh.subjectOf, fresh.early, fresh.voided, fresh.unusable
	b.read, b.omitted = fresh.read, fresh.omitted
	for subject, i := range b.open {
		switch known := before[subject]; {
		case known == nil:
			b.change(requests.ChangeAdded, i, "")
		case len(known.Sent) != len(i.Sent):
			b.change(requests.ChangeDecided, i, "")
		}
	}
}
