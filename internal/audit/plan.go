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
		for _, n := range s.After {
			if done := before.Step(n); was.Call != s.Call && (done == nil || done.Status != core.StepDone) {
				c.violate("I19", r.key, "entry %d calls step %d before step %d is done", e.Rev, s.Number, n)
			}
		}
	}
	for i := range e.Results {
		c.madeAgain(r, e, &e.Results[i])
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
	if e.Kind == core.KindPlanned {
		return
	}
	same := func(a, b core.PlanStep) bool {
		return a.Number == b.Number && a.Text == b.Text && a.Tool == b.Tool && slices.Equal(a.After, b.After)
	}
	if !slices.EqualFunc(before.Steps, now.Steps, same) {
		c.violate("I19", r.key, "entry %d, which is %s, changes the plan", e.Rev, e.Kind)
	}
}

// madeAgain checks that a call which has its result in the entry is not one that a step had made when it was opened, unless it has the
// result of that one.
func (c *Checker) madeAgain(r *run, e *core.Entry, result *core.Result) {
	k := r.calls[result.Call]
	if k == nil || k.opened == nil || k.opened.Rev < 2 || len(e.Head.Undo) > 0 {
		return
	}
	switch result.Kind {
	case core.ResultAnswer, core.ResultInline, core.ResultTimeout:
	default:
		return
	}
	opening := r.before(k.opened.Rev)
	if opening == nil || opening.Head.Plan == nil {
		return
	}
	p := opening.Head.Plan
	sum := sha256.Sum256([]byte(k.tool + "\x00" + string(k.args)))
	same := hex.EncodeToString(sum[:12])
	for _, s := range p.Steps {
		if s.Same == same && s.Status == core.StepDone && (s.Plan < p.Made || p.Phase == core.PhaseLoop) {
			c.violate("I19", r.key, "entry %d: call %s is made, which step %d had made as %s", e.Rev, k.id, s.Number, s.Call)
		}
	}
}

// before is the entry before that revision; nil is not known.
func (r *run) before(rev uint64) *core.Entry {
	for _, e := range r.entries {
		if e.Rev == rev-1 {
			return e
		}
	}
	return nil
}
