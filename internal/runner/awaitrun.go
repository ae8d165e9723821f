package runner

import (
	"context"
	"time"

	"agentd/sdk/wire"

	"agentd/sdk"
)

// A control message may be handled before the init event of its run, which comes on another stream, and a void before its
// call. Such a message waits until it is waitForRun old before it is settled without a run, and a run hears it only when it
// is at most mostAhead older than the run. What is between the two is for a delivery of the message that found no run,
// stands still, and acks it later: then no other delivery may have made it cover the run. It is more than clocks differ, and
// than a first entry takes to be written.
const (
	waitForRun = 2 * time.Minute
	mostAhead  = time.Minute
)

// The pauses between looks for the run double from the first to the last.
const (
	firstLook = 250 * time.Millisecond
	lastLook  = 15 * time.Second
)

// ahead reports whether the message is a control message or a void that came before its run: there is none yet, or one that
// began so much later that the message may have been settled before.
func (a *activation) ahead() bool {
	if kind := a.msg.Address.Kind; kind != wire.KindCtl && kind != wire.KindVoid {
		return false
	}
	if a.head.Status == "" {
		return true
	}
	began := a.head.Deadline - a.agent.Core.RunDeadline
	return a.msg.Received+mostAhead.Milliseconds() < began
}

// withoutRun settles a message that came before its run.
func (a *activation) withoutRun(ctx context.Context) (Verdict, error) {
	switch {
	case a.head.Status == "" && a.Env.Now() < a.msg.Received+waitForRun.Milliseconds():
		pause := firstLook << min(a.msg.Delivered-1, 16)
		return Verdict{Settlement: Retry, After: min(pause, lastLook)}, nil
	case a.msg.Address.Kind == wire.KindVoid:
		return Verdict{}, nil // see voided
	}
	return a.refuse(ctx, orphan())
}

func orphan() *sdk.Error { return sdk.Errorf(sdk.CodeUnknownRun, "no run waits for this message") }
