package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// steering plays the models of an agent that plans as planners does, but for the calls that are chosen for steps of those texts. It keeps what
// models are told last.
type steering struct {
	planners
	calls map[string]sdk.ModelReply
	mu    sync.Mutex
	last  map[string][]string
}

func (s *steering) Generate(ctx context.Context, req sdk.ModelRequest, delta func(sdk.Delta)) (sdk.ModelReply, error) {
	last := req.Messages[len(req.Messages)-1].PlainText()
	s.mu.Lock()
	if s.last == nil {
		s.last = map[string][]string{}
	}
	s.last[req.Model] = append(s.last[req.Model], last)
	s.mu.Unlock()
	step, _, _ := strings.Cut(strings.TrimPrefix(req.Messages[0].PlainText(), "Step: "), "\n")
	if reply, ok := s.calls[step]; ok && req.Model == "router" {
		return reply, nil
	}
	return s.planners.Generate(ctx, req, delta)
}

// told is what the model of that name is told last, each time.
func (s *steering) told(model string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last[model]
}

// What people decide is not what they have asked for: routers are shown the request also after a plan was edited, and a call.
func TestPlan_RoutersAreShownTheRequest(t *testing.T) {
	t.Parallel()
	models := &steering{planners: planners{plans: []string{mendingPlan}}}
	spec, tools := planDesk(3)
	spec.Plan.Review = &sdk.PermissionPolicyTerms{}
	spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: []string{"find"}, Verdict: sdk.PermissionAsk}}}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.SendAs("alice", "desk", h.Init("desk", map[string]string{"message": "mend my things"}))
	review := h.Call(sdk.TypePlanReview)
	edited := `{"steps":[{"step":1,"text":"find things"},{"step":2,"text":"note it","after":[1]}]}`
	h.PublishAs("bob", review, decided(review, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(edited)}))
	request := h.Call(sdk.TypePermissionRequest)
	h.PublishAs("bob", request, decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(`{"n":7}`)}))
	wantResponse(t, h.Done(run), "done")
	asked := models.told("router")
	if len(asked) != 2 {
		t.Errorf("the router is asked %d times: %q", len(asked), asked)
	}
	for _, told := range asked {
		if !strings.Contains(told, "It is part of this request: mend my things\n") && !strings.HasSuffix(told, "It is part of this request: mend my things") {
			t.Errorf("the router is not told the request, but\n%s", told)
		}
	}
}

// A call that a person has edited is done as they had it made: no later plan makes that again, and the one that was not made can be.
func TestPlan_AnEditedCallIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	note := func(n int) sdk.ModelReply { return sdktest.Ask(sdktest.Tool("note", map[string]any{"n": n})) }
	models := &steering{
		planners: planners{plans: []string{
			`plan.add_step(step=1, text="note one") plan.add_step(step=2, text="note three", each="['x']") plan.add_step(step=3, text="mend it")`,
			`plan.add_step(step=4, text="note two") plan.add_step(step=5, text="note four") plan.add_step(step=6, text="note one")`,
		}},
		calls: map[string]sdk.ModelReply{"note one": note(1), "note two": note(2), "note three": note(3), "note four": note(4)},
	}
	spec, tools := planDesk(3, 0)
	var mu sync.Mutex
	var noted []string
	tools[2].Run = func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
		mu.Lock()
		defer mu.Unlock()
		noted = append(noted, string(call.Args))
		return json.RawMessage(`"noted"`), nil
	}
	spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: []string{"note"}, Verdict: sdk.PermissionAsk}}}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.SendAs("alice", "desk", h.Init("desk", hello()))
	edits := map[string]string{`{"n":1}`: `{"n":2}`, `{"n":3}`: `{"n":4}`}
	for range 2 {
		request := h.Call(sdk.TypePermissionRequest)
		args, err := json.Marshal(request.Data()["args"])
		if err != nil {
			t.Fatal(err)
		}
		h.PublishAs("bob", request, decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(edits[string(args)])}))
	}
	again := h.Call(sdk.TypePermissionRequest)
	if args := fmt.Sprint(again.Data()["args"]); args != "map[n:1]" {
		t.Errorf("people are asked for %s, want the call that was not made", args)
	}
	h.PublishAs("bob", again, decided(again, sdk.PermissionDecision{Decision: sdk.DecisionAllow}))
	wantResponse(t, h.Done(run), "done")
	mu.Lock()
	defer mu.Unlock()
	if len(noted) != 3 || noted[2] != `{"n":1}` {
		t.Errorf("the notes are %q, want 2 and 4, and then 1", noted)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// No step is done with what ends a run, keeps notes of it or shows what it has, whatever a router calls.
func TestPlan_NoStepIsDoneWithWhatEndsARun(t *testing.T) {
	t.Parallel()
	models := &steering{
		planners: planners{plans: []string{`plan.add_step(step=1, text="note it") plan.add_step(step=2, text="be done", after=[1])`}},
		calls:    map[string]sdk.ModelReply{"be done": sdktest.Ask(sdktest.Tool("task_completion", map[string]any{"result": "hacked"}))},
	}
	spec, tools := planDesk(3)
	spec.Builtin = []string{"task_completion"}
	spec.Plan.Replans = new(int)
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Done(run)
	if diff := cmp.Diff("1 done 0/0: \n2 failed 0/0: task_completion is not for steps of plans\n", planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"note"}, calledTools(h, run)); diff != "" {
		t.Errorf("calls, -want +got:\n%s", diff)
	}
}

// Where no more calls can be made, who writes the answer is told which steps are not done, and so is whoever looks at the run.
func TestPlan_ThatTheLimitCutsShort(t *testing.T) {
	t.Parallel()
	models := &steering{planners: planners{plans: []string{`plan.add_step(step=1, text="note a") plan.add_step(step=2, text="note b", after=[1])`}}}
	spec, tools := planDesk(3)
	spec.Limits.Interactions, spec.Answers = 3, &sdk.Answers{Summary: true}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Done(run)
	if diff := cmp.Diff("1 done 0/0: \n2 given_up 0/0: the answer was written without it\n", planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	told := strings.Join(models.told(spec.Model.Name), "\n")
	for _, want := range []string{"No calls can be made any more", "Step 1 is done: note a", "Step 2 was not done: note b"} {
		if !strings.Contains(told, want) {
			t.Errorf("who writes the answer is not told %q, but %q", want, told)
		}
	}
}

// What expressions call is bounded: a step fails whose condition is over results that are too large together.
func TestPlan_OfResultsThatAreTooLarge(t *testing.T) {
	t.Parallel()
	models := &steering{planners: planners{plans: []string{`plan.add_step(step=1, text="find it", each="[1, 2, 3]")
plan.add_step(step=2, text="note it", when="size(step1) > 2")
plan.add_step(step=3, text="note it", after=[1])`}}}
	spec, tools := planDesk(1)
	spec.Plan.Replans = new(int)
	large, err := json.Marshal(strings.Repeat("x", 12<<20))
	if err != nil {
		t.Fatal(err)
	}
	tools[0].Run = func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return large, nil }
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Done(run)
	want := "1 done 3/3: \n2 failed 0/0: its expressions call results of more than 33554432 bytes\n3 done 0/0: \n"
	if diff := cmp.Diff(want, planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
