package core_test

import (
	"fmt"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// follow has a plan of so many steps made and carried out: the first done of them are done, the others fail. Each calls add with
// another argument, from first on.
func (r *rig) follow(t *testing.T, steps, done, first int) {
	t.Helper()
	made := core.Planned{By: core.PlannedByModel, Asked: true, Reply: sdk.ModelReply{Units: 1}}
	for range steps {
		made.Steps = append(made.Steps, core.PlanStep{Text: "add"})
	}
	r.must(t, r.drive(made))
	next, ok := r.next().(core.RouteSteps)
	if !ok {
		t.Fatalf("next is %+v, want a round of steps", r.next())
	}
	ev := core.Routed{Reply: sdk.ModelReply{Units: 1}}
	for i, n := range next.Steps {
		ev.Routes = append(ev.Routes, core.Route{Step: n})
		ev.Reply.Calls = append(ev.Reply.Calls, sdk.ToolRequest{Name: "add", Arguments: fmt.Sprintf(`{"n":%d}`, first+i)})
	}
	ev.Admission = r.plan(ev.Reply)
	r.must(t, r.drive(ev))
	tools, ok := r.next().(core.RunTools)
	if !ok {
		t.Fatalf("next is %+v, want tools", r.next())
	}
	var returned core.Returned
	for i, c := range tools.Run {
		returned.Results = append(returned.Results, core.Result{Call: c.ID, Kind: core.ResultInline, Data: []byte(`1`), Error: i >= done})
	}
	r.must(t, r.drive(returned))
}

func planning(t *testing.T) *rig {
	t.Helper()
	spec := newSpec(inline("add", false))
	spec.Planning = &core.Planning{Replans: sdk.MaxReplans}
	r := newRig(spec)
	r.must(t, r.deliver("init-1", started("order 7", "hello")))
	return r
}

// TestPlan_KeepsWhatItsStepsHaveDone: however many steps fail after one that is done, no later plan makes its call again.
func TestPlan_KeepsWhatItsStepsHaveDone(t *testing.T) {
	t.Parallel()
	r := planning(t)
	r.follow(t, 10, 1, 0)
	r.follow(t, 10, 0, 10)
	r.follow(t, 10, 0, 20)
	if s := r.state.Plan.Step(1); s == nil || s.Status != core.StepDone {
		t.Fatalf("step 1, which is done, is %+v", s)
	}
	r.must(t, r.drive(core.Planned{Steps: []core.PlanStep{{Text: "add once more"}}, By: core.PlannedByModel, Asked: true}))
	reply := sdk.ModelReply{Units: 1, Calls: []sdk.ToolRequest{{Name: "add", Arguments: `{"n":0}`}}}
	next, ok := r.next().(core.RouteSteps)
	if !ok {
		t.Fatalf("next is %+v, want a round of steps", r.next())
	}
	r.must(t, r.drive(core.Routed{Reply: reply, Routes: []core.Route{{Step: next.Steps[0]}}, Admission: r.plan(reply)}))
	if tools, runs := r.next().(core.RunTools); runs {
		t.Errorf("the call of step 1 is made again: %+v", tools)
	}
}

// TestPlan_IsNotReplacedWhereWhatIsDoneHasNoRoom: a plan that would forget what was done is not made; what there is, is answered with.
func TestPlan_IsNotReplacedWhereWhatIsDoneHasNoRoom(t *testing.T) {
	t.Parallel()
	r := planning(t)
	r.follow(t, 10, 9, 0)
	if phase := r.state.Plan.Phase; phase != core.PhasePlanning {
		t.Fatalf("after 9 steps the plan is in phase %s, want another plan", phase)
	}
	r.follow(t, 10, 9, 10)
	if phase := r.state.Plan.Phase; phase != core.PhaseAnswer {
		t.Errorf("after 18 steps the plan is in phase %s, want the answer", phase)
	}
}
