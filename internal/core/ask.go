package core

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// MaxAsks bounds the questions of one call: each is a call of the head until the round closes.
const MaxAsks = 8

// Ask is a question that an inline tool cannot go on without, and what the tool wants to be handed with the answer.
type Ask struct {
	// ID is the id of the question's event. Whoever runs tools leaves it empty: Step fills it in.
	ID string `json:"id"`
	// Call is the call that waits for the answer.
	Call string `json:"call"`
	// Data is the canonical data of the question's event (docs/wire.md), State is the tool's own.
	Data  json.RawMessage `json:"data"`
	State json.RawMessage `json:"state,omitempty"`
}

// askQuestions suspends the calls whose tools ask a person something. The answer, or that there is none, lets them run again.
func (t *transition) askQuestions(asks []Ask) error {
	for _, a := range asks {
		if t.Head.outrun(a.Call) {
			continue
		}
		i := t.Head.call(a.Call)
		if i < 0 || !t.Head.Calls[i].runnable() {
			return violation(&t.Head, "question of call %s", a.Call)
		}
		if err := t.question(i, a); err != nil {
			return err
		}
	}
	return nil
}

// question asks what the i-th call of the round needs to know.
func (t *transition) question(i int, a Ask) error {
	h := &t.Head
	c := &h.Calls[i]
	n := 0
	for j := range h.Calls {
		if h.Calls[j].Asker() == c.ID {
			n++
		}
	}
	if n == MaxAsks {
		t.close(c, failure(c.ID, ResultInline, sdk.Errorf(sdk.CodeTool, "%s asked more than %d questions", c.Tool, MaxAsks)))
		return nil
	}
	ref, _ := wire.ParseCallRef(c.ID) // Check has seen it
	opened := c.Opened
	hashed := fmt.Appendf(nil, "%s %d ", c.ID, n)
	a.ID = wire.CallID(h.Key(), h.Init.Token, ref.Step, ref.Index, sdk.TypeQuestion, append(hashed, a.Data...))
	c.Status, c.Asked, c.Begun = CallSuspended, a.ID, ""
	q := Call{
		ID: a.ID, Kind: CallQuestion, Tool: c.ID, Status: CallSuspended, Type: sdk.TypeQuestion,
		Domains: []string{sdk.HumanDomain}, Opened: opened, Sent: t.in.Rev,
	}
	if t.spec.TurnTimeout > 0 {
		q.Due = t.in.At + t.spec.TurnTimeout
	}
	h.Calls = append(h.Calls, q) // c is void from here on
	t.Asks = append(t.Asks, a)
	t.Effects = append(t.Effects, Effect{
		Kind: EffectCall, Call: a.ID, Type: q.Type, Domains: q.Domains, Schema: t.spec.QuestionSchema,
	})
	return nil
}

// settleQuestion closes a question and lets the call that asked run again. A refusal to answer is an answer.
func (t *transition) settleQuestion(q *Call, r Result) {
	t.close(q, r)
	if i := t.Head.call(q.Asker()); i >= 0 && t.Head.Calls[i].Status == CallSuspended {
		t.Head.Calls[i].Status = CallResuming
	}
}

// checkAsked checks that a call which asked waits for its question, and a question belongs to a call that waits.
func (h *Head) checkAsked(c *Call) error {
	if c.Kind == CallQuestion && !c.Closed() {
		if i := h.call(c.Asker()); i < 0 || h.Calls[i].Asked != c.ID || h.Calls[i].Status != CallSuspended {
			return violation(h, "question %s is of no call that waits", c.ID)
		}
	}
	if c.Asked == "" || c.Status != CallSuspended {
		return nil
	}
	if i := h.call(c.Asked); i < 0 || h.Calls[i].Asker() != c.ID || h.Calls[i].Closed() {
		return violation(h, "call %s waits for no open question", c.ID)
	}
	return nil
}

// Answer is what a tool that asked is handed, when it runs again.
func (s *State) Answer(c *Call) *sdk.ToolAnswer {
	i := slices.IndexFunc(s.Asks, func(a Ask) bool { return a.ID == c.Asked })
	if c.Asked == "" || i < 0 {
		return nil
	}
	answer := &sdk.ToolAnswer{State: s.Asks[i].State}
	if r := s.result(c.Asked); r != nil {
		answer.Data, answer.Failed = r.Data, r.Error
	}
	return answer
}
