package runner

import (
	"context"
	"encoding/json"
	"errors"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// corrupt turns an unreadable journal into a dead letter, so that the worker goes on. A run that this activation drives
// ends with an error: its last entry is all that this needs, and nobody else could go on either. Any other is left as it
// is.
func (a *activation) corrupt(ctx context.Context, err error) (Verdict, error) {
	if !errors.Is(err, ErrCorrupt) {
		return Verdict{}, err
	}
	var failed error
	switch h := &a.head; {
	case a.state != nil: // it was read before; whoever gets the message next finds out from the beginning
		return Verdict{Settlement: Leave}, nil
	case h.Status == core.StatusRunning && h.Driver.Owner == a.owner:
		failed = a.endUnread(ctx)
	case h.Status == core.StatusDone:
		failed = a.repeatEnd(ctx)
	}
	if failed != nil {
		return Verdict{}, failed
	}
	return reject(sdk.Errorf(sdk.CodeCorrupt, "the run's journal cannot be read").WithCause(err)), nil
}

// unreadable is how a run ends that cannot go on because its journal, or something that is stored beside it, cannot be read.
var unreadable = core.Ending{Reason: core.ReasonError, Code: sdk.CodeCorrupt, Message: "the run's journal cannot be read"}

// endUnread ends the run from its head. It comes to nothing where the store appends nothing to what it has.
func (a *activation) endUnread(ctx context.Context) error {
	ended := core.Ended{Ending: unreadable}
	if end, asked := core.Next(a.agent.Core, &a.head, a.Env.Now()).(core.End); asked {
		ended = core.Ended{Ending: end.Ending}
	}
	change, err := core.Step(a.agent.Core, a.head, a.in(ended))
	if err != nil {
		return err
	}
	entry, at, err := a.appendEntry(ctx, a.at, change)
	if errors.Is(err, ErrCorrupt) {
		return nil // nothing can be appended to it
	}
	if err != nil {
		return err
	}
	a.head, a.at = entry.Head, at
	a.announce(entry)
	return a.carryOut(ctx, entry, entry.Effects)
}

// repeatEnd publishes the terminal event of a run that is done: whoever ended it without its journal may have died in
// between. It comes to nothing where not even the end can be read.
func (a *activation) repeatEnd(ctx context.Context) error {
	last, err := a.Store.Head(ctx, a.key)
	var entry *core.Entry
	if err == nil {
		entry, _, err = a.decode(ctx, a.key, last)
	}
	if err == nil {
		err = a.carryOutAgain(ctx, entry, []core.Effect{{Kind: core.EffectTerminal}})
	}
	if errors.Is(err, ErrCorrupt) {
		err = nil
	}
	return err
}

// poison is why an entry ended a run that keeps killing its workers, or of which something cannot be read; nil for all others. The message that
// it was made for is dead-lettered, so that an operator sees it.
func poison(e *core.Entry) *sdk.Error {
	if e.Terminal == nil || e.Head.Reason != core.ReasonError {
		return nil
	}
	var p wire.Problem
	if err := json.Unmarshal(e.Terminal.Data, &p); err == nil && (p.Code == sdk.CodePoison || p.Code == sdk.CodeCorrupt) {
		return sdk.Errorf(p.Code, "%s", p.ErrorMessage)
	}
	return nil
}

// poisoned is the poison among the entries that the message caused.
func (a *activation) poisoned(entries []*core.Entry) *sdk.Error {
	for _, e := range entries {
		if p := poison(e); p != nil && e.Cause.Is(a.msg.Cause) {
			return p
		}
	}
	return nil
}
