package core_test

import (
	"fmt"
	"slices"
	"strings"

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
		if len(s.After) > 0 && x.pick(4, "each") == 0 {
			s.Each = fmt.Sprintf("step%d", s.After[0])
		}
		if len(s.After) > 0 && x.pick(4, "when") == 0 {
			s.When = fmt.Sprintf("size(step%d) > 0", s.After[0])
		}
		ev.Steps = append(ev.Steps, s)
	}
	return ev
}

// route is what a router chooses for steps that are due, as many as a round has.
func (x *explorer) route(due []int) core.Event {
	if len(due) == 0 {
		x.Fatalf("nothing is to be routed in %+v", x.rig.state.Plan)
	}
	ev := core.Routed{Reply: sdk.ModelReply{Units: 1}}
	p, taken := x.rig.state.Plan, 0
	for _, n := range due {
		s := p.Step(n)
		r := core.Route{Step: n}
		switch {
		case s.When != "" && s.Elements == nil && x.pick(3, "skip") == 0:
			r.Skipped = "its condition does not hold"
		case x.pick(6, "route") == 0:
			r.Fault = "no call was chosen"
		case s.Each != "":
			if r.Of = len(s.Elements); s.Elements == nil {
				most := [...]int{3, 3, 3, 5, 5, 80}[x.pick(6, "most elements")]
				r.Of = x.pick(min(p.RoomForElements(s)-taken, most)+1, "elements")
				taken += r.Of
			}
			x.routeElements(&ev, s, &r)
		default:
			ev.Reply.Calls = append(ev.Reply.Calls, x.request())
		}
		if ev.Routes = append(ev.Routes, r); len(ev.Reply.Calls) == core.MaxRound {
			break
		}
	}
	if len(ev.Reply.Calls) > 0 {
		ev.Admission = x.rig.plan(ev.Reply)
		x.policy.rule(ev.Admission)
	}
	return ev
}

// routeElements chooses calls for the elements of a step's list that are due, while the round has room.
func (x *explorer) routeElements(ev *core.Routed, s *core.PlanStep, r *core.Route) {
	for place := range r.Of {
		if s.Elements != nil && s.Elements[place].Status != core.StepPlanned || len(ev.Reply.Calls) == core.MaxRound {
			continue
		}
		e := core.ElementRoute{Place: place}
		if x.pick(8, "element") == 0 {
			e.Fault = strings.Repeat("no call was chosen ", 10)
		} else {
			ev.Reply.Calls = append(ev.Reply.Calls, x.request())
		}
		r.Elements = append(r.Elements, e)
	}
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
		o.elements(&was, &s, e)
		if res, has := o.results[s.Call]; s.Status == core.StepDone && s.Each == "" && (!has || res.Error) {
			o.Fatalf("entry %d: step %d is done with the result %+v", e.Rev, s.Number, res)
		}
	}
}

// elements checks what an entry does to the elements of a step's list: each is called once, at most as many at once as a round has, and the
// step is done when all have ended, and one of them is done.
func (o *oracle) elements(was, now *core.PlanStep, e *core.Entry) {
	calling, open, done := 0, 0, 0
	for i, el := range now.Elements {
		before := core.Element{Status: core.StepPlanned}
		if was.Elements != nil {
			before = was.Elements[i]
		}
		if el.Call != before.Call && (before.Call != "" || before.Status != core.StepPlanned) || before.Status == core.StepDone && el != before && el.Same != "" {
			o.Fatalf("entry %d: element %d of step %d was %+v, and is %+v", e.Rev, i, now.Number, before, el)
		}
		if res, has := o.results[el.Call]; el.Status == core.StepDone && (!has || res.Error) {
			o.Fatalf("entry %d: element %d of step %d is done with the result %+v", e.Rev, i, now.Number, res)
		}
		switch el.Status {
		case core.StepCalling:
			calling++
		case core.StepPlanned:
			open++
		case core.StepDone:
			done++
		case core.StepFailed, core.StepGivenUp, core.StepSkipped:
		}
	}
	ended := now.Status == core.StepDone || now.Status == core.StepFailed
	if calling > core.MaxRound || len(now.Elements) > 0 && ended != (calling+open == 0) && now.Status != core.StepGivenUp ||
		len(now.Elements) > 0 && ended && (now.Status == core.StepDone) != (done > 0) {
		o.Fatalf("entry %d: step %+v has %d elements under way, %d to come and %d done", e.Rev, now, calling, open, done)
	}
}
