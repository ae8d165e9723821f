package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// following is how Follow looks again for what it did not hear of.
var following = retry.Pauses{First: 10 * time.Millisecond, Longest: 10 * time.Second, Spread: 0.2}

// Follow reads a zone's messages on a filter in order, through workers, from the beginning until ctx ends: caughtUp is
// called once, when everything that was there has been handed out, by a goroutine that calls handle. Until opening ends a
// worker is waited for, and what goes wrong else is returned; later it is waited for too, until the connection is closed. When a stream is
// another, the error is ErrOtherStream. Of a zone that is divided, each stream is read in order; handle is called once at a time.
func (c *Conn) Follow(ctx, opening context.Context, z streams.Zone, filter string, caughtUp func(), handle func(Delivery)) error {
	zones, err := c.followable(ctx, opening, z, filter)
	if err != nil {
		return err
	}
	behind := len(zones)
	return together(ctx, zones, func(ctx context.Context, part streams.Zone, one *sync.Mutex, _ func()) error {
		return c.followOne(ctx, opening, part, filter, func() {
			one.Lock()
			defer one.Unlock()
			if behind--; behind == 0 {
				caughtUp()
			}
		}, func(d Delivery) {
			one.Lock()
			defer one.Unlock()
			if ctx.Err() == nil {
				handle(d)
			}
		})
	})
}

// followable are the zones that a zone is divided into, or those of them with messages on a filter, for somebody who may ask workers alone.
func (c *Conn) followable(ctx, opening context.Context, z streams.Zone, filter string) ([]streams.Zone, error) {
	if !z.Divided() || c.layout.Load() != nil {
		return c.zones(ctx, z, filter)
	}
	for pauses := following.Start(); ; {
		p, err := c.page(ctx, z, filter, math.MaxInt64) // beyond what there is
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) && retry.Sleep(opening, pauses.Next()) == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		l, err := streams.NewLayout(max(p.partitions, 1))
		if err != nil {
			return nil, err
		}
		c.layout.Store(&l)
		return c.zones(ctx, z, filter)
	}
}

// followOne is Follow of one stream.
func (c *Conn) followOne(ctx, opening context.Context, z streams.Zone, filter string, caughtUp func(), handle func(Delivery)) error {
	at := &place{}
	begin := func() error {
		for pauses := following.Start(); ; {
			err := c.rest(ctx, z, filter, at, handle)
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || retry.Sleep(opening, pauses.Next()) != nil {
				return err
			}
		}
	}
	if err := begin(); err != nil { // before it listens: who may not read is told so once
		return err
	}
	heard, stop, err := c.hear(c.published(z, filter)...)
	if err != nil {
		return err
	}
	defer stop()
	if err := begin(); err != nil {
		return err
	}
	caughtUp()
	for pauses := following.Start(); ; {
		if heard.wait(ctx, pauses.Next()) {
			pauses.Reset()
		}
		before := at.sequence
		err = c.rest(ctx, z, filter, at, handle)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}), errors.Is(err, ErrOtherStream), Closed(err):
			return err
		case err != nil:
			c.log.Warn("messages cannot be read; trying again", "filter", filter, "error", err)
		case at.sequence > before:
			pauses.Reset()
		}
	}
}

// place is how far a stream has been read: the last message that was handed out, if there was one, and what the stream was like.
type place struct {
	sequence uint64
	// at is when that message was stored, in Unix milliseconds.
	at     int64
	stream Bounds
}

// follow takes the messages of a page that follow the place. The page begins with the message there, unless that is gone: another in
// its place is another stream's.
func (x *place) follow(p page) ([]Stored, error) {
	if p.stream.Created != 0 {
		if !p.stream.Continues(x.stream) {
			return nil, ErrOtherStream
		}
		x.stream = p.stream
	}
	messages := p.messages
	if len(messages) > 0 && messages[0].Sequence == x.sequence {
		if messages[0].At != x.at {
			return nil, ErrOtherStream
		}
		messages = messages[1:]
	}
	if n := len(messages); n > 0 {
		x.sequence, x.at = messages[n-1].Sequence, messages[n-1].At
	}
	return messages, nil
}

// rest hands out what there is after a place, and moves that.
func (c *Conn) rest(ctx context.Context, z streams.Zone, filter string, at *place, handle func(Delivery)) error {
	for from := max(at.sequence, 1); ; {
		p, unread := c.page(ctx, z, filter, from)
		messages, err := at.follow(p)
		if err != nil {
			return fmt.Errorf("follow %s: %w", filter, err)
		}
		for _, m := range messages {
			handle(looked(m))
		}
		if unread != nil || !p.more {
			return unread
		}
		from = at.sequence + 1
	}
}

// published are the subjects on which the messages of a zone on a filter are heard.
func (c *Conn) published(z streams.Zone, filter string) []string {
	rest, any := strings.CutPrefix(filter, c.subjects.Root()+".*.")
	if !any {
		return []string{filter}
	}
	var subjects []string
	for _, kind := range z.Kinds() {
		subjects = append(subjects, c.subjects.Root()+"."+string(kind)+"."+rest)
	}
	return subjects
}

// Stored reads the message of a zone that is the last on its subject and has a sequence. One that was removed is
// CodeUnavailable. It asks the server: no worker is needed.
func (c *Conn) Stored(ctx context.Context, subject string, sequence uint64) (Delivery, error) {
	m, err := c.direct(ctx, subject)
	if errors.Is(err, ErrNotStored) || err == nil && m.Sequence != sequence {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "message %d was removed from %s", sequence, c.streamOf(subject))
	}
	if err != nil {
		return nil, err
	}
	return looked(m), nil
}

// heard has a token when something was heard.
type heard chan struct{}

// wait waits until something is heard, and reports whether it was, for a time at most.
func (h heard) wait(ctx context.Context, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-h:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// hear listens for messages on subjects, and for a connection that is made anew, or closed.
func (c *Conn) hear(subjects ...string) (heard, func(), error) {
	h := make(heard, 1)
	something := func() {
		select {
		case h <- struct{}{}:
		default:
		}
	}
	stops := []func(){c.onStatus(func(nats.Status) { something() }, nats.CONNECTED, nats.CLOSED)}
	stop := func() {
		for _, s := range stops {
			s()
		}
	}
	for _, subject := range subjects {
		end, err := c.Tail(subject, func(string, map[string][]string, []byte) { something() })
		if err != nil {
			stop()
			return nil, nil, err
		}
		stops = append(stops, func() { _ = end() }) // the connection is gone, and the subscription with it
	}
	return h, stop, nil
}

// First publishes what a person says on a subject where they have said nothing yet; else it does nothing.
func (c *Conn) First(ctx context.Context, subject string, event wire.Event) error {
	m, err := c.message(subject, event)
	if err != nil {
		return err
	}
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	stream, err := c.expected(ctx, subject)
	if err == nil {
		err = c.publishOn(ctx, stream, m, jetstream.WithExpectLastSequencePerSubject(0))
	}
	if err == nil || wrongSequence(err) {
		return nil
	}
	return c.publishError(subject, explain(err))
}

// Reply publishes a person's answer beside those that are on its subject already: whoever was refused may answer again.
func (c *Conn) Reply(ctx context.Context, subject string, event wire.Event) error {
	return c.send(ctx, subject, event)
}
