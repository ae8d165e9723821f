package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentd/internal/core"
	"agentd/sdk"
)

// drive does what the run needs until it waits or is done. The first entry of this activation, which made it the driver,
// is already committed after former.
func (a *activation) drive(ctx context.Context, former point, first *core.Entry) (Verdict, error) {
	if err := a.loadState(ctx, former, first); err != nil {
		return a.corrupt(err)
	}
	for {
		action := core.Next(a.agent.Core, &a.state.Head, a.Env.Now())
		if _, rest := action.(core.Rest); rest {
			a.Runner.cache.put(cached{run: a.key, at: a.at, state: *a.state})
			return Verdict{}, nil
		}
		if a.draining.Load() {
			return Verdict{Settlement: Retry}, nil
		}
		event, err := a.act(ctx, action)
		if err != nil {
			return Verdict{}, err
		}
		a.progress()
		err = a.commit(ctx, event)
		switch {
		case errors.Is(err, core.ErrFenced):
			return Verdict{Settlement: Leave}, nil
		case errors.Is(err, errCorrupt):
			return a.corrupt(err)
		case err != nil:
			return Verdict{}, err
		}
	}
}

// loadState rebuilds the run's state at a.at or later: from the cache and what came after, else from the whole journal.
func (a *activation) loadState(ctx context.Context, former point, first *core.Entry) error {
	c, ok := a.Runner.cache.take(a.key)
	if ok && c.at.Etag == former.Etag {
		return a.replay(c.state, []core.Entry{*first})
	}
	for {
		entries, end, err := a.readAfter(ctx, a.key, c.at)
		switch {
		case errors.Is(err, errCorrupt) && c.at.Rev > 0:
			c = cached{} // the journal was rolled back since; it is read from the beginning
			continue
		case err != nil:
			return err
		case end.Rev >= a.at.Rev:
			a.at = end // what others absorbed since is part of it
			return a.replay(c.state, entries)
		}
		// The read was stale: the entry that this activation wrote is not in it yet.
		if err := a.Env.Sleep(ctx, staleReadDelay); err != nil {
			return err
		}
	}
}

// staleReadDelay is how long to wait before a read is repeated that did not show what is known to be written.
const staleReadDelay = 10 * time.Millisecond

func (a *activation) replay(state core.State, entries []core.Entry) error {
	for i := range entries {
		var err error
		if state, err = core.Apply(state, &entries[i]); err != nil {
			return fmt.Errorf("%w: %w", errCorrupt, err)
		}
	}
	a.state = &state
	return nil
}

// commit applies an outcome to the run and makes it durable, on top of whatever was absorbed meanwhile. ErrFenced says
// that the run is somebody else's by now.
func (a *activation) commit(ctx context.Context, event core.Event) error {
	for {
		change, err := core.Step(a.agent.Core, a.state.Head, a.in(event))
		if err != nil {
			return err
		}
		entry, at, err := a.appendEntry(ctx, a.at, change, a.Env.Now())
		if errors.Is(err, ErrConflict) {
			if err := a.catchUp(ctx); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		a.at = at
		if *a.state, err = core.Apply(*a.state, &entry); err != nil {
			return err
		}
		a.announce(&entry)
		return a.carryOut(ctx, &entry, entry.Effects)
	}
}

// catchUp reads what others appended. An own entry that is gone shows as a journal that does not follow: then the run
// was rolled back, and this activation has lost it.
func (a *activation) catchUp(ctx context.Context) error {
	entries, end, err := a.readAfter(ctx, a.key, a.at)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return a.confirm(ctx)
	}
	for i := range entries {
		if *a.state, err = core.Apply(*a.state, &entries[i]); err != nil {
			return err
		}
	}
	a.at = end
	return nil
}

// confirm settles a conflict without newer entries: the batched read was stale, or the journal was rolled back under
// this activation.
func (a *activation) confirm(ctx context.Context) error {
	rec, err := a.Store.Head(ctx, a.key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read head of run %s: %w", a.key, err)
	}
	if rec.Rev <= a.at.Rev && rec.Etag != a.at.Etag {
		return core.ErrFenced
	}
	return a.Env.Sleep(ctx, staleReadDelay)
}

// act carries out one action and returns its outcome.
func (a *activation) act(ctx context.Context, action core.Action) (core.Event, error) {
	switch act := action.(type) {
	case core.CallModel:
		return a.callModel(ctx)
	case core.RunTools:
		return a.runTools(ctx, act)
	case core.BuildOutput:
		output, err := a.buildOutput(ctx, a.state.StopText())
		return core.Built{Output: output}, err
	case core.End:
		return core.Ended{Ending: act.Ending}, nil
	}
	return nil, fmt.Errorf("%w: no action %T", core.ErrIllegal, action)
}

// callModel asks the model once; the provider retries. A failure that retrying did not mend ends the run.
func (a *activation) callModel(ctx context.Context) (core.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, a.agent.ModelTimeout)
	defer cancel()
	a.stats.ModelCalls.Add(1)
	if a.state.Driver.Takeovers > 0 {
		a.stats.RepeatedModelCalls.Add(1)
	}
	reply, err := a.agent.Model.Generate(ctx, a.request(), a.delta)
	if err != nil {
		return a.modelFailed(ctx, err)
	}
	if len(reply.Calls) > 0 || a.agent.Core.Converse {
		return core.Replied{Reply: reply}, nil
	}
	output, err := a.buildOutput(ctx, reply.Text)
	return core.Replied{Reply: reply, Output: &output}, err
}

func (a *activation) modelFailed(ctx context.Context, err error) (core.Event, error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, err
	}
	e := sdk.AsError(err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e = sdk.Errorf(sdk.CodeUnavailable, "the model did not answer within %s", a.agent.ModelTimeout).WithCause(err)
	}
	a.Logger.Error("model call failed", "run", a.state.Run, "error", err)
	return core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: e.Code, Message: e.Message}}, nil
}

func (a *activation) request() sdk.ModelRequest {
	h := &a.state.Head
	return sdk.ModelRequest{
		Run: h.Run, Lifecycle: h.Lifecycle, Model: a.agent.ModelName, System: a.state.System,
		Messages: a.state.Messages(), Tools: a.agent.Definitions, Output: a.agent.OutputSchema,
		Interactions: sdk.Interactions{
			Current: h.Interactions, Max: a.agent.Core.MaxInteractions, Exhausted: h.Interactions+1 >= a.agent.Core.MaxInteractions,
		},
		Temperature: a.agent.Temperature, MaxTokens: a.agent.MaxTokens,
	}
}

// delta passes a fragment on to whoever watches, and counts as progress.
func (a *activation) delta(d sdk.Delta) {
	a.progress()
	data, err := json.Marshal(d)
	if err != nil {
		return // strings and bools always encode
	}
	a.Publisher.Live(sdk.Live{
		Run: a.state.Run, Agent: a.state.Agent, Revision: a.state.Rev, Ephemeral: true, Type: "model.delta",
		Time: a.Env.Now(), Data: data,
	})
}

func (a *activation) buildOutput(ctx context.Context, text string) (core.Output, error) {
	data, fault, err := a.agent.BuildOutput(ctx, sdk.OutputInput{Run: a.state.Run, Text: text, Input: a.state.Input})
	if err != nil {
		return core.Output{}, fmt.Errorf("build output of run %s: %w", a.state.Run, err)
	}
	return core.Output{Data: data, Fault: fault}, nil
}

// runTools runs inline tools concurrently. Those that may run at most once are first committed as begun.
func (a *activation) runTools(ctx context.Context, act core.RunTools) (core.Event, error) {
	if len(act.Begin) > 0 {
		ids := make([]string, len(act.Begin))
		for i, c := range act.Begin {
			ids[i] = c.ID
		}
		return core.Began{Calls: ids}, nil
	}
	results := make([]core.Result, len(act.Run), len(act.Run)+len(act.Lost))
	runs := make([]func(), len(act.Run))
	for i, c := range act.Run {
		runs[i] = func() { results[i] = a.runTool(ctx, c) }
	}
	a.Env.Parallel(runs...)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, c := range act.Lost {
		results = append(results, core.OutcomeUnknown(c))
	}
	return core.Returned{Results: results}, nil
}

// runTool runs one inline tool. Whatever goes wrong is its result: a tool never ends the run.
func (a *activation) runTool(ctx context.Context, c core.Call) (result core.Result) {
	fail := func(e *sdk.Error) core.Result {
		a.Logger.Warn("tool failed", "run", a.state.Run, "call", c.ID, "tool", c.Tool, "error", e)
		return core.Result{Call: c.ID, Kind: core.ResultInline, Data: core.FailureData(e), Error: true}
	}
	defer func() {
		if p := recover(); p != nil {
			result = fail(sdk.Errorf(sdk.CodeTool, "%s crashed", c.Tool).WithCause(fmt.Errorf("panic: %v", p)))
		}
	}()
	tool, ok := a.agent.Inline[c.Tool]
	args, known := a.state.Arguments(c.ID)
	if !ok || !known {
		return fail(sdk.Errorf(sdk.CodeUnknownTool, "%s is not available", c.Tool))
	}
	timeout := tool.Timeout
	if timeout == 0 {
		timeout = sdk.DefaultToolTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	data, err := tool.Run(ctx, sdk.ToolCall{
		ID: c.ID, Run: a.state.Run, Tool: c.Tool, Args: args, TraceParent: a.state.Init.TraceParent,
	})
	if err != nil {
		e, ok := errors.AsType[*sdk.Error](err)
		if !ok {
			e = sdk.Errorf(sdk.CodeTool, "%s", err)
		}
		return fail(e)
	}
	if data, err = sdk.Canonicalize(data); err != nil {
		return fail(sdk.Errorf(sdk.CodeTool, "%s returned no valid JSON", c.Tool).WithCause(err))
	}
	return core.Result{Call: c.ID, Kind: core.ResultInline, Data: data}
}
