package core_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// undoneBy are the tools with an undo, and those that undo their calls: with what the call was made with and returned.
func undoneBy(tools map[string]string) map[string]core.UndoTool {
	undo := map[string]core.UndoTool{}
	for tool, by := range tools {
		undo[tool] = core.UndoTool{Tool: by, Args: func(_ string, _, args, result json.RawMessage) (json.RawMessage, error) {
			return fmt.Appendf(nil, `{"of":%s,"was":%s}`, args, result), nil
		}}
	}
	return undo
}

// undoStack are the calls of the run that can be undone.
func undoStack(r *rig) []core.MadeCall {
	stack := core.NewUndoStack(r.spec.Undo)
	for i := range r.entries {
		stack.Add(&r.entries[i])
	}
	return stack.Calls()
}

// undoing plans the call that undoes another. Nobody has ruled on it.
func (r *rig) undoing(next core.Undo) core.Undoing {
	stack := undoStack(r)
	i := slices.IndexFunc(stack, func(c core.MadeCall) bool { return c.ID == next.Call.Call })
	by := r.spec.Undo[next.Call.Tool]
	args, err := by.Args(r.state.Run, r.state.Input, stack[i].Args, stack[i].Result.Data)
	if err != nil {
		panic(err) // see undoneBy
	}
	return core.Undoing{Admission: r.plan(sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: by.Tool, Arguments: string(args)}}})}
}

// undo has some calls of a run that has ended undone, if there are any.
func (x *explorer) undo() bool {
	r := x.rig
	ev := core.UndoAsked{Operation: core.Operation{ID: "undo" + string(rune('0'+x.retries)), Source: "operator", Who: "ann"}}
	for _, c := range undoStack(r) {
		if x.pick(4, "undoes") > 0 {
			ev.Calls = append(ev.Calls, wire.UndoCall{Call: c.ID, Tool: c.Tool})
		}
	}
	in := r.deliver(ev.ID, ev)
	if len(ev.Calls) == 0 {
		x.refuse(in, &sdk.Error{Code: sdk.CodeUndoRefused})
		return false
	}
	if x.retries == retriesAtMost || x.pick(3, "undo") > 0 {
		return false
	}
	x.accept(in)
	x.refuse(r.deliver("retry", retriedBy("retry")), &sdk.Error{Code: sdk.CodeRetryRefused})
	x.refuse(r.deliver("send", steered("too late")), &sdk.Error{Code: sdk.CodeMessageRefused})
	return true
}

// undoes checks that a generation which undoes calls does nothing else, and none of them twice: by what was sent, not by what it says.
func (o *oracle) undoes(e *core.Entry) {
	for _, u := range e.Head.Undo {
		before, known := o.undone[u.Call]
		if u.By != "" && known && before != u.By && o.mayHaveUndone(before) {
			o.Fatalf("entry %d: call %s is undone by %s, and was by %s, which came to %+v", e.Rev, u.Call, u.By, before, o.results[before])
		}
		if u.By != "" {
			o.undone[u.Call] = u.By
		}
	}
	if len(e.Head.Undo) == 0 {
		return
	}
	if e.Kind == core.KindReplied || e.Kind == core.KindInquired || e.Head.Round > 0 && len(e.Head.Calls) > 0 && calls(&e.Head) > 1 {
		o.Fatalf("entry %d: %s while calls are undone: %+v", e.Rev, e.Kind, e.Head.Calls)
	}
	if e.Terminal == nil {
		return
	}
	var told wire.Problem
	if err := json.Unmarshal(e.Terminal.Data, &told); err != nil || len(told.Undone) != len(e.Head.Undo) || e.Head.Reason != core.ReasonUndone {
		o.Fatalf("entry %d: calls are undone, and the end is %s", e.Rev, e.Terminal.Data)
	}
	for _, u := range told.Undone {
		r, made := o.results[u.By]
		if (u.Outcome == wire.UndoDone) != (made && !r.Error) || u.Outcome == "" {
			o.Fatalf("entry %d: of call %s is told %+v; what undid it came to %+v", e.Rev, u.Call, u, r)
		}
	}
}

// calls counts the calls of the round that are not for people.
func calls(h *core.Head) (n int) {
	for _, c := range h.Calls {
		if c.Kind == core.CallService || c.Kind == core.CallInline {
			n++
		}
	}
	return n
}

// mayHaveUndone reports whether a call may have taken effect that was to undo another. One that was given up before it was made has not.
func (o *oracle) mayHaveUndone(by string) bool {
	r := o.results[by]
	code := core.FailureCode(r.Data)
	return !r.Error || r.Kind == core.ResultTimeout || code == sdk.CodeOutcomeUnknown
}

// TestUndo_Refused lists what is not undone.
func TestUndo_Refused(t *testing.T) {
	t.Parallel()
	spec := newSpec(service("book", minute), service("cancel", minute))
	spec.Undo = undoneBy(map[string]string{"book": "cancel"})
	r := newRig(spec)
	asked := func(id string, calls ...wire.UndoCall) core.Input {
		return r.deliver(id, core.UndoAsked{Operation: core.Operation{ID: id, Source: "operator"}, Calls: calls})
	}
	refused := func(what, want string, in core.Input) {
		t.Helper()
		_, _, err := r.step(in)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeUndoRefused}) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	r.must(t, r.deliver("init-1", started("order 7", "hello")))
	refused("a run that works", "undo_refused: the run has not ended: it is running", asked("early", wire.UndoCall{Call: "c1-0-x"}))
	r.must(t, r.drive(r.replied(`{"response":"yes"}`)))
	refused("nothing", "undo_refused: the run has no call that can be undone", asked("none"))
	refused("too much", "undo_refused: 33 calls are to be undone; at most 32 are at once", asked("many", make([]wire.UndoCall, 33)...))
	if stack := undoStack(r); len(stack) > 0 {
		t.Errorf("%+v can be undone", stack)
	}
}
