package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	"agentd/internal/core"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A control message may be handled before the init event of its run, which comes on another stream, and a void before its
// call. Such a message waits until it is waitForRun old before it is settled without a run, and a run hears it only when it
// is at most mostAhead older than the run. What is between the two is for a delivery of the message that found no run,
// stands still, and acks it later: then no other delivery may have made it cover the run. It is more than clocks differ, and
// than a first entry takes to be written; see outwaited for one that a store takes longer for, or forgets.
const (
	waitForRun = 2 * time.Minute
	mostAhead  = time.Minute
)

// The pauses between looks for the run double from the first to the last.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 15 * time.Second
)

// ahead reports whether the message is a control message or a void that came before what it is for: the run has not begun, or
// one that began, or was retried, so much later that the message may have been settled before.
func (a *activation) ahead() bool {
	kind := a.msg.Address.Kind
	switch {
	case kind != wire.KindCtl && kind != wire.KindVoid, a.covered():
		return false
	case a.head.Status == "":
		return true
	case a.msg.takesUp():
		return a.beforeEnd()
	}
	began := a.began()
	if a.head.Retry == nil || a.head.Status == core.StatusDone {
		return a.msg.Received+mostAhead.Milliseconds() < began
	}
	// Another delivery may have found that the generation before was done, and settled the message, while this one stood still.
	return a.msg.Received < began || a.msg.Delivered > 1 && a.msg.Received <= began+mostAhead.Milliseconds()
}

// outwaited reports whether another delivery of a control message may have found no journal of the run for waitForRun, though the run began
// about when the message came, and have refused it.
func (a *activation) outwaited() bool {
	return a.msg.Address.Kind == wire.KindCtl && a.head.Retry == nil &&
		a.Env.Now() >= a.msg.Received+waitForRun.Milliseconds() && a.msg.Received <= a.began()+mostAhead.Milliseconds()
}

// began is when the run began, or was taken up again after it had ended, in Unix milliseconds.
func (a *activation) began() int64 { return a.head.Deadline - a.agent.Core.RunDeadline }

// withoutRun settles a message that came before what it is for.
func (a *activation) withoutRun(ctx context.Context) (Verdict, error) {
	takesUp := a.msg.takesUp()
	missing := a.head.Status == "" || takesUp && a.head.Status != core.StatusDone
	switch {
	case missing && a.Env.Now() < a.msg.Received+waitForRun.Milliseconds():
		return a.later(), nil
	case a.msg.Address.Kind == wire.KindVoid:
		return Verdict{}, nil // see voided
	case takesUp && a.head.Status != "":
		code := sdk.CodeRetryRefused
		if a.msg.Address.Verb == wire.ControlUndo {
			code = sdk.CodeUndoRefused
		}
		if a.takenUpSince() {
			return a.refuse(ctx, sdk.Errorf(code, "the run was taken up again after the %s came; send it again if it still holds", a.msg.Address.Verb))
		}
		return a.refuse(ctx, sdk.Errorf(code, "the run had not ended when the %s came, nor soon afterwards", a.msg.Address.Verb))
	case a.head.Retry == nil:
		return a.refuse(ctx, a.orphan())
	}
	heard, err := a.heard(ctx)
	if err != nil || heard != nil {
		return settled(heard), err
	}
	if a.Env.Now() < a.msg.Received+mostAhead.Milliseconds() {
		return a.later(), nil // another delivery may be about to have the run hear it
	}
	return a.refuse(ctx, sdk.Errorf(sdk.CodeUnknownRun, "the run was taken up after the message came; send it again if it still holds"))
}

// heard settles the message if the run has heard it; nil is that it has not.
func (a *activation) heard(ctx context.Context) (*Verdict, error) {
	if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {
		return nil, fmt.Errorf("confirm run %s: %w", a.key, err)
	}
	entries, err := a.durable(ctx)
	if err != nil {
		v, err := a.corrupt(ctx, err)
		return &v, err
	}
	if !slices.ContainsFunc(entries, func(e *core.Entry) bool { return e.Cause.Is(a.msg.Cause) }) {
		return nil, nil
	}
	v, err := a.repeat(ctx)
	return &v, err
}

// unmatched settles an answer to a call that the run has not made. A decision is kept for a time, where workers are told to: who decides
// may know of the request before the run does, which is about to make it, or makes it again after a failover.
func (a *activation) unmatched(ctx context.Context) (Verdict, error) {
	if core.Decides(a.msg.Address) && a.Env.Now() < a.msg.Received+a.EarlyDecisions.Milliseconds() {
		return a.later(), nil
	}
	return a.refuse(ctx, a.orphan())
}

// later gives back a message that came before what it is for.
func (a *activation) later() Verdict {
	pause := firstLook << min(a.msg.Delivered-1, 16)
	return Verdict{Settlement: Retry, After: min(pause, lastLook)}
}

// A control message whose verb this version does not know waits for a worker of a later one, while workers are upgraded. The pauses let
// that worker have it soon, and cost those that do not know it little.
var verbPauses = retry.Pauses{First: 5 * time.Second, Longest: 5 * time.Minute}

// waitForVerb is how old such a message is before it is settled.
const waitForVerb = 24 * time.Hour

// unknownVerb settles a control message whose verb this version does not know.
func (a *activation) unknownVerb(ctx context.Context) (Verdict, error) {
	verb := a.msg.Address.Verb
	if a.Env.Now() < a.msg.Received+waitForVerb.Milliseconds() {
		a.Logger.WarnContext(ctx, "control message is left to a worker of a later version", "verb", verb, "run", a.key.String())
		return Verdict{Settlement: Retry, After: verbPauses.Nth(a.msg.Delivered)}, nil
	}
	return a.refuse(ctx, sdk.Errorf(sdk.CodeInvalidEvent, "no worker knew the verb %q for %d hours; upgrade the workers and redrive the message, or drop it",
		verb, int(waitForVerb.Hours())))
}

// orphan is what is told of a message that no run waits for.
func (a *activation) orphan() *sdk.Error {
	problem := sdk.Errorf(sdk.CodeUnknownRun, "no run waits for this message")
	if a.head.Status == "" {
		problem.Message += ": its run has no journal. If the run had begun, the journal is lost; agentd reconcile ends such runs"
	}
	return problem
}
