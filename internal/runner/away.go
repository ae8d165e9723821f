package runner

import (
	"context"
	"slices"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// passes reports whether the run is to wait after a failure of its model. What is about the request itself would fail again.
func (a *activation) passes(e *sdk.Error) bool {
	switch {
	case e.Code == sdk.CodeModel && !e.Retryable, e.Code == sdk.CodeTooLarge:
		return false
	case slices.Contains(sdk.ParkCodes, e.Code):
		return slices.Contains(a.agent.Parks, e.Code)
	}
	// What nobody has classified is not the fault of the request either.
	return slices.Contains(a.agent.Parks, sdk.CodeUnavailable)
}

// mayAsk returns nil when the model may be asked. If not, it is known to be away, and the run is parked without another try.
func (a *activation) mayAsk(ctx context.Context) *core.Parked {
	unparked := a.msg.Address.Verb == wire.ControlUnpark
	asked := unparked && a.unparks() == "" // by an operator
	a.probes = a.state.Parked != nil && (asked || !unparked)
	if asked {
		return nil
	}
	if a.Outages.Ask(ctx, a.agent.ModelKey, a.probes) {
		return nil
	}
	parked := core.Parked{Why: core.ParkModel, Key: a.agent.ModelKey, Model: a.agent.ModelName}
	if before := a.state.Parked; before != nil {
		parked.Why, parked.Code, parked.Message = before.Why, before.Code, before.Message
	}
	return &parked
}

// park lets the run wait for its model, because of its last failure.
func (a *activation) park(ctx context.Context, e *sdk.Error) core.Parked {
	a.Logger.WarnContext(ctx, "run waits for its model", "run", a.state.Run, "agent", a.state.Agent, "model", a.agent.ModelName, "error", e)
	a.Outages.Away(a.agent.ModelKey, e.RetryAfter)
	why := core.ParkModel
	if e.Code == sdk.CodeRateLimited {
		why = core.ParkRate
	}
	return core.Parked{
		Why: why, Key: a.agent.ModelKey, Model: a.agent.ModelName, Code: e.Code, Message: e.Message,
		After: e.RetryAfter.Milliseconds(),
	}
}

// leaveWord has a parked run found when what it waits for is there.
func (a *activation) leaveWord(ctx context.Context, e *core.Entry) error {
	p := e.Head.Parked
	if p == nil {
		return nil
	}
	left := time.Duration(e.Head.Deadline-a.Env.Now()) * time.Millisecond
	return a.Outages.Park(ctx, p.Key, e.Head.Agent, a.key, left)
}
