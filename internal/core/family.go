package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// An agent that another calls may ask it something and wait for the answer. The question is a call of the agent that is asked, on the subject
// of its contract, and meant for the run that has called. That run goes on with the round of the call: its model is shown the question as a
// message, answers it by a tool, and the answer is published where that of a call is expected.

// MaxQuestions bounds what an agent may ask during one call of it.
const MaxQuestions = 8

// Question is what an agent that the run has called asks it.
type Question struct {
	// Call is the call that the agent answers, Run the agent's run, and At the call with which it asks.
	Call string           `json:"call"`
	Run  string           `json:"run"`
	At   wire.CallAddress `json:"at"`
	// Note is the id of the message that tells the model.
	Note     string `json:"note"`
	Answered bool   `json:"answered,omitempty"`
}

// Name is what the model knows the question by: the places of both calls.
func (q *Question) Name() string { return wire.CallPlace(q.Call) + "." + wire.CallPlace(q.At.Call) }

// Caller is the run that has called the agent of a run, and the call. ok is false for a run that no call has started.
func Caller(run string) (caller, call string, ok bool) {
	i := strings.LastIndexByte(run, '/')
	if i < 0 {
		return "", "", false
	}
	_, ok = wire.ParseCallRef(run[i+1:])
	return run[:i], run[i+1:], ok
}

// IsQuestion reports whether an event, delivered at that address, asks the run that has called its sender's.
func IsQuestion(address wire.Address, ev wire.Event) bool {
	return address.Kind == wire.KindOut && wire.SameURI(ev.DataSchema, wire.CallerQuestionSchema)
}

// addressee is the event type of a call of a tool: that of its contract, or of whoever has called the agent.
func (h *Head) addressee(tool *Tool) string {
	if tool.AsksCaller {
		return h.Init.Caller
	}
	return tool.Type
}

// callerType is what a call of a tool says of its sender, where that may be asked: the type of its contract.
func (s *Spec) callerType(tool *Tool) string {
	if !s.Answers || tool.AsksCaller || tool.Kind != CallService {
		return ""
	}
	return s.Type
}

// asked lets a question of an agent that the run has called into the run. A refusal is told to the agent.
func (t *transition) asked(note Note, q Question) error {
	h := &t.Head
	refused := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeMessageRefused, format, args...) }
	known, of := false, 0
	for i := range h.Questions {
		known = known || h.Questions[i].Note == note.ID
		if h.Questions[i].Call == q.Call {
			of++
		}
	}
	c := h.Call(q.Call)
	switch {
	case known:
		return ErrStale
	case h.Status == StatusDone || h.Cancel != nil:
		return refused("the caller's run has ended")
	case c == nil || c.Closed() || c.Kind != CallService:
		return refused("the caller does not wait for this agent any more")
	case !t.spec.Answers || len(h.Undo) > 0:
		return refused("the caller answers no questions; go on with what you know")
	case h.stopping() && h.Stop != restText:
		return refused("the caller is about to end")
	case t.spec.exhausted(h), h.tokensKept():
		return refused("the caller has no model calls left, or no tokens; go on with what you know")
	case of >= MaxQuestions:
		return refused("the caller was asked %d questions during this call; go on with what you know", of)
	case len(h.Notes) >= MaxNotes || len(h.Calls) > MaxCarried:
		return refused("the caller has too much to read or to wait for; go on with what you know")
	}
	q.Note = note.ID
	note.Text = fmt.Sprintf("The agent that you called with %s (call %s), and that is still at work, asks you:\n\n%s\n\nIt waits for your answer: "+
		"call %s with the question %q.", c.Tool, wire.CallPlace(c.ID), note.Text, sdk.ToolAnswerChild, q.Name())
	h.Questions = append(slices.Clip(h.Questions), q)
	t.takeNotes([]Note{note})
	if h.Stop == restText {
		t.stopOn("", "")
	}
	return t.settle()
}

// hasQuestion reports whether the model is to be told of a question.
func (h *Head) hasQuestion() bool {
	return slices.ContainsFunc(h.Questions, func(q Question) bool { return slices.Contains(h.Notes, q.Note) })
}

// answers has the answer published that a result of ToolAnswerChild holds, or says in the result why there is nothing to answer.
func (t *transition) answers(c *Call, r *Result) {
	if c.Tool != sdk.ToolAnswerChild || r.Kind != ResultInline || r.Error {
		return
	}
	var given struct {
		Question string `json:"question"`
	}
	_ = json.Unmarshal(r.Data, &given) // its tool has checked it
	questions := t.Head.Questions
	i := slices.IndexFunc(questions, func(q Question) bool { return q.Name() == given.Question && !q.Answered })
	if i < 0 {
		*r = failure(c.ID, ResultInline, sdk.Errorf(sdk.CodeConflict, "no question %q waits for an answer", given.Question))
		return
	}
	questions = slices.Clone(questions)
	questions[i].Answered = true
	t.Head.Questions = questions
	t.Effects = append(t.Effects, Effect{Kind: EffectAnswer, Call: c.ID, Type: t.spec.Type, Question: &questions[i]})
}

// forgetQuestions drops those of an agent that nobody waits for any more.
func (t *transition) forgetQuestions(c *Call) {
	t.Head.Questions = slices.DeleteFunc(slices.Clone(t.Head.Questions), func(q Question) bool { return q.Call == c.ID })
	if len(t.Head.Questions) == 0 {
		t.Head.Questions = nil
	}
}

// Unusable are the tools that the run has no use for now: they are not shown to its model.
func (h *Head) Unusable(spec *Spec) []string {
	var names []string
	for i := range spec.Tools {
		tool := &spec.Tools[i]
		asksNobody := tool.AsksCaller && h.Init.Caller == ""
		answersNobody := tool.Name == sdk.ToolAnswerChild && !slices.ContainsFunc(h.Questions, func(q Question) bool { return !q.Answered })
		if asksNobody || answersNobody {
			names = append(names, tool.Name)
		}
	}
	return names
}

// hasAnswered reports whether a round that is closed did nothing but answer agents that the run waits for, and there is nothing to tell the
// model.
func (t *transition) hasAnswered(round []Call) bool {
	h := &t.Head
	other := func(c Call) bool { return c.Tool != sdk.ToolAnswerChild || c.Status != CallSucceeded }
	return !h.stopping() && len(h.Notes) == 0 && h.openAny() && !slices.ContainsFunc(round, other)
}
