package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/days"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Headers of messages.
const (
	headerContentType = "Content-Type"
	// headerReply repeats a call's reply subject for services that cannot compute it.
	headerReply = "agentd-reply"
)

// publishTimeout bounds one attempt to publish.
const publishTimeout = 5 * time.Second

// Publish creates event on subject if nothing is there. If something is, the same bytes are success, and others are
// *sdk.Error with CodeConflict. Without an answer from the broker it repeats until ctx ends: repeating is harmless. A stream without room is
// CodeUnavailable at once: that may last, and who has a slot for the time is not to keep it.
func (c *Conn) Publish(ctx context.Context, subject string, event wire.Event) error {
	data, err := event.Encode()
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event.ID, err)
	}
	return c.create(ctx, &nats.Msg{Subject: subject, Data: data, Header: c.headers(subject)})
}

// Restore is Publish that looks first whether the event is there: a publish that the stream refuses is heard all the same by who
// listens to its subject.
func (c *Conn) Restore(ctx context.Context, subject string, event wire.Event) error {
	m, err := c.message(subject, event)
	if err != nil {
		return err
	}
	var last uint64
	if err = c.compare(ctx, m, ErrNotStored, &last); err == nil || errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		return err
	}
	return c.create(ctx, m)
}

func (c *Conn) headers(subject string) nats.Header {
	h := nats.Header{headerContentType: {wire.ContentTypeStructured}}
	if reply, ok := c.ReplySubject(subject); ok {
		h.Set(headerReply, reply)
	}
	return h
}

// ReplySubject is the subject of answers to a call that was delivered on subject.
func (c *Conn) ReplySubject(subject string) (string, bool) {
	rest, ok := strings.CutPrefix(subject, c.subjects.Root()+"."+string(wire.KindOut)+".")
	return c.subjects.Root() + "." + string(wire.KindIn) + "." + rest, ok
}

// create is create-if-absent: one subject an event, and an expected last sequence of 0, or that of something that is not an event.
func (c *Conn) create(ctx context.Context, m *nats.Msg) error {
	var last uint64
	return c.persist(ctx, m.Subject, func(attempt context.Context, stream string) error {
		err := c.publishOn(attempt, stream, m, jetstream.WithExpectLastSequencePerSubject(last))
		if err == nil || errors.Is(err, nats.ErrMaxPayload) {
			return err
		}
		return c.compare(ctx, m, err, &last)
	})
}

// compare decides what became of a publish that ended with problem. Whatever the acknowledgement said or failed to say,
// the subject itself tells: somebody else may have answered on the acknowledgement's inbox.
//
// What the server itself wrote takes no subject from anybody: it answers requests on whatever reply subject they name, also
// on one that the requester may not publish to. compare sets last to the sequence of such an answer.
func (c *Conn) compare(ctx context.Context, m *nats.Msg, problem error, last *uint64) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout) // the publish may have used up its own time
	defer cancel()
	stored, err := c.Last(ctx, m.Subject)
	switch {
	case errors.Is(err, ErrNotStored):
		return problem
	case err != nil:
		return errors.Join(problem, err)
	case bytes.Equal(stored.Data, m.Data):
		return nil
	case serverMade(stored):
		*last = stored.Sequence
		return problem
	}
	return sdk.Errorf(sdk.CodeConflict, "another event is already on %s", m.Subject)
}

// serverMade reports whether a message is an answer of the server or of a service of its API: no program publishes events
// without a header.
func serverMade(m Stored) bool {
	if len(m.Headers) == 0 {
		_, err := wire.DecodeEvent(nil, m.Data)
		return err != nil
	}
	return m.Headers[headerServiceCode] != nil
}

// Published reports whether an event is on subject, as the stream's leader has it.
func (c *Conn) Published(ctx context.Context, subject string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m, err := c.Last(ctx, subject)
	if errors.Is(err, ErrNotStored) {
		return false, nil
	}
	return err == nil && !serverMade(m), err
}

// persist repeats an attempt, which is told the stream to expect, until it succeeds, is refused for good or for want of room, or ctx ends.
func (c *Conn) persist(ctx context.Context, subject string, try func(ctx context.Context, stream string) error) error {
	return publishing.Do(ctx, retry.Sleep, func() error {
		attempt, cancel := context.WithTimeout(ctx, publishTimeout)
		defer cancel()
		stream, err := c.expected(attempt, subject)
		if err == nil {
			err = try(attempt, stream)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return retry.Final(fmt.Errorf("publish %s: %w", subject, errors.Join(ctx.Err(), err)))
		case refused(err), leader.Full(err):
			return retry.Final(c.publishError(subject, err))
		}
		c.log.Warn("publish is repeated", "subject", subject, "error", err)
		return err
	})
}

// publishing is how something is published again while the broker does not answer.
var publishing = retry.Pauses{First: 50 * time.Millisecond, Longest: publishTimeout}

// refused reports whether a publish was answered with a definite no, so that repeating it is useless.
func refused(err error) bool {
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) || errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) ||
		errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrConnectionClosed) {
		return true
	}
	if !Refused(err) {
		return false
	}
	api, _ := errors.AsType[*jetstream.APIError](err) // Refused is true of no other error
	// Something was on the subject or on its way there, and yet nothing is to be read: with replicas, another proposal may
	// still be in flight.
	return api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence &&
		api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequenceConstant
}

// Refused reports whether the server itself answered with a definite no, so that repeating the request is useless.
func Refused(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code < 500 && api.ErrorCode != 0 // every error of the server has a code; one of a service may not
}

// publishError says what a failed publish means to the caller.
func (c *Conn) publishError(subject string, err error) error {
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return err
	case errors.Is(err, nats.ErrMaxPayload):
		return sdk.Errorf(sdk.CodeTooLarge, "the event for %s is larger than the broker takes (%d bytes)", subject, c.nc.MaxPayload())
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrNoStreamResponse):
		return sdk.Errorf(sdk.CodeUnavailable, "no stream takes %s; run: agentd provision", subject).WithCause(err)
	}
	if full := leader.Unwritten(c.streamOf(subject), err); errors.Is(full, &sdk.Error{Code: sdk.CodeUnavailable}) {
		return full
	}
	return fmt.Errorf("publish %s: %w", subject, err)
}

// Start publishes an init event, for clients.
func (c *Conn) Start(ctx context.Context, agent string, event wire.Event) error {
	return c.StartAs(ctx, agent, c.who, event)
}

// StartAs is Start as another principal, as operators may.
func (c *Conn) StartAs(ctx context.Context, agent, who string, event wire.Event) error {
	err := c.send(ctx, as(c.subjects.Start(agent), who), event)
	if who == "" && errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		return sdk.Errorf(sdk.CodePermissionDenied, "%s; say as which principal: --as of agentd, Options.As of sdk/client", sdk.AsError(err).Message).WithCause(err)
	}
	return err
}

// Control publishes a control message to a run as a principal, or as nobody in particular.
func (c *Conn) Control(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey, who string, event wire.Event) error {
	return c.send(ctx, as(c.subjects.Control(verb, agent, run), who), event)
}

// Refusal is why a control message became a dead letter that was published as a principal with the event's id; nil is that it did not, as far
// as is known: only the last one of its verb to the run is looked for. Without an id that one is meant. It needs the right to read the streams
// of answers and of dead letters, else the error is CodePermissionDenied.
func (c *Conn) Refusal(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey, who, event string) (why *sdk.Error, err error) {
	ctx, stop := context.WithTimeout(ctx, publishTimeout)
	defer stop()
	err = c.Permitted(ctx, func(ctx context.Context) error {
		m, err := c.Last(ctx, as(c.subjects.Control(verb, agent, run), who))
		if err != nil {
			return err
		}
		if ev, err := wire.DecodeEvent(m.Headers, m.Data); err != nil || event != "" && ev.ID != event {
			return nil //nolint:nilerr // somebody else's came after it
		}
		letter, err := c.Last(ctx, c.subjects.DeadLetter("*", m.Stream, m.Sequence))
		if err == nil && letter.Header(headerSettled) == "" {
			code := letter.Header(headerReason)
			why = sdk.Errorf(sdk.Code(code), "%s", strings.TrimPrefix(letter.Header(headerDetail), code+": "))
		}
		return err
	})
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	return why, err
}

// Who is the connection's principal; empty is nobody in particular.
func (c *Conn) Who() string { return c.who }

// as appends a principal to a subject that may have one.
func as(subject, who string) string {
	if who == "" {
		return subject
	}
	return subject + "." + who
}

// Answer publishes a person's answer to a call that was delivered on subject, as the connection's principal, and repeats it
// as Publish does. It lies beside what is on the reply subject already: an answer that the run could not use takes nothing
// from the next one, and of several that it can use, or of one that is stored twice, the first counts.
func (c *Conn) Answer(ctx context.Context, subject string, event wire.Event) error {
	reply, ok := c.ReplySubject(subject)
	if !ok {
		return sdk.Errorf(sdk.CodeInvalidEvent, "%s is not a call", subject)
	}
	subject = as(reply, c.who)
	m, err := c.message(subject, event)
	if err != nil {
		return err
	}
	return c.persist(ctx, subject, func(attempt context.Context, stream string) error {
		return c.publishOn(attempt, stream, m)
	})
}

// send publishes without create-if-absent: several messages may share the subject.
func (c *Conn) send(ctx context.Context, subject string, event wire.Event) error {
	m, err := c.message(subject, event)
	if err != nil {
		return err
	}
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	// One that may have been stored is sent again: whoever reads them knows an event by its id.
	err = leader.Patiently(ctx, c.js, "stream "+c.streamOf(subject), func(ctx context.Context) error {
		stream, err := c.expected(ctx, subject)
		if err == nil {
			err = c.publishOn(ctx, stream, m)
		}
		return err
	})
	if err != nil {
		return c.publishError(subject, explain(err))
	}
	return nil
}

func (c *Conn) message(subject string, event wire.Event) (*nats.Msg, error) {
	data, err := event.Encode()
	if err != nil {
		return nil, fmt.Errorf("encode event %s: %w", event.ID, err)
	}
	return &nats.Msg{Subject: subject, Data: data, Header: c.headers(subject)}, nil
}

// firedTTL is how long a timer that has fired is kept.
const firedTTL = 7 * days.Day

// timerData is what a timer says that is due at a time in Unix milliseconds.
func timerData(due int64) []byte { return fmt.Appendf(nil, `{"due":%d}`, due) }

// ArmTimer makes a message arrive on the run's fire subject at due, in place of what was armed before. It repeats as
// Publish does.
func (c *Conn) ArmTimer(ctx context.Context, agent string, run wire.RunKey, due int64) error {
	m := &nats.Msg{Subject: c.subjects.Timer(agent, run), Data: timerData(due), Header: nats.Header{
		// The client's own option cuts to whole seconds, which would fire early.
		"Nats-Schedule":        {"@at " + time.UnixMilli(due).UTC().Format(time.RFC3339Nano)},
		"Nats-Schedule-Target": {c.subjects.Fire(agent, run)},
		"Nats-Schedule-TTL":    {firedTTL.String()},
	}}
	return c.persist(ctx, m.Subject, func(attempt context.Context, stream string) error {
		_, err := c.js.PublishMsg(attempt, m, jetstream.WithExpectStream(stream))
		return err
	})
}

// Wake tells all workers that a run is to end.
func (c *Conn) Wake(agent string, run wire.RunKey) {
	if err := c.nc.Publish(c.subjects.Wake(agent, run), nil); err != nil {
		c.log.Debug("wake is lost", "run", run, "error", err)
	}
}

// OnWake calls handle, one call at a time, for every run that any worker wakes, until stop is called.
func (c *Conn) OnWake(handle func(wire.RunKey)) (stop func() error, err error) {
	sub, err := c.nc.Subscribe(c.subjects.All(wire.KindWake), func(m *nats.Msg) {
		if a, err := c.subjects.Parse(m.Subject); err == nil {
			handle(a.Run)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("listen for runs to wake: %w", err)
	}
	return sub.Unsubscribe, nil
}

// Put publishes a message as it is, beside what is on its subject, and returns its sequence in the stream: for who tries what
// others do with it.
func (c *Conn) Put(ctx context.Context, subject string, headers map[string][]string, body []byte) (uint64, error) {
	stream, err := c.streamFor(ctx, subject)
	if err != nil {
		return 0, err
	}
	ack, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: body, Header: headers}, jetstream.WithExpectStream(stream))
	if err != nil {
		return 0, c.publishError(subject, err)
	}
	return ack.Sequence, nil
}
