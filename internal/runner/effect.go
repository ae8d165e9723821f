package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/internal/outbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// announce sends an entry's milestones to whoever watches.
func (a *activation) announce(e *core.Entry) {
	if !a.watched(e.Head.Agent) {
		return
	}
	for _, m := range milestone.Of(e) {
		a.Publisher.Live(m)
	}
}

// watched reports whether anybody is told of the run. Without that no live event is even built.
func (a *activation) watched(agent string) bool {
	return a.agent.Live || a.Audience.Watches(agent, a.key)
}

// put creates an event: Publisher.Publish, or Restore.
type put func(ctx context.Context, subject string, event wire.Event) error

// carryOut carries out effects of an entry that this activation has made durable.
func (a *activation) carryOut(ctx context.Context, e *core.Entry, effects []core.Effect) error {
	return a.carryOutBy(ctx, a.Publisher.Publish, e, effects)
}

// carryOutAgain carries out effects of an entry that may have been carried out before: who listens hears no event twice.
func (a *activation) carryOutAgain(ctx context.Context, e *core.Entry, effects []core.Effect) error {
	effects, err := a.unpurged(ctx, e, effects)
	if err != nil {
		return err
	}
	return a.carryOutBy(ctx, a.Publisher.Restore, e, effects)
}

// carryOutBy carries out effects of a durable entry, each when the one before is confirmed: the calls of a turn are in their stream in the
// model's order, which a service keeps that handles one at a time. It may be repeated: events are created only if absent, with bytes that
// depend on nothing but the journal.
func (a *activation) carryOutBy(ctx context.Context, put put, e *core.Entry, effects []core.Effect) error {
	for _, f := range effects {
		if a.Env.Now()-a.known >= purgeable.Milliseconds() && a.known > 0 {
			return fmt.Errorf("%s of entry %d of run %s: %w", f.Kind, e.Rev, a.key, errStoodStill)
		}
		var err error
		switch f.Kind {
		case core.EffectCall:
			err = a.publishCall(ctx, put, e, f)
		case core.EffectVoid:
			err = a.publish(ctx, put, outbox.Voids(a.Subjects, e, f)...)
		case core.EffectAnswer:
			err = a.publishAnswer(ctx, put, e, f)
		case core.EffectTimer:
			err = a.Publisher.ArmTimer(ctx, e.Head.Agent, a.key, f.Due)
		case core.EffectPark:
			err = a.markParked(ctx, &e.Head, f)
		case core.EffectTerminal:
			err = a.publishTerminal(ctx, put, e)
		case core.EffectGrant:
			err = a.recordGrant(ctx, e, f)
		case core.EffectCleanup:
			err = a.cleanUp(ctx, e)
		case core.EffectRunEnd:
			err = a.runEnd(ctx, e)
		}
		if err != nil {
			return fmt.Errorf("%s of entry %d of run %s: %w", f.Kind, e.Rev, a.key, err)
		}
		a.progress()
	}
	return nil
}

// unclosed are the effects of an entry but for the calls that the run does not wait for any more: these are not made again, because their
// services may have forgotten that they answered, and the stream that it had them.
func unclosed(effects []core.Effect, waits func(call string) bool) []core.Effect {
	var open []core.Effect
	for _, f := range effects {
		if f.Kind != core.EffectCall || waits(f.Call) {
			open = append(open, f)
		}
	}
	return open
}

// waited reports whether a run has waited for a call since the first of some entries. A retry takes up calls that were closed when the run
// ended, with attempts of their own.
func waited(since []*core.Entry) func(call string) bool {
	return func(call string) bool {
		return !slices.ContainsFunc(since, func(e *core.Entry) bool { return !e.Head.Waits(call) })
	}
}

// purgeable is how long a run has been done before its calls may be gone from the stream, which forgets them when nobody needs them any
// more. It is much shorter than that takes, and longer than any step.
const purgeable = time.Minute

// errStoodStill says that a worker knows how its run was, not how it is: others may have ended it since, and its calls may be gone. The
// message comes again, and whoever has it then reads the run anew.
var errStoodStill = errors.New("the worker stood still before it could carry out what it had written or read")

// unpurged are the effects of an entry but for the voids of calls that were removed from the stream: whoever had them was told, or never heard
// of them. A call that is not there and cannot have been removed was lost by the broker, maybe after its service had got it.
func (a *activation) unpurged(ctx context.Context, e *core.Entry, effects []core.Effect) ([]core.Effect, error) {
	if !a.endedSince(e, a.Env.Now()-purgeable.Milliseconds()) {
		return effects, nil
	}
	var left []core.Effect
	for _, f := range effects {
		there := f.Kind != core.EffectVoid
		for _, at := range f.Addresses(&e.Head) {
			if there {
				break
			}
			var err error
			if there, err = a.Publisher.Published(ctx, a.Subjects.Call(at)); err != nil {
				return nil, fmt.Errorf("look for a call of run %s: %w", a.key, err)
			}
		}
		if !there {
			purged, err := a.Publisher.Purged(ctx)
			if err != nil {
				return nil, fmt.Errorf("look whether calls of run %s were removed: %w", a.key, err)
			}
			there = !a.endedSince(e, purged)
		}
		if there {
			left = append(left, f)
		}
	}
	return left, nil
}

// endedSince reports whether the run has ended since it made an entry, and by a time in Unix milliseconds. It may have been taken up again.
func (a *activation) endedSince(e *core.Entry, by int64) bool {
	ended := func(later *core.Entry) bool {
		return later.Rev >= e.Rev && later.Head.Status == core.StatusDone && later.At <= by
	}
	return a.head.Status == core.StatusDone && a.since <= by || slices.ContainsFunc(a.entries, ended)
}

// publish creates events. Other bytes on a subject mean that a history was rolled back or forged: that is reported and left
// alone, because the event that is there may have been acted upon.
func (a *activation) publish(ctx context.Context, put put, messages ...outbox.Message) error {
	for _, m := range messages {
		switch err := put(ctx, m.Subject, m.Event); {
		case err == nil:
		case errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}):
			a.Logger.ErrorContext(ctx, "another event is already on the subject", "run", a.head.Run, "subject", m.Subject, "error", err)
		default:
			return err
		}
	}
	return nil
}

func (a *activation) publishCall(ctx context.Context, put put, e *core.Entry, f core.Effect) error {
	opened, err := a.opened(ctx, e, f)
	if err != nil {
		return err
	}
	calls, err := outbox.Calls(a.Subjects, e, f, opened)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return a.publish(ctx, put, calls...)
}

// publishAnswer answers an agent that the run has called, and that has asked it something.
func (a *activation) publishAnswer(ctx context.Context, put put, e *core.Entry, f core.Effect) error {
	answer, err := outbox.Answer(a.Subjects, e, f)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return a.publish(ctx, put, answer)
}

// opened is the entry that has the data of the call of an effect of e: e itself, or the one that f names. Those after it are read too: their
// hashes prove that it is of this journal, and not of one that the store has lost. A call's id proves that of its arguments, but not of those
// that a person has edited, nor of what people are asked.
func (a *activation) opened(ctx context.Context, e *core.Entry, f core.Effect) (*core.Entry, error) {
	if f.Opened == 0 || f.Opened == e.Rev {
		return e, nil
	}
	if uint64(len(a.entries)) >= f.Opened {
		return a.entries[f.Opened-1], nil
	}
	at := slices.IndexFunc(a.tail, func(e core.Entry) bool { return e.Rev == f.Opened })
	if at >= 0 {
		return &a.tail[at], nil
	}
	tail, err := a.durableFrom(ctx, f.Opened)
	if err != nil {
		return nil, err
	}
	a.tail = tail
	return &a.tail[0], nil
}

func (a *activation) publishTerminal(ctx context.Context, put put, e *core.Entry) error {
	var conversation []sdk.Message
	if a.agent.History && e.Terminal != nil && e.Terminal.Type == a.agent.Core.OutputType {
		var err error
		if conversation, err = a.conversation(ctx, e.Rev); err != nil {
			return err
		}
	}
	terminal, omitted, err := outbox.Terminal(a.Subjects, a.agent.Core, e, conversation)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if omitted != nil {
		a.Logger.WarnContext(ctx, "the conversation is left out of the terminal event", "run", a.head.Run, "error", omitted)
	}
	return a.publish(ctx, put, terminal)
}

// conversation is the history of the run up to that entry.
func (a *activation) conversation(ctx context.Context, rev uint64) ([]sdk.Message, error) {
	entries, err := a.durable(ctx)
	if err != nil {
		return nil, err
	}
	state, err := fold(core.State{}, entries[:min(rev, uint64(len(entries)))])
	return state.Messages(), err
}

// publishRefusal answers an init event that did not start a run. A double of it was answered before.
func (a *activation) publishRefusal(ctx context.Context, problem *sdk.Error) error {
	refusal, err := outbox.Refusal(a.Subjects, a.agent.Core, a.msg.Address, a.msg.Event, problem)
	if err != nil {
		return err
	}
	return a.publish(ctx, a.Publisher.Restore, refusal)
}
