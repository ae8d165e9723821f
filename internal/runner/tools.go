package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/internal/excerpt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// runTools runs inline tools concurrently. Those that may run at most once are first committed as begun.
func (a *activation) runTools(ctx context.Context, act core.RunTools) (core.Event, error) {
	if len(act.Begin) > 0 {
		ev, err := a.ruleAgain(ctx, act.Begin)
		if err != nil || len(ev.Results) > 0 {
			return core.Returned{Results: ev.Results, Hooks: ev.Hooks}, err // those that may be made begin next
		}
		return core.Began{Calls: ev.Passed, Hooks: ev.Hooks}, nil
	}
	if len(act.Judge) > 0 {
		return a.ruleAgain(ctx, act.Judge)
	}
	results := make([]core.Result, len(act.Run))
	asks := make([]*core.Ask, len(act.Run))
	var s hookEffects
	var runs []func()
	for i, c := range act.Run {
		closed, err := a.ruleAgainOn(ctx, &s, c)
		switch {
		case err != nil:
			return nil, err
		case closed != nil:
			results[i] = *closed
		default:
			runs = append(runs, func() { results[i], asks[i] = a.runTool(ctx, c) })
		}
	}
	a.Env.Parallel(runs...)
	if err := ctx.Err(); err != nil && !woken(ctx) {
		return nil, err
	}
	for i := range results {
		if err := a.storeLarge(ctx, &results[i]); err != nil {
			return nil, err
		}
	}
	returned := core.Returned{Hooks: s.states}
	for i := range results {
		if asks[i] != nil {
			returned.Asks = append(returned.Asks, *asks[i])
		} else {
			returned.Results = append(returned.Results, results[i])
		}
	}
	for _, c := range act.Lost {
		returned.Results = append(returned.Results, core.OutcomeUnknown(c))
	}
	return returned, nil
}

// ruleAgain rules once more on calls, before anything else: Passed are those that may be made.
func (a *activation) ruleAgain(ctx context.Context, calls []core.Call) (core.Returned, error) {
	var s hookEffects
	var ev core.Returned
	for _, c := range calls {
		closed, err := a.ruleAgainOn(ctx, &s, c)
		switch {
		case err != nil:
			return core.Returned{}, err
		case closed != nil:
			ev.Results = append(ev.Results, *closed)
		default:
			ev.Passed = append(ev.Passed, c.ID)
		}
	}
	ev.Hooks = s.states
	return ev, nil
}

// runTool runs one inline tool, to its result or a question. Whatever goes wrong is its result: a tool never ends the run.
func (a *activation) runTool(ctx context.Context, c core.Call) (result core.Result, ask *core.Ask) {
	fail := func(e *sdk.Error) core.Result {
		a.Logger.WarnContext(ctx, "tool failed", "run", a.state.Run, "call", c.ID, "tool", c.Tool, "error", e)
		return core.Result{Call: c.ID, Kind: core.ResultInline, Data: core.FailureData(e), Error: true}
	}
	defer func() {
		if p := recover(); p != nil {
			result, ask = fail(sdk.Errorf(sdk.CodeTool, "%s crashed", c.Tool).WithCause(fmt.Errorf("panic: %v", p))), nil
		}
	}()
	a.live(wire.LiveToolStarted, a.state.Turns, func() any { return map[string]string{"call": c.ID, "tool": c.Tool} })
	tool, ok := a.inline(c.Tool)
	args, known := a.state.Arguments(c.ID)
	if away := a.agent.Core.Away(c.Tool); away != nil {
		return fail(away), nil
	}
	if !ok || !known {
		return fail(sdk.Errorf(sdk.CodeUnknownTool, "%s is not available", c.Tool)), nil
	}
	timeout := tool.Timeout
	if timeout == 0 {
		timeout = sdk.DefaultToolTimeout
	}
	ctx, over := a.working.tool(ctx, a.key, c.ID)
	defer over()
	ctx, cancel := a.withTimeout(ctx, timeout)
	defer cancel()
	data, err := a.Observer.Tool(sdk.WithProgress(ctx, a.toolProgress(c)), tool, sdk.ToolCall{
		ID: c.ID, Run: a.state.Run, Tool: c.Tool, Args: args, TraceParent: a.state.Init.TraceParent,
		Answer: a.state.Answer(&c),
	})
	if suspended, ok := errors.AsType[*sdk.ToolSuspended](err); ok {
		if ask, err = askOf(c, suspended); err == nil {
			return core.Result{}, ask
		}
	}
	if err != nil && woken(ctx) {
		if c.Status == core.CallRunning {
			return core.OutcomeUnknown(c), nil
		}
		return fail(sdk.Errorf(sdk.CodeCancelled, "%s was interrupted, because the run is to end", c.Tool)), nil
	}
	if err != nil {
		e, ok := errors.AsType[*sdk.Error](err)
		if !ok {
			e = sdk.Errorf(sdk.CodeTool, "%s", err)
		}
		return fail(e), nil
	}
	if data, err = wire.Canonicalize(data); err != nil {
		return fail(sdk.Errorf(sdk.CodeTool, "%s returned no valid JSON", c.Tool).WithCause(err)), nil
	}
	if len(data) > core.MaxResult {
		return fail(sdk.Errorf(sdk.CodeTooLarge, "%s returned %d bytes, more than %d", c.Tool, len(data), core.MaxResult)), nil
	}
	result = core.Result{Call: c.ID, Kind: core.ResultInline}
	result.Data, result.Media = excerpt.SplitMedia(data)
	return result, nil
}

// askOf is a tool's question as the journal keeps it.
func askOf(c core.Call, s *sdk.ToolSuspended) (*core.Ask, error) {
	data, err := core.EncodeJSON(s.Question)
	if err == nil {
		data, err = wire.Canonicalize(data)
	}
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeTool, "%s asked a question that cannot be sent", c.Tool).WithCause(err)
	}
	ask := &core.Ask{Call: c.ID, Data: data}
	if len(s.State) > 0 {
		if ask.State, err = wire.Canonicalize(s.State); err != nil {
			return nil, sdk.Errorf(sdk.CodeTool, "%s wants to keep what is not JSON", c.Tool).WithCause(err)
		}
	}
	if size := len(ask.Data) + len(ask.State); size > core.MaxArguments {
		return nil, sdk.Errorf(sdk.CodeTooLarge, "%s asked a question of %d bytes, more than %d", c.Tool, size, core.MaxArguments)
	}
	return ask, nil
}

// toolProgress passes a tool's progress on to whoever watches. A call that reports it is alive, so it counts as progress of
// the activation too; the call's own timeout still bounds it.
func (a *activation) toolProgress(c core.Call) func(sdk.Progress) {
	live := wire.Live{
		Run: a.state.Run, Agent: a.state.Agent, Revision: a.state.Rev, Ephemeral: true, Type: "call.progress",
	}
	return func(p sdk.Progress) {
		a.progress()
		if !a.watched(live.Agent) {
			return
		}
		data, err := json.Marshal(map[string]any{"call": c.ID, "tool": c.Tool, "progress": p})
		if err != nil {
			return // a number that JSON has none for; it is lost like any live event
		}
		event := live
		event.Time, event.Data = a.Env.Now(), data
		a.Publisher.Live(event)
	}
}
