package runner

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// beforeEnd reports whether the retry, which is the message, came before the end that it is for: the run has not ended, or so much later
// that another delivery of the message may have been refused. One that has retried the run is a duplicate.
func (a *activation) beforeEnd() bool {
	switch {
	case a.head.RetriedBy(wire.InitToken(a.msg.Event.Source, a.msg.Event.ID)):
		return false
	case a.head.Status != core.StatusDone:
		return true
	}
	return a.head.CheckRetry() == nil && a.msg.Received+mostAhead.Milliseconds() < a.since
}

// retried takes up a run that has ended. What its end was to publish is out before anything follows from the retry.
func (a *activation) retried(ctx context.Context) (core.Event, *sdk.Error, error) {
	ev := core.Retried{ID: a.msg.Event.ID, Source: a.msg.Event.Source, Who: a.msg.Address.Who}
	if refusal := a.head.CheckRetry(); refusal != nil {
		return ev, nil, nil //nolint:nilerr // the core tells a duplicate from what it refuses
	}
	if problem := a.unnamed(); problem != nil {
		return nil, problem, nil
	}
	if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {
		return nil, nil, fmt.Errorf("confirm the end of run %s: %w", a.key, err)
	}
	entries, err := a.durable(ctx)
	if err == nil {
		a.entries = entries
		err = a.carryOutstanding(ctx, entries)
	}
	if errors.Is(err, ErrCorrupt) {
		return nil, sdk.Errorf(sdk.CodeCorrupt, "the run's journal cannot be read").WithCause(err), nil
	}
	if err != nil || !a.head.Unbegun() {
		return ev, nil, err
	}
	beginning, err := a.prepare(ctx, a.head.Run, entries[0].Input, &a.head.Init, a.head.Require)
	ev.Beginning = &beginning
	return ev, nil, err
}
