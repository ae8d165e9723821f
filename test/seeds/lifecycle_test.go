package seeds_test

import (
	"context"
	"testing"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func kinds(entries []core.Entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.Kind)
	}
	return all
}

// reason is why the run ended, as its terminal event says.
func reason(h *harness.Harness, r harness.Run) string {
	text, _ := h.Done(r).Extensions[wire.TerminationReason].(string)
	return text
}

// resumeGate is rows T4, T7, T15, T17, T27 and T29: whatever comes is absorbed before anything else happens; a
// decision that counts is one entry and is gone when its call is made; one that does not match makes none; and a run of which
// something still waits goes on waiting.
func resumeGate(t *testing.T) {
	a := gated(asks(sdk.PermissionHold, "note", "shop_find"), service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 4)
	equal(t, "all calls suspended", kinds(h.Parts(r)), []string{"started", "replied"})
	h.Restart() // what decisions find is what is stored
	first := request(t, h)
	stray := first.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: sdk.ArgsHash([]byte("{}"))})
	stray.ParentID = "c9-9-somethingelse"
	h.PublishAs("bob", first, stray)
	equal(t, "unmatched", h.DeadLetter().Reason, string(sdk.CodeUnknownRun))
	equal(t, "entries", len(h.Parts(r)), 2)

	decide(first, allow)
	state := h.Until(r, "waiting for the other", func(s core.State) bool { return s.Status == core.StatusWaiting && s.Rev > 3 })
	equal(t, "model calls while something waits", len(model.Requests()), 1)
	for _, c := range state.Calls {
		equal(t, "held calls have open requests", c.Held != "" && c.Closed(), false)
	}
	decide(request(t, h), allow)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "one replay of each call, one checkpoint for the round", kinds(h.Parts(r)), []string{
		"started", "replied", "answered", "returned", "answered", "returned", "answered", "replied",
	})
	equal(t, "decisions left", len(h.State(r).Calls), 0)
}

// decisionsMeanwhile is rows T40 and T42: a decision that comes while a tool runs is durable at once, its call is made right
// after, and nobody is asked again.
func decisionsMeanwhile(t *testing.T) {
	running, release := make(chan struct{}), make(chan struct{})
	a := gated(asks(sdk.PermissionHold, "pay"))
	a.Tools = []sdk.Tool{echo("pay"), internal("slow", func(context.Context, sdk.ToolCall) ([]byte, error) {
		close(running)
		<-release
		return []byte(`{}`), nil
	})}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("slow", n(1)), sdktest.Tool("pay", n(2))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	<-running
	decide(request(t, h), allow)
	h.Until(r, "decided", func(s core.State) bool { return len(s.Calls) == 3 && s.Calls[1].Status == core.CallResuming })
	close(release)
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "entries", kinds(h.Parts(r)), []string{"started", "replied", "answered", "returned", "returned", "replied"})
	h.NoCall(sdk.TypePermissionRequest)
}

// loopTransitions is rows T10, T12 and T36: no calls end the run; any result goes back to the model, also that
// of a tool that failed; what fails outside of tools ends the run.
func loopTransitions(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note"), internal("broken", func(context.Context, sdk.ToolCall) ([]byte, error) { panic("no") })}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("broken", n(1)), sdktest.Tool("note", n(2))), sdktest.Ask(sdktest.Tool("broken", n(3))), find(4),
		sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Call("shop.find").Fail(wire.Problem{ErrorName: "no", ErrorMessage: "not today", Code: sdk.CodeTool})
	succeeds(t, h, r, `{"response": "done"}`)
	var failed []bool
	for _, c := range results(t, h.Messages(r), 4) {
		failed = append(failed, c.IsError)
	}
	equal(t, "failures", failed, []bool{true, false, true, true})
	equal(t, "reason", reason(h, r), "completed:answer")

	bad := start(t, sdktest.Script(), desk())
	equal(t, "model failure", reason(bad, bad.Run("desk", message("hello"))), "error:model_failed")
}

// twoCancels is rows T38, T39 and T10: cancelling a run ends it while tools and the model work, whichever worker hears of it, and is not
// the failure of a call.
func twoCancels(t *testing.T) {
	calling := make(chan struct{})
	model := sdktest.ModelFunc(func(ctx context.Context, _ sdk.ModelRequest) (sdk.ModelReply, error) {
		close(calling)
		<-ctx.Done()
		return sdk.ModelReply{}, ctx.Err()
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{desk()}, Model: model, Workers: 3})
	r := h.Run("desk", message("hello"))
	<-calling
	h.Cancel(r, "enough")
	equal(t, "code", fails(t, h, r, deskType).Code, sdk.CodeCancelled)
	equal(t, "reason", reason(h, r), "cancelled:asked")

	a := desk(service("shop.find"))
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: []string{"shop_find"}, Verdict: sdk.PermissionDeny}}}
	h = start(t, sdktest.Script(find(1), sdktest.Say("done")), a)
	r = h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "a call that was refused", results(t, h.Messages(r), 1)[0].IsError, true)
}

// sequentialRound is rows T14 and T51: one call after the other, so a call that waits keeps those after it from being made.
func sequentialRound(t *testing.T) {
	var p phases
	a := desk(service("shop.find"))
	a.Spec.Order = sdk.CallsSequential
	a.Tools = []sdk.Tool{internal("note", func(_ context.Context, c sdk.ToolCall) ([]byte, error) {
		p.note("%s", c.Args)
		return []byte(`{}`), nil
	})}
	h := start(t, sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("note", n(3)), sdktest.Tool("shop_find", n(4))),
		sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	call := h.Call("shop.find")
	h.Until(r, "suspended", func(s core.State) bool { return s.Status == core.StatusWaiting })
	equal(t, "made before the first that waits", p.all(), []string{`{"n":1}`})
	equal(t, "the prefix", len(h.State(r).Results), 1)
	h.NoCall("shop.find")
	call.Answer("shop.find.done", value("it"))
	h.Call("shop.find").Answer("shop.find.done", value("that"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "made in the end", p.all(), []string{`{"n":1}`, `{"n":3}`})
	var order []string
	for _, c := range results(t, h.Messages(r), 4) {
		order = append(order, c.Tool)
	}
	equal(t, "results", order, []string{"note", "shop_find", "note", "shop_find"})
}

// withoutPersistence is row T21: the engine works on a store that forgets with the process.
func withoutPersistence(t *testing.T) {
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{desk(service("shop.find"))}, Model: sdktest.Script(find(1), sdktest.Say("done")),
		OpenStore: func(*broker.Conn) runner.Store { return memory.New() },
	})
	r := h.Run("desk", message("hello"))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// repaired is row T59: a run that ends early has a result for every call, so its conversation can be read by any model.
func repaired(t *testing.T) {
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2)))), desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 2)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	h.Suspended(r, 1)
	h.Cancel(r, "enough")
	equal(t, "code", fails(t, h, r, deskType).Code, sdk.CodeCancelled)
	h.Void("shop.find")
	end := h.State(r)
	equal(t, "status, and calls that are left", []any{end.Status, len(end.Calls)}, []any{core.StatusDone, 0})
	told := results(t, h.Messages(r), 2)
	equal(t, "failed", []bool{told[0].IsError != told[1].IsError}, []bool{true})
}
