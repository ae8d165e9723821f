// Package handler turns a delivery of JetStream into a message for a run, has it processed, and settles it: ack, nak,
// dead letter, or nothing at all when the run is somebody else's.
//
// It starts no goroutine and reads no clock of its own: Env does.
package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// DeadLetters takes what cannot be handled. Putting the same delivery twice is harmless.
type DeadLetters interface {
	DeadLetter(ctx context.Context, d broker.Delivery, reason sdk.Code, detail string) error
}

// Options are what a Handler is made of. All are required but Heartbeat and Silence.
type Options struct {
	Runner      *runner.Runner
	DeadLetters DeadLetters
	Env         runner.Env
	Subjects    wire.Subjects
	Logger      *slog.Logger
	// Services maps the type token of a contract to the agent (by token) that serves it, for agents that others call.
	Services func(typeToken string) (agent string, ok bool)
	// Heartbeat is how often a delivery is extended; 0 is streams.Heartbeat. Two of them fit into AckWait.
	Heartbeat time.Duration
	// Silence is how long an activation may go without progress before its delivery stops being extended, so that a
	// worker that hangs loses its runs; 0 is 5 min. It must be longer than any model call or tool.
	Silence time.Duration
}

// Handler handles deliveries. Safe for concurrent use.
type Handler struct{ Options }

// New returns a Handler.
func New(o Options) *Handler {
	if o.Heartbeat == 0 {
		o.Heartbeat = streams.Heartbeat
	}
	if o.Silence == 0 {
		o.Silence = 5 * time.Minute
	}
	if o.Services == nil {
		o.Services = func(string) (string, bool) { return "", false }
	}
	return &Handler{o}
}

// Handle processes one delivery and settles it. It returns when that is done; ctx's end abandons the delivery, which the
// broker then delivers to another worker.
func (h *Handler) Handle(ctx context.Context, d broker.Delivery) {
	m, err := h.Decode(d)
	if err != nil {
		h.settle(ctx, d, runner.Verdict{Settlement: runner.Reject, Problem: sdk.AsError(err)})
		return
	}
	h.settle(ctx, d, h.process(ctx, d, m))
}

// process runs the message while its delivery is extended for as long as it makes progress.
func (h *Handler) process(ctx context.Context, d broker.Delivery, m runner.Message) runner.Verdict {
	var last atomic.Int64
	m.Progress = func() { last.Store(h.Env.Now()) }
	m.Progress()
	var v runner.Verdict
	h.Env.Beat(func() { v = h.Runner.Process(ctx, &m) }, h.Heartbeat, func() bool {
		switch silent := h.Env.Now() - last.Load(); {
		case ctx.Err() != nil:
			return false
		case silent > h.Silence.Milliseconds():
			h.Logger.ErrorContext(ctx, "activation hangs; its delivery is given up", "subject", d.Subject())
			return false
		}
		if err := d.InProgress(); err != nil {
			h.Logger.WarnContext(ctx, "delivery could not be extended", "subject", d.Subject(), "error", err)
		}
		return true
	})
	return v
}

// Decode reads a delivery, or a stored message that is like one. Its error is an *sdk.Error with the reason of the dead letter. An
// init event that cannot be decoded is a message all the same when its sender can be told.
func (h *Handler) Decode(d broker.Delivery) (runner.Message, error) {
	address, err := h.Subjects.Parse(d.Subject())
	if err != nil {
		return runner.Message{}, err
	}
	m := runner.Message{
		Address: address, Received: d.Received(), Delivered: d.Delivered(), Backlog: d.Backlog(),
		Cause: core.Cause{Stream: d.Stream(), Sequence: d.Sequence(), EventID: d.Subject()},
	}
	if address.Kind == wire.KindFire {
		var fired struct {
			Due int64 `json:"due"`
		}
		if err := json.Unmarshal(d.Data(), &fired); err != nil {
			return runner.Message{}, sdk.Errorf(sdk.CodeInvalidEvent, "timer without a due time").WithCause(err)
		}
		m.Due = fired.Due
		return m, nil
	}
	if m.Event, err = wire.DecodeEvent(d.Headers(), d.Data()); err != nil {
		sender, ok := wire.Sender(d.Headers(), d.Data())
		if !ok || address.Kind != wire.KindStart {
			return runner.Message{}, err
		}
		m.Event, m.Unread = sender, sdk.AsError(err)
	}
	m.Cause.EventID = m.Event.ID
	return h.address(m)
}

// address completes the address with the run that the message is for.
func (h *Handler) address(m runner.Message) (runner.Message, error) {
	switch m.Address.Kind {
	case wire.KindStart:
	case wire.KindOut, wire.KindVoid:
		if _, ok := wire.ParseCallRef(m.Address.Call.Call); !ok {
			return runner.Message{}, sdk.Errorf(sdk.CodeInvalidEvent, "%q is not a call id", m.Address.Call.Call)
		}
		agent, ok := h.Services(m.Address.Call.Type)
		if !ok {
			return runner.Message{}, sdk.Errorf(sdk.CodeUnknownAgent, "no agent here serves %q", m.Address.Call.Type)
		}
		m.Address.Agent = agent
	case wire.KindIn, wire.KindCtl:
		return m, nil
	default:
		return runner.Message{}, sdk.Errorf(sdk.CodeInvalidEvent, "%s messages are not for workers", m.Address.Kind)
	}
	m.Run = core.RunName(m.Address, m.Event)
	m.Address.Run = wire.NewRunKey(m.Run)
	return m, nil
}

// settle carries out a verdict. An ack or nak that gets lost means another delivery, which is harmless.
func (h *Handler) settle(ctx context.Context, d broker.Delivery, v runner.Verdict) {
	var err error
	switch v.Settlement {
	case runner.Leave:
		return
	case runner.Retry:
		err = d.Nak(v.After)
	case runner.Reject:
		if err = h.DeadLetters.DeadLetter(ctx, d, v.Problem.Code, v.Problem.Error()); err != nil {
			break // not acked: it is delivered again
		}
		h.Logger.WarnContext(ctx, "message is dead-lettered", "subject", d.Subject(), "reason", v.Problem.Code, "error", v.Problem)
		err = d.Ack()
	case runner.Ack:
		err = d.Ack()
	}
	if err != nil {
		h.Logger.WarnContext(ctx, "delivery could not be settled", "subject", d.Subject(), "error", err)
	}
}
