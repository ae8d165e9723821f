package pipeline

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// reviewed starts a run of a desk whose plans people review, with that plan, and one when it is refused.
func reviewed(t *testing.T, terms sdk.PermissionPolicyTerms, plans ...string) (*harness.Harness, harness.Run, *planners) {
	t.Helper()
	models := &planners{plans: plans}
	spec, tools := planDesk(3)
	spec.Plan.Review = &terms
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models, Identity: terms.NeedsIdentity()})
	run := h.SendAs("alice", "desk", h.Init("desk", hello()))
	return h, run, models
}

// decided is a decision on the request.
func decided(request *harness.Call, d sdk.PermissionDecision) wire.Event {
	d.ArgsHash, _ = request.Data()["args_sha256"].(string)
	ev := request.Response(sdk.TypePermissionDecided, d)
	ev.ID += "-" + string(d.Decision) + d.Reason
	return ev
}

const mendingPlan = `plan.add_step(step=1, text="find things") plan.add_step(step=2, each="step1.things", text="mend the thing")`

// calledTools are the tools that a run has called, in their order.
func calledTools(h *harness.Harness, run harness.Run) (called []string) {
	for _, m := range h.Messages(run) {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolUse {
				called = append(called, c.Tool)
			}
		}
	}
	return called
}

// A plan that people review is carried out when it is approved, and not before, also by another worker; a person edits it, and it is carried out
// as edited. An edited plan is checked as any other.
func TestPlanReview_APersonEditsThePlan(t *testing.T) {
	t.Parallel()
	h, run, _ := reviewed(t, sdk.PermissionPolicyTerms{}, mendingPlan)
	request := h.Call(sdk.TypePlanReview)
	want := `{"steps":[{"step":1,"text":"find things"},{"after":[1],"each":"step1.things","step":2,"text":"mend the thing"}]}`
	args, _ := json.Marshal(request.Data()["args"])
	if diff := cmp.Diff(want, string(args)); diff != "" {
		t.Errorf("people are asked about, -want +got:\n%s", diff)
	}
	if p := h.State(run).Plan; p.Phase != core.PhaseReview || slices.ContainsFunc(p.Steps, func(s core.PlanStep) bool { return s.Status != core.StepPlanned }) {
		t.Errorf("before it is approved the plan is %+v", p)
	}
	h.Restart()
	for _, edited := range []string{
		`{"steps":[{"step":1,"text":"find things"},{"step":2,"text":"mend it","after":[3]}]}`,
		`{"steps":[{"step":2,"text":"find things"}]}`,
		`{"steps":[{"step":1,"text":"find things","when":"step1 +"}]}`,
		`{"steps":[]}`,
		`{"steps":[{"step":1,"text":"find things","who":"me"}]}`,
	} {
		ev := decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(edited)})
		ev.ID += edited
		h.PublishAs("bob", request, ev)
	}
	h.Until(run, "five refusals", func(s core.State) bool { return len(s.Calls) == 2 && s.Calls[1].Permission.Refusals == 5 })
	refused := strings.Join(refusals(h, run), "\n")
	for _, want := range []string{"comes after step 3, which is not before it", "numbered from 1", "its condition cannot be", "0 steps", `unknown field "who"`} {
		if !strings.Contains(refused, want) {
			t.Errorf("no edited plan is refused with %q:\n%s", want, refused)
		}
	}
	edited := `{"steps":[{"step":1,"text":"find things"},{"step":2,"text":"mend the thing","each":"step1.things.filter(t, !t.startsWith('thing 2'))"},{"step":3,"text":"note it","after":[2]}]}`
	h.PublishAs("bob", request, decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(edited)}))
	wantResponse(t, h.Done(run), "done")
	if diff := cmp.Diff("1 done 0/0: \n2 done 2/2: \n3 done 0/0: \n", planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if !h.State(run).Plan.Edited {
		t.Error("the plan is not said to be edited")
	}
	if diff := cmp.Diff([]string{sdk.ToolReviewPlan, "find", "mend", "mend", "note"}, calledTools(h, run)); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// A plan that is refused for a reason has another one made, whose maker is told it; one that is refused without has not, and neither has one that
// nobody decides on. Then nothing is done, and the answer says so: no loop goes on in its place.
func TestPlanReview_ARefusedPlanIsNotCarriedOut(t *testing.T) {
	t.Parallel()
	h, run, models := reviewed(t, sdk.PermissionPolicyTerms{}, mendingPlan, `plan.add_step(step=3, text="note it")`)
	first := h.Call(sdk.TypePlanReview)
	h.PublishAs("bob", first, decided(first, sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "mend nothing"}))
	second := h.Call(sdk.TypePlanReview)
	for _, want := range []string{"The last plan was not approved by those who were asked: mend nothing", "Its step 2, which was not done: mend the thing"} {
		if !strings.Contains(models.told[1], want) {
			t.Errorf("the planner is not told %q:\n%s", want, models.told[1])
		}
	}
	h.PublishAs("bob", second, decided(second, sdk.PermissionDecision{Decision: sdk.DecisionDeny}))
	wantResponse(t, h.Done(run), "done")
	if diff := cmp.Diff([]string{sdk.ToolReviewPlan, sdk.ToolReviewPlan}, calledTools(h, run)); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
	if told := models.told[len(models.told)-1]; !strings.Contains(told, "There is no plan that could be carried out (the plan was not approved: ") {
		t.Errorf("the writer is told %q", told)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))

	late := sdk.PermissionPolicyTerms{TimeoutMillis: (200 * time.Millisecond).Milliseconds()}
	h, run, models = reviewed(t, late, mendingPlan)
	wantResponse(t, h.Done(run), "done")
	if told := models.told[len(models.told)-1]; !strings.Contains(told, "nobody decided in time") {
		t.Errorf("the writer is told %q", told)
	}
	if diff := cmp.Diff([]string{sdk.ToolReviewPlan}, calledTools(h, run)); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// No plan that can be read leaves nothing to approve: then no loop does what nobody has approved of.
func TestPlanReview_WithoutAPlanNothingIsDone(t *testing.T) {
	t.Parallel()
	h, run, models := reviewed(t, sdk.PermissionPolicyTerms{}, "I would rather not.", "Really.")
	wantResponse(t, h.Done(run), "done")
	if called := calledTools(h, run); len(called) > 0 {
		t.Errorf("%v are called", called)
	}
	if told := models.told[len(models.told)-1]; !strings.Contains(told, "There is no plan that could be carried out (no step of a plan could be read)") {
		t.Errorf("the writer is told %q", told)
	}
}

// No model calls the tool that plans are reviewed by, with a plan that could be: there is none for it.
func TestPlanReview_IsNoToolOfModels(t *testing.T) {
	t.Parallel()
	h, run, models := reviewed(t, sdk.PermissionPolicyTerms{}, `plan.add_step(step=1, text="agentd_plan it")`)
	models.reviewed = json.RawMessage(`{"steps":[{"step":1,"text":"mend everything"}]}`)
	request := h.Call(sdk.TypePlanReview)
	h.PublishAs("bob", request, decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow}))
	wantResponse(t, h.Done(run), "Nothing is left to be done.")
	if diff := cmp.Diff([]string{sdk.ToolReviewPlan}, calledTools(h, run)); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// The terms of permission requests hold: so many different people, and none who started the run.
func TestPlanReview_UnderTheTermsOfPermissions(t *testing.T) {
	t.Parallel()
	h, run, _ := reviewed(t, sdk.PermissionPolicyTerms{Quorum: 2, FourEyes: true}, mendingPlan)
	request := h.Call(sdk.TypePlanReview)
	allow := func(who string) {
		ev := decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
		ev.ID += who
		h.PublishAs(who, request, ev)
	}
	allow("alice")
	allow("bob")
	allow("bob")
	h.Until(run, "two refusals", func(s core.State) bool { return len(s.Calls) == 2 && s.Calls[1].Permission.Refusals == 2 })
	if called := calledTools(h, run); len(called) != 1 {
		t.Errorf("%v are called before two have approved", called)
	}
	allow("carl")
	wantResponse(t, h.Done(run), "done")
	if diff := cmp.Diff("1 done 0/0: \n2 done 3/3: \n", planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}
