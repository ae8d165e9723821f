package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/deadletter"
	"agentd/internal/harness"
	"agentd/internal/reconcile"
	"agentd/internal/show"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// ledger keeps which calls of tools were made, in their order.
type ledger struct {
	mu   sync.Mutex
	made []string
}

// record has the calls of the tools kept.
func record(tools []sdk.Tool) *ledger {
	l := &ledger{}
	for i := range tools {
		run, name := tools[i].Run, tools[i].Definition.Name
		tools[i].Run = func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			var args struct{ N int }
			_ = json.Unmarshal(call.Args, &args) // the tool says what is wrong
			l.mu.Lock()
			l.made = append(l.made, fmt.Sprint(name, " ", args.N))
			l.mu.Unlock()
			return run(ctx, call)
		}
	}
	return l
}

func (l *ledger) calls() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.made)
}

// want compares the calls that were made, in any order, with those.
func (l *ledger) want(t *testing.T, calls ...string) {
	t.Helper()
	made := l.calls()
	slices.Sort(made)
	slices.Sort(calls)
	if diff := cmp.Diff(calls, made); diff != "" {
		t.Errorf("calls that were made, -want +got:\n%s", diff)
	}
}

// wantPlanned compares the steps of a run's plan with those lines.
func wantPlanned(t *testing.T, h *harness.Harness, run harness.Run, want string) {
	t.Helper()
	if diff := cmp.Diff(want, planned(h, run)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// operates is a client of an operator, and the run as it knows it.
func operates(h *harness.Harness, run harness.Run) (*client.Client, client.Run) {
	return client.New(h.Conn(), client.Options{Source: "operator"}), client.Run{Agent: run.Agent, Name: run.Subject}
}

// shownRun is what agentd runs show says of a run.
func shownRun(t *testing.T, h *harness.Harness, run harness.Run) string {
	t.Helper()
	details, err := show.DetailsOf(h.Journal(run))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	command := func(args ...string) string { return "agentd " + strings.Join(args, " ") }
	if err := details.Write(&out, 120, true, command); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A planning run that has ended is purged: its status, its history and what is shown of it say so, and its init event begins nothing.
func TestPlanAttack_Purge(t *testing.T) {
	t.Parallel()
	spec, tools := planDesk(3, 2)
	made := record(tools)
	models := &planners{plans: []string{mendingPlan}}
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Done(run)
	if text := shownRun(t, h, run); !strings.Contains(text, "plan of 2 steps") {
		t.Errorf("before it is purged the run is shown as\n%s", text)
	}
	store := natsStore(h.Conn()).(state.Store)
	for range 2 { // it may be repeated
		if err := reconcile.Purge(t.Context(), h.Conn(), store, run.Key); err != nil {
			t.Fatal(err)
		}
	}
	if s := h.State(run); s.Plan != nil || s.Purged == nil || s.Reason != wire.ReasonCompleted {
		t.Errorf("of the run is left: %+v", s.Head)
	}
	if text := shownRun(t, h, run); strings.Contains(text, "find things") {
		t.Errorf("the purged run is shown as\n%s", text)
	}
	asks, named := operates(h, run)
	status, err := asks.Status(t.Context(), named)
	if err != nil || status.Status != wire.StatusDone {
		t.Errorf("its status is %+v, %v", status, err)
	}
	for l, err := range asks.History(t.Context(), named, wire.Mark{}) {
		if err != nil || strings.Contains(string(l.Data), "find things") {
			t.Errorf("its history is told as %s, %v", l.Data, err)
		}
	}
	for l, err := range asks.Follow(t.Context(), named, wire.Mark{}) {
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
			t.Errorf("following it tells %s, %v", l.Data, err)
		}
	}
	if _, _, err := asks.Retry(t.Context(), named); err == nil {
		t.Error("a purged run is retried")
	}
	if _, _, err := asks.Undo(t.Context(), named); err == nil {
		t.Error("calls of a purged run are undone")
	}
	h.Run("desk", hello())
	second := h.Init("desk", hello())
	second.ID, second.Subject = "second", "second"
	h.Done(h.Send("desk", second))
	if left := h.Journal(run); len(left) != 1 {
		t.Errorf("its init event began a run again that was purged: %d entries", len(left))
	}
	made.want(t, "find 0", "mend 1", "mend 2", "mend 3")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// A planning run that is paused while steps are called, while calls are chosen, and while its plan is reviewed, goes on from there when it is
// resumed, with another worker too. Meanwhile nothing is called.
func TestPlanAttack_Pause(t *testing.T) {
	t.Parallel()
	routing := newGate()
	models := &steering{planners: planners{plans: []string{
		`plan.add_step(step=1, text="add it") plan.add_step(step=2, text="note it", after=[1]) plan.add_step(step=3, text="mend it", after=[2])`,
	}}, calls: map[string]sdk.ModelReply{"add it": sdktest.Ask(add(1, 2))}}
	spec, tools := planDesk(1)
	spec.Plan.Review = &sdk.PermissionPolicyTerms{}
	made := record(tools)
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: sdktest.ModelFunc(
		func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if req.Model == "router" && strings.HasPrefix(req.Messages[0].PlainText(), "Step: mend it") {
				if err := routing.pass(ctx); err != nil {
					return sdk.ModelReply{}, err
				}
			}
			return models.Generate(ctx, req, nil)
		})})
	run := h.SendAs("alice", "desk", h.Init("desk", hello()))
	review := h.Call(sdk.TypePlanReview)
	asks, named := operates(h, run)
	hold := func(pauses bool) {
		t.Helper()
		set := asks.Resume
		if pauses {
			set = func(ctx context.Context, r client.Run) (bool, error) { return asks.Pause(ctx, r, "lunch") }
		}
		if _, err := set(t.Context(), named); err != nil {
			t.Fatal(err)
		}
	}
	hold(true)
	h.Until(run, "paused", func(s core.State) bool { return s.Paused != nil })
	h.PublishAs("bob", review, decided(review, sdk.PermissionDecision{Decision: sdk.DecisionAllow}))
	h.Until(run, "approved", func(s core.State) bool { return len(s.Calls) == 2 && s.Calls[1].Closed() })
	h.Restart()
	h.NoCall("calc.add")
	hold(false)
	call := h.Call("calc.add")
	hold(true)
	h.Until(run, "paused", func(s core.State) bool { return s.Paused != nil })
	call.Answer("calc.added", sum(3))
	h.Until(run, "answered", func(s core.State) bool { return s.Plan.Steps[0].Status == core.StepDone || s.Calls[0].Closed() })
	h.Restart()
	made.want(t)
	if asked := models.told("router"); len(asked) != 1 {
		t.Errorf("while the run is paused, routers are asked: %q", asked)
	}
	hold(false)
	h.Until(run, "at its third step", func(core.State) bool { return routing.came.Load() == 1 })
	hold(true)
	close(routing.open)
	h.Until(run, "paused", func(s core.State) bool { return s.Paused != nil && s.Status == core.StatusWaiting })
	made.want(t, "note 0")
	hold(false)
	wantResponse(t, h.Done(run), "done")
	made.want(t, "note 0", "mend 0")
	h.NoCall("calc.add")
	wantPlanned(t, h, run, "1 done 0/0: \n2 done 0/0: \n3 done 0/0: \n")
	if n := routing.came.Load(); n != 1 {
		t.Errorf("the call of the third step is chosen %d times", n)
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// A planning run that ended in the middle of its steps goes on from there when it is retried: what is done is not done again, and what was being
// called is asked for again.
func TestPlanAttack_Retry(t *testing.T) {
	t.Parallel()
	const plan = `plan.add_step(step=1, text="find things")
plan.add_step(step=2, each="step1.things", text="mend the thing")
plan.add_step(step=3, after=[2], text="add it")
plan.add_step(step=4, after=[3], text="note it")`
	broken := map[string]bool{"planner": true, "writer": true, "Step: note it": true}
	var mu sync.Mutex
	models := &steering{planners: planners{plans: []string{plan}}, calls: map[string]sdk.ModelReply{"add it": sdktest.Ask(add(1, 2))}}
	spec, tools := planDesk(3, 2)
	spec.Plan.Replans = new(int)
	made := record(tools)
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: sdktest.ModelFunc(
		func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			step, _, _ := strings.Cut(req.Messages[0].PlainText(), "\n")
			mu.Lock()
			defer mu.Unlock()
			for _, is := range []string{req.Model, step} {
				if broken[is] {
					delete(broken, is)
					return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the content filter stopped the reply")
				}
			}
			return models.Generate(ctx, req, nil)
		})})
	run := h.Run("desk", hello())
	asks, named := operates(h, run)
	again := func() {
		t.Helper()
		wantProblem(t, h.Done(run), "desk", sdk.CodeModel)
		next, _, err := asks.Retry(t.Context(), named)
		if err != nil {
			t.Fatal(err)
		}
		run.Init = next.Init
	}
	again() // without a plan
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantProblem(t, h.Done(run), "desk", sdk.CodeModel)
	wantPlanned(t, h, run, "1 done 0/0: \n2 done 2/3: 1 of 3 failed; element 2: tool_failed: thing 2 is broken\n3 done 0/0: \n4 planned 0/0: \n")
	again() // between two steps
	again() // before the answer
	wantResponse(t, h.Done(run), "done")
	h.NoCall("calc.add")
	made.want(t, "find 0", "mend 1", "mend 2", "mend 3", "note 0")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// A planning run whose deadline passes while steps are called is shown as it is, and asks for those again when it is retried.
func TestPlanAttack_RetryOfOpenSteps(t *testing.T) {
	t.Parallel()
	models := &steering{planners: planners{plans: []string{
		`plan.add_step(step=1, text="note it") plan.add_step(step=2, text="add it") plan.add_step(step=3, after=[1, 2], text="mend it")`,
	}}, calls: map[string]sdk.ModelReply{"add it": sdktest.Ask(add(1, 2))}}
	spec, tools := planDesk(1)
	spec.Limits.DeadlineMillis = (15 * time.Second).Milliseconds() // in which what comes before it has time to happen
	made := record(tools)
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	first := h.Call("calc.add")
	wantProblem(t, h.Done(run), "desk", sdk.CodeDeadline)
	asks, named := operates(h, run)
	next, _, err := asks.Retry(t.Context(), named)
	if err != nil {
		t.Fatal(err)
	}
	run.Init = next.Init
	second := h.Call("calc.add")
	first.Answer("calc.added", sum(99)) // nobody waits for it any more
	second.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(run), "done")
	wantPlanned(t, h, run, "1 done 0/0: \n2 done 0/0: \n3 done 0/0: \n")
	made.want(t, "note 0", "mend 0")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// What steps have done is undone, each call once, the newest first, and no step is begun by that.
func TestPlanAttack_Undo(t *testing.T) {
	t.Parallel()
	models := &steering{planners: planners{plans: []string{mendingPlan + ` plan.add_step(step=3, after=[2], text="add it")
plan.add_step(step=4, after=[3], text="note it")`}}, calls: map[string]sdk.ModelReply{"add it": sdktest.Ask(add(1, 2))}}
	spec, tools := planDesk(3, 2)
	spec.Limits.DeadlineMillis = (15 * time.Second).Milliseconds() // in which what comes before it has time to happen
	spec.Undo = map[string]sdk.Undo{"mend": {Tool: "unmend", Args: map[string]json.RawMessage{"n": json.RawMessage(`"{{.Args.n}}"`)}}}
	var mu sync.Mutex
	var undone []string
	tools = append(tools, sdk.Tool{
		Definition: sdk.ToolDefinition{Name: "unmend", Description: "A test's unmend.", Parameters: []byte(`{"type":"object"}`)},
		Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			undone = append(undone, string(call.Args))
			return json.RawMessage("{}"), nil
		},
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: models})
	run := h.Run("desk", hello())
	h.Call("calc.add")
	wantProblem(t, h.Done(run), "desk", sdk.CodeDeadline)
	asks, named := operates(h, run)
	next, _, err := asks.Undo(t.Context(), named)
	if err != nil {
		t.Fatal(err)
	}
	run.Init = next.Init
	wantProblem(t, h.Done(run), "desk", sdk.CodeUndone)
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{`{"n":"3"}`, `{"n":"1"}`}, undone); diff != "" {
		t.Errorf("undone, -want +got:\n%s", diff)
	}
	for _, e := range h.Journal(run) {
		if e.Head.Retry != nil && slices.Contains([]string{core.KindPlanned, core.KindRouted, core.KindReplied}, e.Kind) {
			t.Errorf("to undo calls, the run is %s", e.Kind)
		}
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// A decision on a plan that came before its run is a dead letter. Published again it counts, once, and later it is refused.
func TestPlanAttack_RedrivenDecision(t *testing.T) {
	t.Parallel()
	start := func() (*harness.Harness, wire.Event, *ledger) {
		spec, tools := planDesk(3)
		spec.Plan.Review = &sdk.PermissionPolicyTerms{}
		made := record(tools)
		h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec, Tools: tools}}, Model: &planners{plans: []string{mendingPlan}}})
		return h, h.Init("desk", hello()), made
	}
	elsewhere, init, _ := start()
	run := elsewhere.Send("desk", init)
	request := elsewhere.Call(sdk.TypePlanReview)
	h, init, made := start()
	allow := decided(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	h.PublishAs("bob", request, allow)
	letter := h.DeadLetter()
	if letter.Reason != string(sdk.CodeUnknownRun) {
		t.Errorf("the dead letter is %+v", letter)
	}
	h.Send("desk", init)
	if same := h.Call(sdk.TypePlanReview); same.Event.ID != request.Event.ID {
		t.Fatalf("the request is %s, elsewhere %s", same.Event.ID, request.Event.ID)
	}
	redrive := func() error {
		l, err := deadletter.Get(t.Context(), h.Conn(), 1)
		if err == nil {
			_, err = l.Redrive(t.Context(), h.Conn(), natsStore(h.Conn()))
		}
		return err
	}
	if err := redrive(); err != nil {
		t.Fatal(err)
	}
	if settled := h.DeadLetter(); len(settled.Data) > 0 {
		t.Errorf("the letter is told of as %+v", settled)
	}
	wantResponse(t, h.Done(run), "done")
	wantPlanned(t, h, run, "1 done 0/0: \n2 done 3/3: \n")
	if err := redrive(); err == nil {
		t.Error("a letter that is settled is redriven")
	}
	h.PublishAs("bob", request, allow)
	made.want(t, "find 0", "mend 1", "mend 2", "mend 3")
	h.NoDeadLetter()
	sound(t, h.Conn(), natsStore(h.Conn()))
}
