package core_test

import (
	"fmt"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// TestPlan_IsNoLargerThanItMayBe: whatever a planner, a router and tools write, the plan has less than 64 KiB in the head.
func TestPlan_IsNoLargerThanItMayBe(t *testing.T) {
	t.Parallel()
	r := planning(t)
	r.spec.MaxTurns = 100
	hostile := strings.Repeat("\x01", 400)
	texts := func(limit int) string { return strings.Repeat("\"", limit/2) }
	for plan := range sdk.MaxReplans + 1 {
		made := core.Planned{By: hostile, Asked: true, Reply: sdk.ModelReply{Units: 1}}
		for range core.MaxPlanSteps {
			s := core.PlanStep{Text: texts(core.MaxStepText), Tool: hostile, When: texts(core.MaxStepWhen), Each: texts(core.MaxStepEach)}
			for _, before := range r.state.Plan.Kept(core.MaxPlanSteps) {
				if before.Status == core.StepDone {
					s.After = append(s.After, before.Number)
				}
			}
			made.Steps = append(made.Steps, s)
		}
		r.must(t, r.drive(made))
		for {
			next, ok := r.next().(core.RouteSteps)
			if !ok {
				break
			}
			ev := core.Routed{Reply: sdk.ModelReply{Units: 1}}
			taken := 0
			for _, n := range next.Steps {
				s := r.state.Plan.Step(n)
				route := core.Route{Step: n, Of: len(s.Elements)}
				if s.Elements == nil {
					route.Of = min(r.state.Plan.RoomForElements(s)-taken, 12)
					taken += route.Of
				}
				for place := range route.Of {
					if s.Elements != nil && s.Elements[place].Status != core.StepPlanned {
						continue
					}
					e := core.ElementRoute{Place: place, Fault: hostile}
					if place == 0 && plan < 2 && len(ev.Reply.Calls) < core.MaxRound {
						e.Fault = ""
						ev.Reply.Calls = append(ev.Reply.Calls, sdk.ToolRequest{Name: "add", Arguments: fmt.Sprintf(`{"n":%d}`, 100*n+place)})
					}
					route.Elements = append(route.Elements, e)
				}
				ev.Routes = append(ev.Routes, route)
			}
			if len(ev.Reply.Calls) > 0 {
				ev.Admission = r.plan(ev.Reply)
			}
			r.must(t, r.drive(ev))
			if tools, ok := r.next().(core.RunTools); ok {
				var returned core.Returned
				for i, c := range tools.Run {
					failed := i%2 == 0
					data := []byte(`1`)
					if failed {
						data = core.FailureData(sdk.Errorf(sdk.CodeTool, "%s", hostile))
					}
					returned.Results = append(returned.Results, core.Result{Call: c.ID, Kind: core.ResultInline, Data: data, Error: failed})
				}
				r.must(t, r.drive(returned))
			}
			if n := len(encode(t, r.state.Plan)); n > 64<<10 {
				t.Fatalf("plan %d has %d bytes", plan+1, n)
			}
		}
		if r.state.Plan.Phase != core.PhasePlanning {
			break
		}
	}
}
