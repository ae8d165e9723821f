package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/handler"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// activity is what the ports know of one delivery, in its context.
type activity struct {
	// published counts since the last entry.
	published atomic.Int64
	// takeovers are those of the run since its last progress, when it was loaded.
	takeovers atomic.Int64
}

type activityKey struct{}

func activityOf(ctx context.Context) *activity {
	if a, ok := ctx.Value(activityKey{}).(*activity); ok {
		return a
	}
	return &activity{}
}

// deliveries wraps what a worker is given.
type deliveries struct {
	*armed
	// inHand counts deliveries that are being handled.
	inHand atomic.Int64
}

// around is worker.Options.Around.
func (w *deliveries) around(ctx context.Context, d broker.Delivery, handle func(context.Context, broker.Delivery)) {
	w.inHand.Add(1)
	defer w.inHand.Add(-1)
	w.notes.write(note{Kind: noteDelivered, Stream: d.Stream(), Sequence: d.Sequence(), Subject: d.Subject()})
	ctx = context.WithValue(ctx, activityKey{}, &activity{})
	w.pass(ctx, atDelivered)
	handle(ctx, delivery{d, w.armed, ctx})
	w.notes.write(note{Kind: noteHandled, Stream: d.Stream(), Sequence: d.Sequence()})
}

type delivery struct {
	broker.Delivery
	*armed
	handling context.Context
}

func (d delivery) Ack() error {
	d.pass(d.handling, atAck)
	if d.pass(d.handling, atAckLost) {
		return nil
	}
	err := d.Delivery.Ack()
	d.pass(d.handling, atAcked)
	return err
}

// store wraps a worker's store.
type store struct {
	state.Store
	*armed
}

func (s store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	rec, err := s.Store.Head(ctx, run)
	if err == nil && s.Point != "" {
		if e, err := core.DecodeEntry(rec.Data); err == nil && e.Head.Driver != nil { // the runner reports what cannot be read
			activityOf(ctx).takeovers.Store(int64(e.Head.Driver.Takeovers))
		}
	}
	s.pass(ctx, atHeadRead)
	return rec, err
}

func (s store) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	err := s.Store.PutBlob(ctx, run, digest, data)
	s.pass(ctx, atBlob)
	return err
}

func (s store) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	s.pass(ctx, atBarrier)
	if s.pass(ctx, atBarrierLost) {
		return fmt.Errorf("%w: the answer is lost", runner.ErrAmbiguous)
	}
	return s.Store.Barrier(ctx, run, v)
}

// moments are the failpoints of one kind of entry.
type moments struct{ sent, lost, refused, written string }

var (
	absorbing = moments{atAbsorbSent, atAbsorbLost, "", atAbsorbed}
	taking    = moments{"", "", "", atTaken}
	takeover  = moments{"", "", "", atTakenOver}
	stepping  = moments{atStepSent, atStepLost, atStepRefused, atStepped}
	beginning = moments{atStepSent, atStepLost, atStepRefused, atBegan}
)

// momentsOf says which kind an entry is of.
func momentsOf(data []byte) (moments, error) {
	e, err := core.DecodeEntry(data)
	if err != nil {
		return moments{}, err
	}
	switch e.Kind {
	case core.KindBegan:
		return beginning, nil
	case core.KindReplied, core.KindReturned, core.KindBuilt, core.KindEnded, core.KindReleased:
		return stepping, nil
	case core.KindTakenOver:
		return takeover, nil
	}
	if e.Head.Driver.Covers(e.Cause) {
		return taking, nil
	}
	return absorbing, nil
}

func (s store) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	m, err := momentsOf(next.Data)
	if err != nil {
		return runner.Version{}, err
	}
	if s.pass(ctx, m.refused) {
		return runner.Version{}, fmt.Errorf("%w: the request is lost", runner.ErrAmbiguous)
	}
	s.meanwhile(ctx, m.sent, func() { _, _ = s.Store.Append(ctx, run, base, next) }) // nobody will know what became of it
	v, err := s.Store.Append(ctx, run, base, next)
	if err != nil {
		return v, err
	}
	activityOf(ctx).published.Store(0)
	s.pass(ctx, m.written)
	if s.pass(ctx, m.lost) {
		return runner.Version{}, fmt.Errorf("%w: the answer is lost", runner.ErrAmbiguous)
	}
	return v, nil
}

// publisher wraps what a worker publishes.
type publisher struct {
	runner.Publisher
	letters handler.DeadLetters
	*armed
}

func (p publisher) Publish(ctx context.Context, subject string, event wire.Event) error {
	before := activityOf(ctx)
	if before.published.Load() == 0 {
		p.pass(ctx, atPublish)
	} else {
		p.pass(ctx, atNextPublish)
	}
	p.notes.write(note{Kind: notePublished, Subject: subject})
	p.meanwhile(ctx, atPublishSent, func() { _ = p.Publisher.Publish(ctx, subject, event) }) // nobody will know
	if err := p.Publisher.Publish(ctx, subject, event); err != nil {
		return err
	}
	before.published.Add(1)
	if p.pass(ctx, atPublishLost) {
		return sdk.Errorf(sdk.CodeUnavailable, "the confirmation of %s is lost", subject)
	}
	return nil
}

func (p publisher) ArmTimer(ctx context.Context, agent string, run wire.RunKey, due int64) error {
	p.pass(ctx, atArm)
	err := p.Publisher.ArmTimer(ctx, agent, run, due)
	p.pass(ctx, atArmed)
	return err
}

// DeadLetter implements handler.DeadLetters.
func (p publisher) DeadLetter(ctx context.Context, d broker.Delivery, reason sdk.Code, detail string) error {
	err := p.letters.DeadLetter(ctx, d, reason, detail)
	p.pass(ctx, atDeadLettered)
	return err
}

// burn is an inline tool that ends the worker's process, whoever runs it.
func burn(a *armed) sdk.Tool {
	return sdk.Tool{
		Definition: sdk.ToolDefinition{Name: burnTool, Parameters: json.RawMessage(`{"type":"object"}`)},
		Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
			a.notes.write(note{Kind: noteBurnt})
			die()
			return nil, nil
		},
	}
}

// tool is an inline tool whose effect is the note that it was executed.
func tool(a *armed, name string, took time.Duration) sdk.Tool {
	return inline(a, name, took, note{Kind: noteExecuted}, atInTool, atToolDone)
}

// once is a tool that is executed at most once.
func once(a *armed, name string, took time.Duration) sdk.Tool {
	t := inline(a, name, took, note{Kind: noteExecuted, Once: true}, atInToolOnce, atToolOnceDone)
	t.AtMostOnce = true
	return t
}

func inline(a *armed, name string, took time.Duration, executed note, in, done string) sdk.Tool {
	return sdk.Tool{
		Definition: sdk.ToolDefinition{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)},
		Run: func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			now := executed
			now.Run, now.Call = call.Run, call.ID
			a.notes.write(now)
			a.pass(ctx, in)
			select {
			case <-time.After(took):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			a.pass(ctx, done)
			return json.RawMessage(`{"ok":true}`), nil
		},
	}
}
