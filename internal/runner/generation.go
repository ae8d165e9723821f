package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// takesUp reports whether the message takes up a run that has ended.
func (m *Message) takesUp() bool {
	return m.Address.Verb == wire.ControlRetry || m.Address.Verb == wire.ControlUndo
}

// untakable says why the message, which takes up a run that has ended, cannot take up this one; nil is that it can.
func (a *activation) untakable() *sdk.Error {
	if a.msg.Address.Verb == wire.ControlUndo {
		return a.head.CheckUndo()
	}
	return a.head.CheckRetry()
}

// takenUp reports whether the message has taken up the run.
func (a *activation) takenUp() bool {
	return a.head.RetriedBy(wire.InitToken(a.msg.Event.Source, a.msg.Event.ID))
}

// beforeEnd reports whether the message came before the end that it is for: the run has not ended, or so much later that another delivery
// of the message may have been refused, or the end that it was for is not the last one. One that has taken up the run is a duplicate.
func (a *activation) beforeEnd() bool {
	switch {
	case a.takenUp():
		return false
	case a.head.Status != core.StatusDone:
		return true
	}
	return a.untakable() == nil && (a.msg.Received+mostAhead.Milliseconds() < a.since || a.takenUpSince())
}

// takenUpSince reports whether something else took the run up after the message came: another delivery of it may have been refused at the
// end before, and is over.
func (a *activation) takenUpSince() bool { return a.head.Retry != nil && a.msg.Received < a.began() }

// operation is the message as an operator's.
func (a *activation) operation() core.Operation {
	return core.Operation{ID: a.msg.Event.ID, Source: a.msg.Event.Source, Who: a.msg.Address.Who}
}

// retried takes up a run that has ended, from where it ended.
func (a *activation) retried(ctx context.Context) (core.Event, *sdk.Error, error) {
	ev := core.Retried{Operation: a.operation()}
	problem, err := a.takeUp(ctx)
	if problem != nil || err != nil || a.entries == nil || !a.head.Unbegun() {
		return ev, problem, err
	}
	beginning, err := a.prepare(ctx, a.head.Run, a.entries[0].Input, &a.head.Init, a.head.Require)
	ev.Beginning = &beginning
	return ev, nil, err
}

// undoAsked takes up a run that has ended, to undo calls of it.
func (a *activation) undoAsked(ctx context.Context) (core.Event, *sdk.Error, error) {
	ev := core.UndoAsked{Operation: a.operation()}
	problem, err := a.takeUp(ctx)
	if problem != nil || err != nil || a.entries == nil {
		return ev, problem, err
	}
	ev.Calls, problem = a.undoable()
	return ev, problem, nil
}

// takeUp reads the journal of a run that has ended and is to go on. What its end was to publish is out before anything follows from the
// message. Without entries the run cannot be taken up: the core tells a duplicate from what it refuses.
func (a *activation) takeUp(ctx context.Context) (*sdk.Error, error) {
	a.entries = nil
	if a.takenUp() || a.untakable() != nil {
		return nil, nil //nolint:nilerr // see above
	}
	if problem := a.unnamed(); problem != nil {
		return problem, nil
	}
	if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {
		return nil, fmt.Errorf("confirm the end of run %s: %w", a.key, err)
	}
	entries, err := a.durable(ctx)
	if err == nil {
		a.entries = entries
		err = a.carryOutstanding(ctx, entries)
	}
	if errors.Is(err, ErrCorrupt) {
		return sdk.Errorf(sdk.CodeCorrupt, "the run's journal cannot be read").WithCause(err), nil
	}
	return nil, err
}

// undoStack are the calls of the run that can be undone, by a.entries.
func (a *activation) undoStack() []core.MadeCall {
	stack := core.NewUndoStack(a.agent.Core.Undo)
	for _, e := range a.entries {
		stack.Add(e)
	}
	return stack.Calls()
}

// Undoable are the calls that can be undone of the run with that journal, the newest first; none unless it has ended.
func (r *Runner) Undoable(ctx context.Context, entries []core.Entry) ([]wire.UndoCall, error) {
	h := &entries[len(entries)-1].Head
	if h.CheckUndo() != nil {
		return nil, nil //nolint:nilerr // it says why there are none
	}
	data, err := r.Store.Spec(ctx, h.Spec)
	if err != nil {
		return nil, fmt.Errorf("read the spec %s of run %s: %w", h.Spec, h.Run, err)
	}
	var spec struct {
		Undo map[string]sdk.Undo `json:"undo"`
	}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("decode the spec %s of run %s: %w", h.Spec, h.Run, err)
	}
	if len(spec.Undo) == 0 {
		return nil, nil
	}
	stack := core.NewUndoStack(spec.Undo)
	for i := range entries {
		stack.Add(&entries[i])
	}
	var calls []wire.UndoCall
	for _, c := range stack.Calls() {
		calls = append(calls, wire.UndoCall{Call: c.ID, Tool: c.Tool})
	}
	return calls, nil
}

// undoable are the calls that the message asks to undo, the newest first: without any named, as many as can be undone at once.
func (a *activation) undoable() ([]wire.UndoCall, *sdk.Error) {
	var data struct {
		Calls []string `json:"calls"`
	}
	if len(a.msg.Event.Data) > 0 {
		if err := json.Unmarshal(a.msg.Event.Data, &data); err != nil {
			return nil, sdk.Errorf(sdk.CodeContractViolation, `a request to undo calls has the data {"calls": [ID, …]}, or none for all of them`)
		}
	}
	wanted := map[string]bool{}
	for _, id := range data.Calls {
		wanted[id] = true
	}
	var calls []wire.UndoCall
	for _, c := range a.undoStack() {
		if !wanted[c.ID] && len(data.Calls) > 0 || len(data.Calls) == 0 && len(calls) == wire.MaxUndo {
			continue
		}
		delete(wanted, c.ID)
		calls = append(calls, wire.UndoCall{Call: c.ID, Tool: c.Tool})
	}
	for _, id := range data.Calls {
		if wanted[id] {
			return nil, sdk.Errorf(sdk.CodeUndoRefused, "%q is not a call of the run that can be undone; see agentd runs show", id)
		}
	}
	return calls, nil
}

// undo plans the call that undoes another. What keeps it from being made is its result.
func (a *activation) undo(ctx context.Context, u wire.UndoCall) (core.Event, error) {
	request, problem, err := a.undoRequest(ctx, u)
	if err != nil {
		return nil, err
	}
	reply := sdk.ModelReply{Calls: []sdk.ToolRequest{request}}
	admission := core.Admit(a.agent.Core, &a.state.Head, a.state.Input, reply, nil, a.Env.Now())
	if problem != nil {
		admission.Calls[0].Refusal = problem
	}
	var s hookEffects
	if err := a.rule(ctx, &s, admission); err != nil {
		return nil, err
	}
	if err := a.suspended(ctx, &s, admission); err != nil {
		return a.hookFailed(err)
	}
	return core.Undoing{Admission: admission, Hooks: s.states, Notes: s.notes}, nil
}

// undoRequest is the call that undoes another, or why there is none.
func (a *activation) undoRequest(ctx context.Context, u wire.UndoCall) (sdk.ToolRequest, *sdk.Error, error) {
	entries, err := a.durable(ctx)
	if err != nil {
		return sdk.ToolRequest{}, nil, err
	}
	a.entries = entries
	by := a.agent.Core.Undo[u.Tool]
	for _, c := range a.undoStack() {
		if c.ID != u.Call {
			continue
		}
		result, err := a.wholeData(ctx, &c.Result)
		if err != nil {
			return sdk.ToolRequest{}, nil, err
		}
		args, err := by.Args(a.state.Run, a.state.Input, c.Args, result)
		if err != nil {
			return sdk.ToolRequest{Name: by.Tool}, sdk.Errorf(sdk.CodeConfig, "the arguments of %s cannot be made: %s", by.Tool, err), nil
		}
		return sdk.ToolRequest{Name: by.Tool, Arguments: string(args)}, nil, nil
	}
	return sdk.ToolRequest{}, nil, fmt.Errorf("%w: run %s has no call %s to be undone", ErrCorrupt, a.key, u.Call)
}
