package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Watch reads a zone's messages on the filters in order, from the beginning, without consuming them, until handle returns false or ctx
// ends. It survives restarts of the server. A stream that was made anew, or set back to an older copy, it reads again from the beginning. Of
// a zone that is divided, each stream is read in order; handle is called once at a time.
func (c *Conn) Watch(ctx context.Context, z streams.Zone, filters []string, handle func(Delivery) bool) error {
	return c.watch(ctx, z, jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverAllPolicy}, handle)
}

// WatchNew is Watch of what is stored from now on. Of a stream that was made anew, or set back, that is what is there and was stored since it
// was called.
func (c *Conn) WatchNew(ctx context.Context, z streams.Zone, filters []string, handle func(Delivery) bool) error {
	return c.watch(ctx, z, jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: jetstream.DeliverNewPolicy}, handle)
}

func (c *Conn) watch(ctx context.Context, z streams.Zone, config jetstream.OrderedConsumerConfig, handle func(Delivery) bool) error {
	began := time.UnixMilli(c.Now())
	zones, err := c.zones(ctx, z, config.FilterSubjects...)
	if err != nil {
		return err
	}
	if len(zones) == 1 {
		return c.watchOne(ctx, zones[0], config, began, handle)
	}
	return together(ctx, zones, func(ctx context.Context, part streams.Zone, one *sync.Mutex, end func()) error {
		return c.watchOne(ctx, part, config, began, func(d Delivery) bool {
			one.Lock()
			defer one.Unlock()
			more := ctx.Err() == nil && handle(d)
			if !more {
				end()
			}
			return more
		})
	})
}

// together does something with several zones at once, until one of them ends it for all: one that fails, and one that calls end. What
// they do under one, one of them does at a time. It returns nil after end, else what failed first.
func together(ctx context.Context, zones []streams.Zone, do func(ctx context.Context, z streams.Zone, one *sync.Mutex, end func()) error) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var one sync.Mutex
	var all sync.WaitGroup
	for _, z := range zones {
		all.Go(func() {
			if err := do(working, z, &one, func() { stop(errEnded) }); err != nil {
				stop(err)
			}
		})
	}
	all.Wait()
	if err := context.Cause(working); !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// errEnded is the cause of an end that nothing failed for.
var errEnded = errors.New("ended")

func (c *Conn) watchOne(
	ctx context.Context, z streams.Zone, config jetstream.OrderedConsumerConfig, began time.Time, handle func(Delivery) bool,
) error {
	for {
		err := c.readOn(ctx, streams.Name(c.subjects, z), config, nil, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
			return handle(watched(m, meta))
		})
		if !errors.Is(err, ErrOtherStream) {
			return err
		}
		c.log.Warn("a stream is read again", "filters", config.FilterSubjects, "error", err)
		if config.DeliverPolicy == jetstream.DeliverNewPolicy {
			config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, &began
		}
	}
}

// read calls handle with the messages of a stream in order until it returns false or ctx ends. begin, unless nil, is told
// first how many there are, and says whether to go on.
func (c *Conn) read(
	ctx context.Context, stream string, config jetstream.OrderedConsumerConfig, begin func(left uint64) bool,
	handle func(jetstream.Msg, *jetstream.MsgMetadata) bool,
) error {
	what := fmt.Sprintf("watch %s %v", stream, config.FilterSubjects)
	reader, err := c.ordered(ctx, stream, config)
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	defer reader.close()
	if begin != nil && !begin(reader.left()) {
		return nil
	}
	for {
		m, meta, err := reader.next(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !handle(m, meta) {
			return nil
		}
	}
}

// watched is a message that is only looked at: settling it means nothing.
func watched(m jetstream.Msg, meta *jetstream.MsgMetadata) Delivery {
	return delivery{
		msg: &nats.Msg{Subject: m.Subject(), Header: m.Headers(), Data: m.Data()},
		meta: &nats.MsgMetadata{
			Stream: meta.Stream, Consumer: meta.Consumer, Sequence: nats.SequencePair(meta.Sequence),
			NumDelivered: meta.NumDelivered, Timestamp: meta.Timestamp,
		},
	}
}

// waiting is how WaitDone looks again: a terminal event is heard before it is stored, and may be missed.
var waiting = retry.Pauses{First: 10 * time.Millisecond, Longest: 5 * time.Second, Spread: 0.2}

// WaitDone returns the terminal event of a run. It waits until ctx ends, or the connection is closed.
func (c *Conn) WaitDone(ctx context.Context, agent string, run wire.RunKey, initToken string) (wire.Event, error) {
	subject := c.subjects.Done(agent, run, initToken)
	heard, stop, err := c.hear(subject)
	if err != nil {
		return wire.Event{}, err
	}
	defer stop()
	for pauses := waiting.Start(); ; {
		m, err := c.direct(ctx, subject)
		switch {
		case err == nil && !serverMade(m):
			return wire.DecodeEvent(m.Headers, m.Data)
		case ctx.Err() != nil:
			return wire.Event{}, fmt.Errorf("wait for %s: %w", subject, ctx.Err())
		case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}), Closed(err):
			return wire.Event{}, err
		case err != nil && !errors.Is(err, ErrNotStored):
			c.log.Warn("a terminal event cannot be looked for; trying again", "subject", subject, "error", err)
		}
		if heard.wait(ctx, pauses.Next()) {
			pauses.Reset()
		}
	}
}

// LastEnd returns the terminal event that was published last for a run, whichever init event it answers, or ErrNotStored.
func (c *Conn) LastEnd(ctx context.Context, agent string, run wire.RunKey) (wire.Event, error) {
	m, err := c.direct(ctx, c.subjects.Done(agent, run, "*"))
	if err != nil {
		return wire.Event{}, err
	}
	return wire.DecodeEvent(m.Headers, m.Data)
}

// direct is the last message on a subject, or ErrNotStored, by a request that the server holds to this subject. Any replica
// may answer, so what was stored a moment ago may be missing.
func (c *Conn) direct(ctx context.Context, subject string) (Stored, error) {
	stream := c.streamOf(subject)
	request := "$JS.API.DIRECT.GET." + stream + "." + subject
	ctx, explain, stop := c.refusals.until(ctx, request)
	defer stop()
	var m *nats.Msg
	err := leader.Patiently(ctx, c.js, "stream "+stream, func(ctx context.Context) (err error) {
		m, err = c.nc.RequestWithContext(ctx, request, nil)
		return err
	})
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return Stored{}, sdk.Errorf(sdk.CodeUnavailable, "stream %s takes no direct reads now; if that lasts, run: agentd provision", stream).WithCause(err)
	case err != nil:
		return Stored{}, fmt.Errorf("read %s: %w", subject, explain(err))
	case m.Header.Get("Status") != "":
		return Stored{}, fmt.Errorf("%s: %w", subject, ErrNotStored)
	}
	return storedIn(m)
}

// Tail calls handle with every message on a subject as it is published, by core NATS and into streams alike, until the
// returned function is called. What is published after Tail has returned is seen, unless handle is too slow for it.
func (c *Conn) Tail(
	subject string, handle func(subject string, headers map[string][]string, data []byte),
) (stop func() error, err error) {
	s, err := c.nc.Subscribe(subject, func(m *nats.Msg) { handle(m.Subject, m.Header, m.Data) })
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", subject, err)
	}
	if err := c.flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %s: %w", subject, err), s.Unsubscribe())
	}
	return sync.OnceValue(s.Unsubscribe), nil
}

// inOrder is how many messages TailInOrder keeps for a handle that is slow; beyond them it loses some.
const inOrder = 1 << 16

// TailInOrder is Tail of several subjects, which calls handle in the order in which the server sent the messages of all of them.
func (c *Conn) TailInOrder(
	subjects []string, handle func(subject string, headers map[string][]string, data []byte),
) (stop func() error, err error) {
	messages, done := make(chan *nats.Msg, inOrder), make(chan struct{})
	var subscriptions []*nats.Subscription
	stop = sync.OnceValue(func() error {
		close(done)
		var err error
		for _, s := range subscriptions {
			err = errors.Join(err, s.Unsubscribe())
		}
		return err
	})
	for _, subject := range subjects {
		s, err := c.nc.ChanSubscribe(subject, messages)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("watch %s: %w", subject, err), stop())
		}
		subscriptions = append(subscriptions, s)
	}
	go func() {
		for {
			select {
			case m := <-messages:
				handle(m.Subject, m.Header, m.Data)
			case <-done:
				return
			}
		}
	}()
	if err := c.flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %v: %w", subjects, err), stop())
	}
	return stop, nil
}

// OnReconnect calls handle whenever the connection was lost and is there again, until the returned function is called.
func (c *Conn) OnReconnect(handle func()) (stop func()) {
	return c.onStatus(func(nats.Status) { handle() }, nats.CONNECTED)
}

// OnContact calls lost when the connection is lost, once however often it is tried, and back when it is there again, until the returned
// function is called.
func (c *Conn) OnContact(lost, back func()) (stop func()) {
	away := false
	return c.onStatus(func(now nats.Status) {
		switch {
		case now == nats.CONNECTED && away:
			away = false
			back()
		case now == nats.RECONNECTING && !away:
			away = true
			lost()
		}
	}, nats.RECONNECTING, nats.CONNECTED)
}

// onStatus calls handle whenever the connection comes to be one of these, until the returned function is called.
func (c *Conn) onStatus(handle func(nats.Status), these ...nats.Status) (stop func()) {
	changes := c.nc.StatusChanged(these...)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case now, open := <-changes:
				if !open {
					return
				}
				handle(now)
			case <-done:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		c.nc.RemoveStatusListener(changes)
		close(done)
	})
}

// Ask asks an agent's workers. A connection with a principal asks for the runs that it started, and for others only where
// its user may see all of them: a list then has its own runs alone.
func (c *Conn) Ask(ctx context.Context, agent string, query wire.Query, answer any) error {
	if c.who == "" {
		return c.Request(ctx, c.subjects.Get(agent), query, answer)
	}
	err := c.Request(ctx, c.subjects.GetAs(agent, c.who), query, answer)
	if !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return err
	}
	if other := c.Request(ctx, c.subjects.Get(agent), query, answer); !errors.Is(other, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return other
	}
	return err
}

// Request sends a request, as JSON, to whoever answers on a subject.
func (c *Conn) Request(ctx context.Context, subject string, request, answer any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode request: %w", err)
	}
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	var m *nats.Msg
	err = explain(leader.PatientlyOnce(ctx, c.js, "worker that answers on "+subject, func(ctx context.Context) (err error) {
		m, err = c.nc.RequestWithContext(ctx, subject, data)
		return err
	}))
	if errors.Is(err, nats.ErrNoResponders) {
		return c.nobodyAnswers(ctx, subject)
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", subject, err)
	}
	if err := refusal(m); err != nil {
		return err
	}
	if err := json.Unmarshal(m.Data, answer); err != nil {
		return fmt.Errorf("decode answer of %s: %w", subject, err)
	}
	return nil
}

// nobodyAnswers says why a request has no answer: a worker is missing, and on a new server not even what workers need.
func (c *Conn) nobodyAnswers(ctx context.Context, subject string) error {
	if err := c.CheckProvisioned(ctx); err != nil {
		return err
	}
	return sdk.Errorf(sdk.CodeUnavailable, "no worker answers on %s; start one: agentd serve", subject).
		WithCause(nats.ErrNoResponders)
}

// refusal is the error that a worker answered with, if it did.
func refusal(m *nats.Msg) error {
	code := m.Header.Get(headerServiceCode)
	if code == "" {
		return nil
	}
	return sdk.Errorf(sdk.Code(code), "%s", m.Header.Get("Nats-Service-Error"))
}

// headerServiceCode is set in the errors of the NATS service API.
const headerServiceCode = "Nats-Service-Error-Code"
