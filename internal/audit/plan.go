package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
)

// steps checks what an entry does to the plan of a run (I19).
func (c *Checker) steps(r *run, last, e *core.Entry) {
	if e.Head.Purged != nil || e.Head.Plan == nil {
		return
	}
	before := last.Head.Plan
	if before == nil {
		before = &core.Plan{}
	}
	c.onePlan(r, before, e)
	for i := range e.Head.Plan.Steps {
		s := &e.Head.Plan.Steps[i]
		was := before.Step(s.Number)
		if was == nil {
			was = &core.PlanStep{Status: core.StepPlanned}
		}
		switch {
		case was.Call != s.Call && was.Call != "", was.Call != s.Call && r.calls[s.Call] == nil:
			c.violate("I19", r.key, "entry %d calls %s for step %d, whose call was %q", e.Rev, s.Call, s.Number, was.Call)
		case was.Status == core.StepDone && s.Status != core.StepDone:
			c.violate("I19", r.key, "entry %d: step %d was done, and is %s", e.Rev, s.Number, s.Status)
		}
		begun := was.Call != s.Call || was.Elements == nil && len(s.Elements) > 0
		c.elements(r, was, s, e)
		if begun && before.Phase != core.PhaseSteps {
			c.violate("I19", r.key, "entry %d calls step %d of a plan that is in phase %s", e.Rev, s.Number, before.Phase)
		}
		for _, n := range s.After {
			if done := before.Step(n); begun && (done == nil || done.Status != core.StepDone) {
				c.violate("I19", r.key, "entry %d calls step %d before step %d is done", e.Rev, s.Number, n)
			}
		}
	}
	for i := range e.Results {
		c.madeAgain(r, e, &e.Results[i])
	}
}

// elements checks what an entry does to the elements of a step's list: each is called once, and no more at once than a round has.
func (c *Checker) elements(r *run, was, s *core.PlanStep, e *core.Entry) {
	if was.Elements != nil && len(was.Elements) != len(s.Elements) {
		c.violate("I19", r.key, "entry %d: the list of step %d had %d elements, and has %d", e.Rev, s.Number, len(was.Elements), len(s.Elements))
		return
	}
	open := 0
	for i, now := range s.Elements {
		before := core.Element{Status: core.StepPlanned}
		if was.Elements != nil {
			before = was.Elements[i]
		}
		switch {
		case before.Call != now.Call && (before.Call != "" || r.calls[now.Call] == nil):
			c.violate("I19", r.key, "entry %d calls %s for element %d of step %d, whose call was %q", e.Rev, now.Call, i, s.Number, before.Call)
		case before.Status == core.StepDone && now.Status != core.StepDone:
			c.violate("I19", r.key, "entry %d: element %d of step %d was done, and is %s", e.Rev, i, s.Number, now.Status)
		case s.Status == core.StepDone && now.Status != core.StepDone && now.Status != core.StepFailed:
			c.violate("I19", r.key, "entry %d: step %d is done, and its element %d is %s", e.Rev, s.Number, i, now.Status)
		}
		if now.Status == core.StepCalling {
			open++
		}
	}
	if open > core.MaxRound {
		c.violate("I19", r.key, "entry %d: step %d has %d elements called at once", e.Rev, s.Number, open)
	}
}

// onePlan checks that a plan is carried out as it was made, whoever drives the run: only a plan brings steps, none of them changes, and it is
// given up for another one when nothing of it is left to do, or when a person has spoken.
func (c *Checker) onePlan(r *run, before *core.Plan, e *core.Entry) {
	now := e.Head.Plan
	left := func(s core.PlanStep) bool { return s.Status == core.StepPlanned }
	spoken := slices.ContainsFunc(e.Messages, func(m sdk.Message) bool { return m.Role == sdk.RoleUser })
	if before.Phase == core.PhaseSteps && now.Phase == core.PhasePlanning && slices.ContainsFunc(now.Steps, left) && !spoken {
		c.violate("I19", r.key, "entry %d gives up a plan that has steps left", e.Rev)
	}
	approved := before.Phase == core.PhaseReview && now.Phase == core.PhaseSteps // perhaps edited
	if e.Kind == core.KindPlanned || approved {
		return
	}
	same := func(a, b core.PlanStep) bool {
		return a.Number == b.Number && a.Text == b.Text && a.Tool == b.Tool && slices.Equal(a.After, b.After) && a.When == b.When && a.Each == b.Each
	}
	if !slices.EqualFunc(before.Steps, now.Steps, same) {
		c.violate("I19", r.key, "entry %d, which is %s, changes the plan", e.Rev, e.Kind)
	}
}

// madeAgain checks that a call which has its result in the entry is not one that a step had made when it was opened, unless it has the
// result of that one, or an approver has made it the same.
func (c *Checker) madeAgain(r *run, e *core.Entry, result *core.Result) {
	k := r.calls[result.Call]
	if k == nil || k.opened == nil || k.edited || k.opened.Rev < 2 || len(e.Head.Undo) > 0 {
		return
	}
	switch result.Kind {
	case core.ResultAnswer, core.ResultInline, core.ResultTimeout:
	default:
		return
	}
	opening := r.before(k.opened)
	if opening == nil || opening.Head.Plan == nil {
		return
	}
	p := opening.Head.Plan
	sum := sha256.Sum256([]byte(k.tool + "\x00" + string(k.args)))
	same := hex.EncodeToString(sum[:12])
	for _, s := range p.Steps {
		done := append([]core.Element{{Status: s.Status, Call: s.Call, Same: s.Same}}, s.Elements...)
		for _, d := range done {
			if d.Same == same && d.Status == core.StepDone && (s.Plan < p.Made || p.Phase == core.PhaseLoop) {
				c.violate("I19", r.key, "entry %d: call %s is made, which step %d had made as %s", e.Rev, k.id, s.Number, d.Call)
			}
		}
	}
}

// before is what came before a part of an entry; nil is not known.
func (r *run) before(part *core.Entry) *core.Entry {
	if i := slices.Index(r.entries, part); i > 0 {
		return r.entries[i-1]
	}
	return nil
}
