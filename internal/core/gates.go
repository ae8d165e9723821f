package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// AnswerGate is a service that is asked whether an output is the run's answer. Its answer is {"accepted": boolean, "feedback"?: text}.
type AnswerGate struct {
	Name string
	// Most is how often it may send an output back. Then the output is accepted where it is Optional, and else the run ends.
	Most     int
	Optional bool
	// Feedback is what the model is told of an output that is not accepted; empty is what was found.
	Feedback string
}

// Objection is that of the gate to an output which is not accepted because of what was found.
func (g *AnswerGate) Objection(found string) Objection {
	why := strings.TrimRight(cmp.Or(g.Feedback, found), ". ")
	return Objection{
		Judge: g.Name, Found: found, Nudge: "Your answer is not accepted: " + why + ". Give it again, corrected.", Most: g.Most, Required: !g.Optional,
	}
}

// gates are the services that are asked about outputs.
func (s *Spec) gates() []*ContextProvider {
	var gates []*ContextProvider
	for i := range s.Contexts {
		if s.Contexts[i].Gate != nil {
			gates = append(gates, &s.Contexts[i])
		}
	}
	return gates
}

// gate is the one that a call asks; nil is none.
func (s *Spec) gate(c *Call) *AnswerGate {
	if c.Kind != CallContext {
		return nil
	}
	if p := s.context(c.Section()); p != nil {
		return p.Gate
	}
	return nil
}

// AnswerQuestion is what services are asked about an output (docs/wire.md), as canonical JSON; nil where none is asked.
func AnswerQuestion(spec *Spec, s *State, output json.RawMessage) (json.RawMessage, error) {
	if len(spec.gates()) == 0 {
		return nil, nil
	}
	data, err := EncodeJSON(map[string]json.RawMessage{"input": s.Input, "output": output})
	if err == nil {
		data, err = wire.Canonicalize(data)
	}
	if err != nil {
		return nil, fmt.Errorf("question about the output of run %s: %w", s.Run, err)
	}
	return data, nil
}

// askGates asks whether the output of a text is the run's answer, all services at once. The text is kept: the answer is built from it.
func (t *transition) askGates(ev *Replied) error {
	t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, ev.Reply.Text))
	return t.inquire(t.spec.gates(), ev.Question)
}

// accepts notes in a call of a gate what its answer has against the output.
func (t *transition) accepts(c *Call, r *Result) {
	if t.spec.gate(c) == nil || r.Error {
		return
	}
	var answer struct {
		Accepted bool   `json:"accepted"`
		Feedback string `json:"feedback"`
	}
	if err := json.Unmarshal(r.Data, &answer); err != nil || !answer.Accepted {
		c.Fault = clip.Text(cmp.Or(answer.Feedback, "it was not accepted"), maxFound)
	}
}

// against is what the gates of a round have against the output, in their order.
func (t *transition) against(calls []Call) []Objection {
	var all []Objection
	for i := range calls {
		g := t.spec.gate(&calls[i])
		if g == nil || calls[i].Fault == "" {
			continue
		}
		all = append(all, g.Objection(calls[i].Fault))
	}
	return all
}

// unaccepted is how the run ends because of a gate that has sent back its outputs as often as it may; nil is not at all.
func (t *transition) unaccepted() *Ending {
	for _, o := range t.against(t.Head.roundCalls()) {
		if times := t.Head.Answers.refused(o.Judge); times >= o.Most && o.Required {
			t.Judged = o.judged(times)
			return o.ending(times)
		}
	}
	return nil
}

// weigh takes the text for the answer that the gates of the round let pass, or sends it back. The word of one is missing only where a message
// came first, which the model is asked about before anything is an answer, or where the run ends for want of it.
func (t *transition) weigh(calls []Call) {
	if t.spec.gate(&calls[0]) == nil {
		return
	}
	for _, o := range t.against(calls) {
		if t.sendsBack(o, "") || o.Required {
			return
		}
	}
	t.stopOn(stopText, answerCode)
}
