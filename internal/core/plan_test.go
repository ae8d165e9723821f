package core_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/sdk"
)

// TestPlan_FromItsStepsToTheAnswer: steps that need nothing of each other are one round, a failed one gives up those that refer to it by
// number, another plan follows, and a call that was made is not made again.
func TestPlan_FromItsStepsToTheAnswer(t *testing.T) {
	t.Parallel()
	spec := newSpec(service("lookup", 2*minute), service("book", 2*minute), inline("add", false))
	spec.Planning = &core.Planning{Replans: 1}
	r := newRig(spec)
	do := func(in core.Input) {
		t.Helper()
		if _, _, err := r.step(in); err != nil {
			t.Fatal(err)
		}
	}
	plan := func(steps ...core.PlanStep) {
		t.Helper()
		do(r.drive(core.Planned{Steps: steps, By: core.PlannedByModel, Asked: true, Reply: sdk.ModelReply{Units: 1}}))
	}
	route := func(calls map[int]string) {
		t.Helper()
		next, ok := r.next().(core.RouteSteps)
		if !ok || len(next.Steps) != len(calls) {
			t.Fatalf("next is %+v, want %d steps", r.next(), len(calls))
		}
		ev := core.Routed{Reply: sdk.ModelReply{Units: 2}}
		for _, n := range next.Steps {
			ev.Routes = append(ev.Routes, core.Route{Step: n})
			ev.Reply.Calls = append(ev.Reply.Calls, sdk.ToolRequest{Name: calls[n], Arguments: `{"n":1}`})
		}
		ev.Admission = r.plan(ev.Reply)
		do(r.drive(ev))
	}
	status := func(want string) {
		t.Helper()
		var all []string
		for _, s := range r.state.Plan.Steps {
			all = append(all, string(s.Status))
		}
		if diff := cmp.Diff(want, string(r.state.Plan.Phase)+": "+strings.Join(all, " ")); diff != "" {
			t.Fatalf("-want +got:\n%s", diff)
		}
	}

	do(r.deliver("init-1", started("order 7", "hello")))
	plan(core.PlanStep{Text: "look"}, core.PlanStep{Text: "book", After: []int{1}}, core.PlanStep{Text: "add"}, core.PlanStep{Text: "add", After: []int{2}})
	status("steps: planned planned planned planned")
	route(map[int]string{1: "lookup", 3: "add"})
	tools, ok := r.next().(core.RunTools)
	if !ok {
		t.Fatalf("next is %+v, want a tool", r.next())
	}
	do(r.drive(core.Returned{Results: []core.Result{{Call: tools.Run[0].ID, Kind: core.ResultInline, Data: []byte(`1`)}}}))
	status("steps: calling planned done planned")
	failed := r.answer(r.effect(3, core.Outstanding(&r.state.Head)[0].Call), 0, `{"error":{"code":"unavailable","message":"no"}}`)
	failed.Error = true
	do(r.deliver(failed.EventID, failed))
	status("planning: failed given_up done given_up")
	plan(core.PlanStep{Text: "add again", After: []int{3}}, core.PlanStep{Text: "book at once"})
	status("steps: failed done planned planned")
	route(map[int]string{5: "add", 6: "book"})
	status("steps: failed done done calling") // what step 3 has added is not added again
	booked := r.answer(r.effect(7, core.Outstanding(&r.state.Head)[0].Call), 0, `{"booked":true}`)
	do(r.deliver(booked.EventID, booked))
	status("answer: failed done done done")
	do(r.drive(r.replied(`{"response":"booked"}`)))
	if r.state.Status != core.StatusDone || r.state.Reason != core.ReasonCompleted {
		t.Errorf("the run is %s, %s", r.state.Status, r.state.Reason)
	}
	if *record != "" {
		save(t, r, "plan")
	}
}

// TestPlan_TakesItsMarkBack: a run that waited for the model that plans, or chooses calls, is not found by what it waited for any more when it
// goes on.
func TestPlan_TakesItsMarkBack(t *testing.T) {
	t.Parallel()
	spec := newSpec(service("lookup", 2*minute))
	spec.Planning = &core.Planning{}
	r := newRig(spec)
	goesOn := func(ev func() core.Event) {
		t.Helper()
		mustStep(t, r, r.drive(core.Parked{Why: core.ParkModel, Key: "gpt", Model: "gpt", Code: sdk.CodeUnavailable}))
		mustStep(t, r, r.deliver("unpark", core.Unparked{Key: "gpt", Received: r.now}))
		e := mustStep(t, r, r.drive(ev()))
		marked := func(f core.Effect) bool { return f.Kind == core.EffectPark && f.Key == "gpt" }
		if e.Head.Parked != nil || !slices.ContainsFunc(e.Effects, marked) {
			t.Errorf("%s: the run is parked for %+v, and the entry has the effects %+v", e.Kind, e.Head.Parked, e.Effects)
		}
	}
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	goesOn(func() core.Event {
		return core.Planned{Steps: []core.PlanStep{{Text: "look"}}, By: core.PlannedByModel, Asked: true, Reply: sdk.ModelReply{Units: 1}}
	})
	goesOn(func() core.Event {
		ev := core.Routed{Routes: []core.Route{{Step: 1}}, Reply: sdk.ModelReply{Calls: []sdk.ToolRequest{{Name: "lookup", Arguments: `{}`}}}}
		ev.Admission = r.plan(ev.Reply)
		return ev
	})
}
