package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// MadeCall is a call of a run that was made and returned.
type MadeCall struct {
	ID, Tool string
	// Args are what it was made with: the model's arguments, or an approver's.
	Args   json.RawMessage
	Result Result
}

// UndoStack collects the calls of a run that can be undone, from its journal.
type UndoStack struct {
	undoes func(tool string) bool
	// calls are all those of tools with an undo, in their order.
	calls   []MadeCall
	results map[string]Result
	// closed are those that were undone, or may have been.
	closed map[string]bool
}

// NewUndoStack is the stack of a run of which no entry was added yet. tools are those that name the call which undoes theirs.
func NewUndoStack[T any](tools map[string]T) *UndoStack {
	undoes := func(tool string) bool { _, has := tools[tool]; return has }
	return &UndoStack{undoes: undoes, results: map[string]Result{}, closed: map[string]bool{}}
}

// Add adds the next entry. A call that undoes another is not one that can be undone.
func (s *UndoStack) Add(e *Entry) {
	for _, part := range e.Parts() {
		s.add(part)
	}
}

func (s *UndoStack) add(e *Entry) {
	for _, u := range e.Head.Undo {
		s.closed[u.Call] = s.closed[u.Call] || u.Outcome == wire.UndoDone || u.Outcome == wire.UndoUnknown
	}
	for _, r := range e.Results {
		s.results[r.Call] = r
	}
	for _, edit := range e.Edits {
		if i := slices.IndexFunc(s.calls, func(c MadeCall) bool { return c.ID == edit.Call }); i >= 0 {
			s.calls[i].Args = edit.Args
		}
	}
	if len(e.Head.Undo) > 0 {
		return
	}
	for _, m := range e.Messages {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolUse && s.undoes(c.Tool) {
				s.calls = append(s.calls, MadeCall{ID: c.CallID, Tool: c.Tool, Args: c.Args})
			}
		}
	}
}

// Calls are those that were made, returned without an error, and that nothing has undone: the newest first.
func (s *UndoStack) Calls() []MadeCall {
	var calls []MadeCall
	for i := len(s.calls) - 1; i >= 0; i-- {
		c := s.calls[i]
		r, returned := s.results[c.ID]
		if !returned || r.Error || r.Kind != ResultAnswer && r.Kind != ResultInline || s.closed[c.ID] {
			continue
		}
		c.Result = r
		calls = append(calls, c)
	}
	return calls
}

// CheckUndo says why no call of a run can be undone as the run is now, or nil.
func (h *Head) CheckUndo() *sdk.Error {
	refused := func(format string, args ...any) *sdk.Error { return sdk.Errorf(sdk.CodeUndoRefused, format, args...) }
	switch {
	case h.Status != StatusDone:
		return refused("the run has not ended: it is %s", h.Status)
	case h.Purged != nil, h.ReasonCode == string(sdk.CodeStateLost):
		return refused("the run's history is gone, and what it did with it")
	case h.Retry != nil && len(h.Retry.Before)+1 >= MaxRetries:
		return refused("the run was taken up %d times", MaxRetries)
	}
	return nil
}

// undoAsked begins a generation of the run that makes nothing but the calls which undo others.
func (t *transition) undoAsked(ev UndoAsked) error {
	h := &t.Head
	token := wire.InitToken(ev.Source, ev.ID)
	if h.RetriedBy(token) {
		return ErrStale
	}
	if refusal := h.CheckUndo(); refusal != nil {
		return refusal
	}
	switch n := len(ev.Calls); {
	case n == 0:
		return sdk.Errorf(sdk.CodeUndoRefused, "the run has no call that can be undone")
	case n > wire.MaxUndo:
		return sdk.Errorf(sdk.CodeUndoRefused, "%d calls are to be undone; at most %d are at once", n, wire.MaxUndo)
	}
	t.regenerate(ev.Operation, token)
	if h.Left != nil {
		h.Hooks = h.Left.Hooks
	}
	h.Left, h.Undo = nil, ev.Calls
	return t.settle()
}

// nextUndo is the place in Undo of the call that is undone next, or is being undone; -1 is none.
func (h *Head) nextUndo() int {
	return slices.IndexFunc(h.Undo, func(u wire.UndoCall) bool { return u.Outcome == "" })
}

// undoes is what the driver of a run has to do next that undoes calls.
func (h *Head) undoes() Action {
	if i := h.nextUndo(); i >= 0 {
		return Undo{h.Undo[i]}
	}
	return End{Ending{Reason: ReasonUndone, Code: sdk.CodeUndone}}
}

// undoing opens a round with the one call that undoes the next call.
func (t *transition) undoing(ev Undoing) error {
	h := &t.Head
	i := h.nextUndo()
	if i < 0 || len(h.Calls) > 0 || ev.Admission == nil || ev.Admission.turn != h.turn() || len(ev.Admission.Calls) != 1 {
		return violation(h, "a call that undoes nothing")
	}
	h.Undo[i].By = ev.Admission.Calls[0].ID
	t.keep(ev.Hooks)
	return t.openRound(nil, ev.Admission, ev.Notes)
}

// undid notes what became of a call that undoes another, with its result. The call is still as it was before.
func (t *transition) undid(c *Call, r *Result) {
	i := slices.IndexFunc(t.Head.Undo, func(u wire.UndoCall) bool { return u.By == c.ID })
	if i < 0 {
		return
	}
	u := &t.Head.Undo[i]
	if u.Outcome = undoOutcome(c, r); u.Outcome != wire.UndoDone {
		u.Message = clip.Text(faultText(r), maxFault)
	}
}

func undoOutcome(c *Call, r *Result) wire.UndoOutcome {
	unknown := []sdk.Code{sdk.CodeOutcomeUnknown, sdk.CodeDeadline, sdk.CodeCancelled}
	switch {
	case !r.Error:
		return wire.UndoDone
	case r.Kind.made() && c.maybeMade() && slices.Contains(unknown, r.Code()):
		return wire.UndoUnknown
	}
	return wire.UndoFailed
}

// undone is how a run ends that was there to undo calls, for whatever reason: with what became of each.
func (t *transition) undone(e Ending, problem wire.Problem) (Ending, wire.Problem) {
	h := &t.Head
	t.closeOpen()
	var left []string
	for i := range h.Undo {
		u := &h.Undo[i]
		if u.Outcome == "" {
			u.Outcome, u.Message = wire.UndoFailed, "the run ended first"
		}
		if u.Outcome != wire.UndoDone {
			left = append(left, fmt.Sprintf("%s (%s): %s", u.Tool, wire.CallPlace(u.Call), u.Message))
		}
	}
	detail := "all"
	text := fmt.Sprintf("all calls that were to be undone are undone: %d", len(h.Undo))
	if len(left) > 0 {
		detail = "part"
		text = fmt.Sprintf("%d of %d calls were undone; see about %s", len(h.Undo)-len(left), len(h.Undo), strings.Join(left, "; "))
	}
	if e.Reason != ReasonUndone {
		detail, text = string(e.Code), e.Message+"; "+text
	}
	problem.ErrorMessage, problem.Undone = clip.Text(text, maxMessage), slices.Clone(h.Undo)
	e.Reason, e.Detail = ReasonUndone, detail
	return e, problem
}
