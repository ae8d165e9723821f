package runner

import (
	"context"
	"encoding/json"
	"errors"

	"agentd/internal/core"
	"agentd/sdk"
)

// corrupt turns an unreadable journal into a dead letter: the run is left as it is, and the worker goes on. Only an end
// that was asked for or is due still comes: it needs no history.
func (a *activation) corrupt(ctx context.Context, err error) (Verdict, error) {
	if !errors.Is(err, ErrCorrupt) {
		return Verdict{}, err
	}
	if failed := a.endUnread(ctx); failed != nil {
		if errors.Is(failed, ErrConflict) {
			return Verdict{Settlement: Leave}, nil // others appended; the message comes again
		}
		return Verdict{}, failed
	}
	return reject(sdk.Errorf(sdk.CodeCorrupt, "the run's journal cannot be read").WithCause(err)), nil
}

// endUnread ends the run from its head alone, if this activation drives it and it is to end. Of a run that is done it
// publishes the terminal event again: whoever ended it like this may have died in between.
func (a *activation) endUnread(ctx context.Context) error {
	if a.state == nil && a.head.Status == core.StatusRunning && a.head.Driver.Owner == a.owner {
		end, due := core.Next(a.agent.Core, &a.head, a.Env.Now()).(core.End)
		if !due {
			return nil
		}
		change, err := core.Step(a.agent.Core, a.head, a.in(core.Ended(end)))
		if err != nil {
			return err
		}
		entry, at, err := a.appendEntry(ctx, a.at, change, a.Env.Now())
		if err != nil {
			return err
		}
		a.head, a.at = entry.Head, at
		a.announce(&entry)
		return a.carryOut(ctx, &entry, entry.Effects)
	}
	if a.head.Status != core.StatusDone {
		return nil
	}
	last, err := a.Store.Head(ctx, a.key)
	if err != nil {
		return err
	}
	entry, err := a.decode(ctx, a.key, last)
	if errors.Is(err, ErrCorrupt) {
		return nil // not even its end can be read
	}
	if err != nil {
		return err
	}
	err = a.carryOut(ctx, &entry, []core.Effect{{Kind: core.EffectTerminal}})
	if errors.Is(err, ErrCorrupt) {
		return nil // its terminal event holds the history
	}
	return err
}

// poison is why an entry ended a run that keeps killing its workers; nil for all others. The message that it was made for
// is dead-lettered, so that an operator sees it.
func poison(e *core.Entry) *sdk.Error {
	if e.Terminal == nil || e.Head.Reason != core.ReasonError {
		return nil
	}
	var p sdk.Problem
	if err := json.Unmarshal(e.Terminal.Data, &p); err != nil || p.Code != sdk.CodePoison {
		return nil
	}
	return sdk.Errorf(sdk.CodePoison, "%s", p.ErrorMessage)
}

// poisoned is the poison among the entries that the message caused.
func (a *activation) poisoned(entries []core.Entry) *sdk.Error {
	for i := range entries {
		if p := poison(&entries[i]); p != nil && entries[i].Cause.Is(a.msg.Cause) {
			return p
		}
	}
	return nil
}
