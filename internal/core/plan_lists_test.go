package core_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/sdk"
)

// listing is a run whose plan has a step, one for each element of the first one's result, and one for what comes of those.
func listing(t *testing.T) *rig {
	t.Helper()
	r := planning(t)
	r.must(t, r.drive(core.Planned{By: core.PlannedByModel, Asked: true, Reply: sdk.ModelReply{Units: 1}, Steps: []core.PlanStep{
		{Text: "look"}, {Text: "add each", After: []int{1}, Each: "step1"}, {Text: "add up", After: []int{2}, When: "size(step2) > 1"},
	}}))
	r.routeStep(t, 1, nil)
	return r
}

// routeStep has a call of add chosen for a step that is due, or for those elements of its list, and made. What it returns fails for the elements in
// failing, by their places; a step that has none fails if that has -1.
func (r *rig) routeStep(t *testing.T, step int, failing []int, places ...int) {
	t.Helper()
	next, ok := r.next().(core.RouteSteps)
	if !ok || next.Steps[0] != step {
		t.Fatalf("next is %+v, want step %d", r.next(), step)
	}
	route := core.Route{Step: step}
	ev := core.Routed{Reply: sdk.ModelReply{Units: 1}}
	add := func(place int) {
		ev.Reply.Calls = append(ev.Reply.Calls, sdk.ToolRequest{Name: "add", Arguments: fmt.Sprintf(`{"n":%d}`, 100*step+place)})
	}
	if route.Of = len(r.state.Plan.Step(step).Elements); len(places) == 0 {
		add(-1)
	} else {
		if route.Of == 0 {
			route.Of = len(places)
		}
		for _, place := range places[:min(len(places), core.MaxRound)] {
			route.Elements = append(route.Elements, core.ElementRoute{Place: place})
			add(place)
		}
	}
	ev.Routes = []core.Route{route}
	ev.Admission = r.plan(ev.Reply)
	r.must(t, r.drive(ev))
	tools, ok := r.next().(core.RunTools)
	if !ok {
		return // all of it was made before
	}
	var returned core.Returned
	for _, c := range tools.Run {
		place := -1
		for i, e := range r.state.Plan.Step(step).Elements {
			if e.Call == c.ID {
				place = i
			}
		}
		fails := false
		for _, f := range failing {
			fails = fails || f == place
		}
		res := core.Result{Call: c.ID, Kind: core.ResultInline, Data: fmt.Appendf(nil, `{"n":%d}`, place), Error: fails}
		if fails {
			res.Data = []byte(`{"error":{"code":"tool_failed","message":"it is broken"}}`)
		}
		returned.Results = append(returned.Results, res)
	}
	r.must(t, r.drive(returned))
}

// steps are the steps of the plan, each in one line.
func (r *rig) steps() string {
	all := string(r.state.Plan.Phase)
	for i := range r.state.Plan.Steps {
		s := &r.state.Plan.Steps[i]
		all += fmt.Sprintf("\n%d %s", s.Number, s.Status)
		if s.Each != "" {
			all += fmt.Sprintf(" %d/%d", s.Done(), len(s.Elements))
		}
		if s.Fault != "" {
			all += ": " + s.Fault
		}
	}
	return all
}

func (r *rig) wantSteps(t *testing.T, want string) {
	t.Helper()
	if diff := cmp.Diff(want, r.steps()); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
}

// upTo are the places up to n.
func upTo(from, n int) []int {
	var places []int
	for i := from; i < n; i++ {
		places = append(places, i)
	}
	return places
}

// TestPlan_DoesAStepForEachElement: an element that fails is told with its step, which is done for the others, and another plan is made. No later
// plan makes a call again that was made for an element.
func TestPlan_DoesAStepForEachElement(t *testing.T) {
	t.Parallel()
	r := listing(t)
	r.routeStep(t, 2, []int{1}, 0, 1, 2)
	r.wantSteps(t, "steps\n1 done\n2 done 2/3: 1 of 3 failed; element 2: tool_failed: it is broken\n3 planned")
	want := `[{"n":0},{"error":{"code":"tool_failed","message":"it is broken"}},{"n":2}]`
	if diff := cmp.Diff(want, string(r.state.StepResult(r.state.Plan.Step(2)))); diff != "" {
		t.Errorf("the result, -want +got:\n%s", diff)
	}
	r.must(t, r.drive(core.Routed{Routes: []core.Route{{Step: 3, Skipped: "its condition does not hold"}}, Unasked: true}))
	r.wantSteps(t, "planning\n1 done\n2 done 2/3: 1 of 3 failed; element 2: tool_failed: it is broken\n3 skipped: its condition does not hold")
	if turns := r.state.Turns; turns != 3 {
		t.Errorf("%d model calls count, want 3", turns)
	}
	r.must(t, r.drive(core.Planned{By: core.PlannedByModel, Asked: true, Steps: []core.PlanStep{{Text: "add again"}}}))
	reply := sdk.ModelReply{Units: 1, Calls: []sdk.ToolRequest{{Name: "add", Arguments: `{"n":202}`}}}
	r.must(t, r.drive(core.Routed{Reply: reply, Routes: []core.Route{{Step: 4}}, Admission: r.plan(reply)}))
	if tools, runs := r.next().(core.RunTools); runs {
		t.Errorf("the call for element 3 is made again: %+v", tools)
	}
	if *record != "" {
		save(t, r, "plan_lists")
	}
}

// TestPlan_CallsAListInTurns: at most as many elements are called at once as a round has calls, and those that follow wait for them.
func TestPlan_CallsAListInTurns(t *testing.T) {
	t.Parallel()
	r := listing(t)
	r.routeStep(t, 2, nil, upTo(0, core.MaxElements)...)
	r.wantSteps(t, "steps\n1 done\n2 planned 64/96\n3 planned")
	r.routeStep(t, 2, upTo(0, core.MaxElements), upTo(64, core.MaxElements)...)
	r.wantSteps(t, "steps\n1 done\n2 done 64/96: 32 of 96 failed; element 65: tool_failed: it is broken\n3 planned")
}

// TestPlan_OfListsThatComeToNothing: a step is done for a list without elements, and has failed when it has for all of them.
func TestPlan_OfListsThatComeToNothing(t *testing.T) {
	t.Parallel()
	r := listing(t)
	r.must(t, r.drive(core.Routed{Routes: []core.Route{{Step: 2}}, Unasked: true}))
	r.wantSteps(t, "steps\n1 done\n2 done 0/0\n3 planned")
	if got := string(r.state.StepResult(r.state.Plan.Step(2))); got != "[]" {
		t.Errorf("the result is %s, want []", got)
	}
	r = listing(t)
	r.routeStep(t, 2, []int{0, 1}, 0, 1)
	r.wantSteps(t, "planning\n1 done\n2 failed 0/2: 2 of 2 failed; element 1: tool_failed: it is broken\n3 given_up: step 2 is not done")
}

// TestPlan_SkipsWhatComesAfterASkippedStep: for want of its result. That does not count as a failure: the plan stays.
func TestPlan_SkipsWhatComesAfterASkippedStep(t *testing.T) {
	t.Parallel()
	r := planning(t)
	r.must(t, r.drive(core.Planned{By: core.PlannedByModel, Asked: true, Reply: sdk.ModelReply{Units: 1}, Steps: []core.PlanStep{
		{Text: "look"}, {Text: "add", After: []int{1}, When: "step1 > 1.0"}, {Text: "add up", After: []int{2}},
	}}))
	r.routeStep(t, 1, nil)
	r.must(t, r.drive(core.Routed{Routes: []core.Route{{Step: 2, Skipped: "no"}}, Unasked: true}))
	r.wantSteps(t, "answer\n1 done\n2 skipped: no\n3 skipped: step 2 was skipped")
}

// TestPlan_RefusesWhatItsListDoesNotHave: nothing is called that the list does not have, or twice, or beyond the room that there is.
func TestPlan_RefusesWhatItsListDoesNotHave(t *testing.T) {
	t.Parallel()
	for what, route := range map[string]core.Route{
		"more than there is room for": {Step: 2, Of: core.MaxElements + 1},
		"fewer than none":             {Step: 2, Of: -1},
		"an element beyond the list":  {Step: 2, Of: 1, Elements: []core.ElementRoute{{Place: 1, Fault: "no"}}},
		"an element twice":            {Step: 2, Of: 1, Elements: []core.ElementRoute{{Place: 0, Fault: "no"}, {Place: 0, Fault: "no"}}},
		"skipping without condition":  {Step: 2, Skipped: "no", Of: -1},
	} {
		r := listing(t)
		if _, _, err := r.step(r.drive(core.Routed{Routes: []core.Route{route}, Unasked: true})); err == nil || !strings.Contains(err.Error(), "illegal") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestPlan_IsNotReplacedWhereElementsHaveNoRoom: a plan that would forget which elements are done is not made.
func TestPlan_IsNotReplacedWhereElementsHaveNoRoom(t *testing.T) {
	t.Parallel()
	r := listing(t)
	r.routeStep(t, 2, []int{0}, upTo(0, 33)...)
	r.routeStep(t, 3, []int{-1})
	r.wantSteps(t, "answer\n1 done\n2 done 32/33: 1 of 33 failed; element 1: tool_failed: it is broken\n3 failed: tool_failed: it is broken")
}

// A step that fails when some elements of its list have had their calls is done for those, and the others have failed.
func TestPlan_KeepsTheElementsOfAListThatFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		failing []int
		want    string
	}{
		"some are done": {upTo(0, 60), "steps\n1 done\n2 done 4/66: 62 of 66 failed; element 1: tool_failed: it is broken\n3 planned"},
		"none is":       {upTo(0, 64), "planning\n1 done\n2 failed 0/66: 66 of 66 failed; element 1: tool_failed: it is broken\n3 given_up: step 2 is not done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := listing(t)
			r.routeStep(t, 2, c.failing, upTo(0, 66)...)
			r.must(t, r.drive(core.Routed{Unasked: true, Routes: []core.Route{{Step: 2, Of: 66, Fault: "its list is gone"}}}))
			for _, e := range r.state.Plan.Step(2).Elements {
				if e.Status != core.StepDone && e.Status != core.StepFailed {
					t.Errorf("an element is %+v", e)
				}
			}
			r.wantSteps(t, c.want)
		})
	}
}
