package runner

import (
	"context"
	"slices"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// ofRequest reports whether a failure of a model is about what it was asked, which would fail again, and another request might not.
func ofRequest(e *sdk.Error) bool {
	return e.Code == sdk.CodeModel && !e.Retryable || e.Code == sdk.CodeTooLarge
}

// passes reports whether the run is to wait after a failure of its model.
func (a *activation) passes(e *sdk.Error) bool {
	switch {
	case ofRequest(e):
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
	a.probes = a.waitedFor(a.agent.ModelKey) && (asked || !unparked)
	if asked {
		return nil
	}
	if a.Outages.Ask(ctx, a.agent.ModelKey, a.probes) {
		return nil
	}
	parked := core.Parked{Why: core.ParkModel, Key: a.agent.ModelKey, Model: a.agent.ModelName}
	if before := a.state.Parked; a.waitedFor(parked.Key) {
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

// waitedFor reports whether the run was parked for what key names, and has not got on since.
func (a *activation) waitedFor(key string) bool {
	return a.state.Parked != nil && a.state.Parked.Key == key
}

// pausedLook is after how long a run looks by itself whether its agent is still paused: somebody may have resumed it and died.
const pausedLook = time.Hour

// next is what the run needs. While its agent is paused, nothing is begun but its end.
func (a *activation) next(ctx context.Context) core.Action {
	action := core.Next(a.agent.Core, a.spent(), a.Env.Now())
	switch action.(type) {
	case core.Rest, core.End:
		return action
	}
	if a.agentPaused = a.Outages.Paused(ctx, a.state.Agent); a.agentPaused == 0 {
		return action
	}
	return core.Finishing(&a.state.Head)
}

// yield lets the run wait until it, or its agent, is resumed.
func (a *activation) yield() core.Parked {
	if a.agentPaused == 0 {
		return core.Parked{Why: core.ParkPaused}
	}
	return core.Parked{Why: core.ParkPaused, Key: wire.KeyAgentPaused, After: min(a.agentPaused, pausedLook).Milliseconds()}
}

// markParked has a parked run found when what it waits for is there, and one that does not wait for that any more left alone.
func (a *activation) markParked(ctx context.Context, h *core.Head, f core.Effect) error {
	key := f.Key
	if key == "" && h.Parked != nil {
		key = h.Parked.Key
	}
	switch {
	case key == "":
		return nil
	case h.Parked == nil || h.Parked.Key != key:
		return a.Outages.Unmark(ctx, key, h.Agent, a.key)
	}
	left := time.Duration(h.Deadline-a.Env.Now()) * time.Millisecond
	return a.Outages.Park(ctx, key, h.Agent, a.key, left)
}
