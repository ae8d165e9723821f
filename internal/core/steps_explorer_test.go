package core_test

import (
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
)

// plan is what a planner makes: a plan, nothing, or an answer.
func (x *explorer) plan() core.Event {
	switch x.pick(6, "plan") {
	case 0:
		return core.Planned{Fault: "no step could be read", Asked: true, Reply: sdk.ModelReply{Units: 1}}
	case 1:
		return x.rig.replied(`{"response":"at once"}`)
	}
	ev := core.Planned{By: core.PlannedByModel, Asked: x.pick(4, "template") > 0, Reply: sdk.ModelReply{Units: 1}}
	p := x.rig.state.Plan
	first := p.NextNumber()
	for i := range 1 + x.pick(core.MaxPlanSteps, "steps") {
		s := core.PlanStep{Text: "do it"}
		for _, done := range p.Kept(core.MaxPlanSteps) {
			if done.Status == core.StepDone && x.pick(4, "after before") == 0 {
				s.After = append(s.After, done.Number)
			}
		}
		for j := range i {
			if x.pick(3, "after") == 0 {
				s.After = append(s.After, first+j)
			}
		}
		ev.Steps = append(ev.Steps, s)
	}
	return ev
}

// route is what a router chooses for steps that are due.
func (x *explorer) route(due []int) core.Event {
	if len(due) == 0 {
		x.Fatalf("nothing is to be routed in %+v", x.rig.state.Plan)
	}
	ev := core.Routed{Reply: sdk.ModelReply{Units: 1}}
	for _, n := range due {
		if x.pick(6, "route") == 0 {
			ev.Routes = append(ev.Routes, core.Route{Step: n, Fault: "no call was chosen"})
			continue
		}
		ev.Routes = append(ev.Routes, core.Route{Step: n})
		ev.Reply.Calls = append(ev.Reply.Calls, x.request())
	}
	if len(ev.Reply.Calls) > 0 {
		ev.Plan = x.rig.plan(ev.Reply)
		x.policy.rule(ev.Plan)
	}
	return ev
}

// steps checks what an entry does to the plan: no step is called that refers to one which is not done, none is called twice, and one that
// is done stays so.
func (o *oracle) steps(before *core.Head, e *core.Entry) {
	p := e.Head.Plan
	if p == nil {
		return
	}
	if data := encode(o, p); len(data) > 64<<10 {
		o.Fatalf("entry %d: the plan has %d bytes", e.Rev, len(data))
	}
	for _, s := range p.Steps {
		was := core.PlanStep{Number: s.Number, Status: core.StepPlanned}
		if before.Plan != nil && before.Plan.Step(s.Number) != nil {
			was = *before.Plan.Step(s.Number)
		}
		if was.Status != s.Status && !slices.ContainsFunc(e.Steps, func(c core.PlanStep) bool { return c.Number == s.Number && c.Status == s.Status }) {
			o.Fatalf("entry %d does not tell of step %+v", e.Rev, s)
		}
		if s.Call != was.Call && (was.Call != "" || was.Status != core.StepPlanned) {
			o.Fatalf("entry %d: step %+v is called again, as %s", e.Rev, was, s.Call)
		}
		for _, n := range s.After {
			if s.Call != was.Call && (before.Plan.Step(n) == nil || before.Plan.Step(n).Status != core.StepDone) {
				o.Fatalf("entry %d: step %d is called before step %d is done", e.Rev, s.Number, n)
			}
		}
		if was.Status == core.StepDone && s.Status != core.StepDone {
			o.Fatalf("entry %d: step %d was done, and is %s", e.Rev, s.Number, s.Status)
		}
		if res, has := o.results[s.Call]; s.Status == core.StepDone && (!has || res.Error) {
			o.Fatalf("entry %d: step %d is done with the result %+v", e.Rev, s.Number, res)
		}
	}
}
