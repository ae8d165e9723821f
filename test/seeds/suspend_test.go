package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// asker is a tool that asks a person, and returns what they answered, what it kept and for which call.
func asker(name string, ran *atomic.Int64) sdk.Tool {
	return internal(name, func(_ context.Context, c sdk.ToolCall) ([]byte, error) {
		ran.Add(1)
		if c.Answer == nil {
			return nil, sdk.AskPerson(sdk.Question{Question: "Which account?", Schema: []byte(`{"type":"object"}`)}, json.RawMessage(`{"kept":1}`))
		}
		return json.Marshal(map[string]any{"answer": c.Answer.Data, "kept": c.Answer.State, "call": c.ID})
	})
}

// replaySuspends is a run whose held call is allowed by a worker that has just started, and whose tool then asks a person.
func replaySuspends(t *testing.T, h *harness.Harness, r harness.Run) (asked, question *harness.Call) {
	t.Helper()
	asked = request(t, h)
	h.Suspended(r, 2)
	h.Restart()
	decide(asked, allow)
	return asked, h.Call("agentd.question.ask")
}

// resuspension is row T26: a call that is replayed and has to wait again waits for something new. What let it go before is used
// up, and does not let it go once more. What it waits for now lets it go on at another worker, with what it kept.
func resuspension(t *testing.T) {
	var ran atomic.Int64
	a := gated(asks(sdk.PermissionHold, "pay"))
	a.Tools = []sdk.Tool{asker("pay", &ran)}
	a.Tools[0].AtMostOnce = true
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("pay", n(1))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	asked, question := replaySuspends(t, h, r)
	equal(t, "the question", []any{question.Event.Domain, question.Data()},
		[]any{sdk.HumanDomain, map[string]any{"question": "Which account?", "schema": map[string]any{"type": "object"}}})
	state := h.Until(r, "suspended again", func(s core.State) bool { return s.Status == "waiting" && len(s.Calls) == 3 })
	pay := state.Calls[0]
	equal(t, "what the call waited for and waits for now", []string{string(pay.Status), pay.Held, pay.Asked}, []string{"suspended", "", question.Event.ID})
	equal(t, "the decision and the question", []string{string(state.Calls[1].Status), string(state.Calls[2].Status)}, []string{"succeeded", "suspended"})

	again := asked.Response("agentd.permission.decided", sdk.PermissionDecision{Decision: "allow", ArgsHash: sdk.ArgsHash([]byte(`{"n":1}`))})
	again.ID = "again"
	h.PublishAgain(asked, again)
	equal(t, "the decision once more", h.DeadLetter().Reason, "decision_refused")
	equal(t, "how often the tool ran", ran.Load(), int64(1))
	h.Restart()
	question.Answer("agentd.question.answered", map[string]any{"answer": "mine"})
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "how often the tool ran in the end", ran.Load(), int64(2))
	equalJSON(t, "its result", []byte(results(t, h.Messages(r), 1)[0].Text),
		`{"answer": {"answer": "mine"}, "kept": {"kept": 1}, "call": "`+pay.ID+`"}`)
}

// suspendedAtStart is row T6: when all that a decision lets go waits for something new, the run is suspended again. The model is
// not asked, and hooks are told that the run rests.
func suspendedAtStart(t *testing.T) {
	var p phases
	var ran atomic.Int64
	a := gated(asks(sdk.PermissionHold, "pay"))
	a.Tools = []sdk.Tool{asker("pay", &ran)}
	a.Hooks.Phases = []sdk.Hook{p.hook("all")}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("pay", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	r, l := heardRun(t, h)
	_, question := replaySuspends(t, h, r)
	l.await(t, "run.suspended", 2)
	state := h.Until(r, "suspended again", func(s core.State) bool { return s.Status == "waiting" && len(s.Calls) == 3 })
	if state.Driver != nil || state.Timer == 0 {
		t.Errorf("the suspended run is held by %+v and wakes at %d", state.Driver, state.Timer)
	}
	asked(t, model, 1)
	p.awaitCount(t, "RunEnd waiting ", 2)
	equal(t, "entries", kinds(h.Parts(r)), []string{"started", "replied", "answered", "returned"})
	question.Answer("agentd.question.answered", map[string]any{"answer": "mine"})
	succeeds(t, h, r, `{"response": "done"}`)
	asked(t, model, 2)
}

// illegalTransitions is row T46: a call that is in a state in which what comes may not happen stays as it is, and so does its run.
func illegalTransitions(t *testing.T) {
	a := gated(asks(sdk.PermissionHold, "pay"), service("shop.find"))
	a.Tools = []sdk.Tool{echo("pay")}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("pay", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	stored := h.Suspended(r, 3).Head // pay, shop_find and the request
	asked, find := request(t, h), h.Call("shop.find")
	allowed := core.Answered{
		Ref: callRef(t, asked.Event.ID), Address: address(t, h, asked), Received: stored.Deadline - 1, EventID: "e",
		Decision: &sdk.PermissionDecision{Decision: "allow", ArgsHash: sdk.ArgsHash([]byte(`{"n":1}`))},
	}
	allowed.Received = asked.Event.Time.UnixMilli()
	answered := core.Answered{Ref: callRef(t, find.Event.ID), Address: address(t, h, find), EventID: "e", Data: []byte(`{"value":"it"}`)}
	for _, try := range []struct {
		is     string
		call   int
		queued bool
		input  core.Event
		legal  bool
	}{
		{is: "suspended", input: allowed, legal: true},
		{is: "suspended", queued: true, input: allowed, legal: true},
		{is: "new", input: allowed},
		{is: "running", input: allowed},
		{is: "succeeded", input: allowed},
		{is: "failed", input: allowed},
		{is: "cancelled", input: allowed},
		{is: "paused", input: allowed},
		{is: "suspended", call: 1, input: answered, legal: true},
		{is: "paused", call: 1, input: answered},
		{is: "", call: 1, input: core.CancelAsked{}},
		{is: "paused", call: 1, input: core.CancelAsked{}},
	} {
		head := stored
		head.Calls = append([]core.Call(nil), stored.Calls...)
		head.Calls[try.call].Status, head.Calls[try.call].Queued = core.CallStatus(try.is), try.queued
		_, err := core.Step(&core.Spec{Tools: []core.Tool{{Name: "pay", Kind: "inline"}, {Name: "shop_find", Kind: "service"}}},
			head, core.Input{At: 1, Owner: "o", Rev: 9, Event: try.input})
		if errors.Is(err, core.ErrIllegal) == try.legal {
			t.Errorf("%T on call %d that is %q: %v", try.input, try.call, try.is, err)
		}
	}
	decide(asked, allow)
	find.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
}

func callRef(t *testing.T, id string) wire.CallRef {
	t.Helper()
	ref, ok := wire.ParseCallRef(id)
	if !ok {
		t.Fatalf("%s is not the id of a call", id)
	}
	return ref
}

func address(t *testing.T, h *harness.Harness, c *harness.Call) wire.CallAddress {
	t.Helper()
	of, err := h.Conn().Subjects().Parse(replySubject(h, c))
	if err != nil {
		t.Fatal(err)
	}
	return of.Call
}

// resultMapping is row T34: what a tool or service returns, with a warning or without, is a success, an error a failure, and what
// has not returned is suspended.
func resultMapping(t *testing.T) {
	var ran atomic.Int64
	a := desk(service("shop.find"), service("shop.buy"), service("shop.book"))
	a.Tools = []sdk.Tool{
		echo("note"), failing("broken"), asker("pay", &ran),
		internal("warn", func(context.Context, sdk.ToolCall) ([]byte, error) { return []byte(`{"warning": "half of it"}`), nil }),
		internal("crash", func(context.Context, sdk.ToolCall) ([]byte, error) { panic("no") }),
	}
	h := start(t, sdktest.Script(sdktest.Ask(
		sdktest.Tool("note", n(1)), sdktest.Tool("warn", n(2)), sdktest.Tool("broken", n(3)), sdktest.Tool("crash", n(4)),
		sdktest.Tool("pay", n(5)), sdktest.Tool("shop_find", n(6)), sdktest.Tool("shop_buy", n(7)), sdktest.Tool("shop_book", n(8)),
	), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	h.Call("shop.find").Answer("shop.find.done", map[string]any{"value": "it", "warning": "the last one"})
	h.Call("shop.buy").Fail(wire.Problem{ErrorName: "no", ErrorMessage: "sold out", Code: "tool_failed"})
	question := h.Call("agentd.question.ask")
	state := h.Suspended(r, 3) // pay, its question and shop_book
	var statuses []string
	for _, c := range state.Calls[:8] {
		statuses = append(statuses, c.Tool+" "+string(c.Status))
	}
	equal(t, "statuses", statuses, []string{
		"note succeeded", "warn succeeded", "broken failed", "crash failed", "pay suspended", "shop_find succeeded", "shop_buy failed",
		"shop_book suspended",
	})
	question.Answer("agentd.question.answered", map[string]any{"answer": "mine"})
	h.Call("shop.book").Answer("shop.book.done", value("booked"))
	succeeds(t, h, r, `{"response": "done"}`)
	var failed []bool
	for _, c := range results(t, h.Messages(r), 8) {
		failed = append(failed, c.IsError)
	}
	equal(t, "failures that the model is told", failed, []bool{false, false, true, true, false, false, true, false})
}
