package broker

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentd/internal/retry"
	"agentd/sdk/wire"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// Watch reads a zone's messages on the filters in order, from the beginning or only new ones, without consuming them,
// until handle returns false or ctx ends. It survives restarts of the server.
func (c *Conn) Watch(ctx context.Context, z Zone, filters []string, fromStart bool, handle func(Delivery) bool) error {
	policy := jetstream.DeliverNewPolicy
	if fromStart {
		policy = jetstream.DeliverAllPolicy
	}
	return c.watch(ctx, z, filters, policy, nil, func(d Delivery, _ uint64) bool { return handle(d) })
}

// watch reads a zone in order until handle returns false. begin is told how many messages are there at first, handle how
// many are left after each.
func (c *Conn) watch(
	ctx context.Context, z Zone, filters []string, policy jetstream.DeliverPolicy, begin func(left uint64),
	handle func(d Delivery, left uint64) bool,
) error {
	config := jetstream.OrderedConsumerConfig{FilterSubjects: filters, DeliverPolicy: policy}
	return c.read(ctx, StreamName(c.subjects, z), config, func(left uint64) bool {
		if begin != nil {
			begin(left)
		}
		return true
	}, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		return handle(watched(m, meta), meta.NumPending)
	})
}

// read calls handle with the messages of a stream in order until it returns false or ctx ends. begin, unless nil, is told
// first how many there are, and says whether to go on.
func (c *Conn) read(
	ctx context.Context, stream string, config jetstream.OrderedConsumerConfig, begin func(left uint64) bool,
	handle func(jetstream.Msg, *jetstream.MsgMetadata) bool,
) error {
	what := fmt.Sprintf("watch %s %v", stream, config.FilterSubjects)
	consumer, err := c.ordered(ctx, stream, config)
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return err
	case err != nil:
		return fmt.Errorf("%s: %w", what, err)
	}
	defer c.forget(stream, consumer)
	if begin != nil && !begin(consumer.CachedInfo().NumPending) {
		return nil
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer func() {
		stop()
		messages.Stop()
	}()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, jetstream.ErrNoHeartbeat) {
			continue // the ordered consumer makes itself anew
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		if !handle(m, meta) {
			return nil
		}
	}
}

// ordered makes a consumer that reads a stream in order. That this user may not read it is said at once.
func (c *Conn) ordered(ctx context.Context, stream string, config jetstream.OrderedConsumerConfig) (jetstream.Consumer, error) {
	config.NamePrefix = rand.Text()
	bounded, explain, stop := c.refusals.untilAbout(ctx, func(subject string) bool { return strings.Contains(subject, config.NamePrefix) })
	defer stop()
	consumer, err := c.js.OrderedConsumer(bounded, stream, config)
	if err = explain(err); errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		what := strings.Join(append([]string{stream}, config.FilterSubjects...), " ")
		err = sdk.Errorf(sdk.CodePermissionDenied, "the NATS server does not let this user read %s", what).WithCause(sdk.AsError(err).Cause)
	}
	return consumer, err
}

// forget has the server remove a consumer that nobody reads any more. It waits for no answer: the server does so by itself when
// nobody has read it for a while, but may have too many of them until then.
func (c *Conn) forget(stream string, consumer jetstream.Consumer) {
	if !c.nc.IsConnected() {
		return
	}
	subject := "$JS.API.CONSUMER.DELETE." + stream + "." + consumer.CachedInfo().Name
	if err := c.nc.PublishRequest(subject, c.nc.NewInbox(), nil); err != nil {
		c.log.Debug("consumer is left to the server", "stream", stream, "error", err)
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

// WaitDone returns the terminal event of a run.
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
		case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
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
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ctx, explain, stop := c.refusals.until(ctx, request)
	defer stop()
	m, err := c.nc.RequestWithContext(ctx, request, nil)
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
	if err := c.nc.Flush(); err != nil {
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
	if err := c.nc.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch %v: %w", subjects, err), stop())
	}
	return stop, nil
}

// OnReconnect calls handle whenever the connection was lost and is there again, until the returned function is called.
func (c *Conn) OnReconnect(handle func()) (stop func()) {
	changes := c.nc.StatusChanged(nats.CONNECTED)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case _, open := <-changes:
				if !open {
					return
				}
				handle()
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
	m, err := c.nc.RequestWithContext(ctx, subject, data)
	err = explain(err)
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
