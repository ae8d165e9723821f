package seeds_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// operate sends a run what an operator asks of it.
func operate(h *harness.Harness, r harness.Run, verb wire.ControlVerb) {
	h.Publish(h.Conn().Subjects().Control(verb, r.Agent, r.Key), wire.Event{
		ID: string(verb) + "-1", Source: "com.test.operator", Type: "agentd.run." + string(verb), Subject: r.Subject, Data: json.RawMessage("{}"),
	})
}

// orphanRecovery is row T68: calls that were allowed, and whose worker is gone before it made them, are made by another, once. Nobody
// decides again, because the requests are closed by then, and their decisions are in the journal.
func orphanRecovery(t *testing.T) {
	var ran atomic.Int64
	a := gated(asks(sdk.PermissionHold, "shop_find", "note"), service("shop.find"))
	a.Tools = []sdk.Tool{internal("note", func(_ context.Context, c sdk.ToolCall) ([]byte, error) {
		ran.Add(1)
		return c.Args, nil
	})}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("note", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	asked := requests(t, h, 2)
	operate(h, r, wire.ControlPause)
	h.Until(r, "paused", func(s core.State) bool { return s.Paused != nil })
	decide(asked["1"], allow)
	decide(asked["2"], allow)
	orphaned := h.Until(r, "allowed", func(s core.State) bool { return decidedOf(s) == 2 })
	for _, c := range orphaned.Calls[:2] {
		equal(t, "status and request of "+c.Tool, []string{string(c.Status), c.Held}, []string{"resuming", ""})
	}
	equal(t, "tools that ran while it was paused", ran.Load(), int64(0))
	h.Restart()
	operate(h, r, wire.ControlResume)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	var told []string
	for _, c := range results(t, last(t, model).Messages, 2) {
		told = append(told, c.Text)
	}
	equal(t, "results", told, []string{`{"value":"it"}`, `{"n":2}`})
	equal(t, "how often the tool ran", ran.Load(), int64(1))
	h.NoCall("shop.find")
	h.NoCall(sdk.TypePermissionRequest)
	h.NoDeadLetter()
}

// supersession is row T65: a message that interrupts supersedes the work before it: the model call in progress is given up, the call
// that is with a service is voided, and its answer does not count, whenever it comes. What was said stays, in order, also over a restart.
func supersession(t *testing.T) {
	calling, asked := make(chan struct{}, 1), new(atomic.Int64)
	var final atomic.Pointer[sdk.ModelRequest]
	model := sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		switch asked.Add(1) {
		case 1:
			return find(1), nil
		case 2:
			calling <- struct{}{}
			<-ctx.Done()
			return sdk.ModelReply{}, ctx.Err()
		}
		final.Store(&req)
		return sdktest.Say("done"), nil
	})
	a := desk(service("shop.find"))
	a.Spec.Steering = sdk.SteeringInterrupt
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	first := h.Call("shop.find")
	h.Suspended(r, 1)
	h.Restart()
	send(t, h, r, "m1", "look in Paris")
	<-calling
	h.Void("shop.find")
	first.Answer("shop.find.done", value("late"))
	send(t, h, r, "m2", "no, in Rome")
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "model calls, and those that count", []int64{asked.Load(), int64(h.State(r).Turns)}, []int64{3, 2})
	equal(t, "the superseded call", problem(t, results(t, h.Messages(r), 1)[0]).Code, sdk.CodeCancelled)
	messages := final.Load().Messages
	equal(t, "what was said last", []string{messages[len(messages)-2].PlainText(), messages[len(messages)-1].PlainText()},
		[]string{"look in Paris", "no, in Rome"})
	h.NoDeadLetter()
}

// mailbox is row T64: messages into a run are kept before they are handled, each counts once, urgent ones are said first, by
// whichever worker has the run then, a message that interrupts supersedes what is older, and one that can never be said is a dead letter.
func mailbox(t *testing.T) {
	model := sdktest.Script(find(1), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	var waits core.State
	for _, m := range []struct {
		id, text string
		urgent   bool
		kept     int
	}{
		{"m1", "look in Paris", false, 1},
		{"m2", "not by plane", true, 2},
		{"m3", "by noon", false, 3},
		{"m4", "nor by bus", true, 4},
		{"m2", "not by plane", true, 4},
	} {
		h.Publish(h.Conn().Subjects().Control(wire.ControlMessage, r.Agent, r.Key)+".ann", wire.Event{
			ID: m.id, Source: "com.test.person", Type: "agentd.run.message", Subject: r.Subject,
			Data: mustJSON(t, map[string]any{"message": m.text, "urgent": m.urgent}),
		})
		waits = h.Until(r, "told", func(s core.State) bool { return len(s.Head.Notes) == m.kept })
	}
	equal(t, "model calls before they are said", waits.Turns, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	var said []string
	for _, m := range last(t, model).Messages[3:] {
		said = append(said, m.PlainText())
	}
	equal(t, "what was said, in order", said, []string{"not by plane", "nor by bus", "look in Paris", "by noon"})
	equal(t, "leases of the worker before, and of the one after", []uint64{waits.Fence, h.State(r).Fence}, []uint64{1, 2})
	send(t, h, r, "m5", "too late")
	equal(t, "a message that can never be said", h.DeadLetter().Reason, string(sdk.CodeMessageRefused))
	t.Run("generation", supersession)
}
