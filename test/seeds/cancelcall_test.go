package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// cancelCall asks a run, as a principal or an operator (""), to give up a call.
func cancelCall(h *harness.Harness, r harness.Run, who, id, call string) {
	subject := h.Conn().Subjects().Control(wire.ControlCancelCall, r.Agent, r.Key)
	if who != "" {
		subject += "." + who
	}
	h.Publish(subject, wire.Event{
		ID: id, Source: "com.test.operator", Type: wire.TypeCancelCall, Subject: r.Subject,
		Data: json.RawMessage(fmt.Sprintf(`{"call":%q,"reason":"too dear"}`, call)),
	})
}

// cancelOneCall is row F41: one call of a run is cancelled by its id, with a service, at work in a worker, or held. Whoever was asked
// learns that nobody waits, the model is shown that it was cancelled, what comes of it later changes nothing, and the run goes on.
func cancelOneCall(t *testing.T) {
	t.Run("service", func(t *testing.T) {
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
		h := start(t, model, desk(service("shop.find")))
		r := h.SendAs("ann", "desk", h.Init("desk", message("hello")))
		dear, other := h.Call("shop.find"), h.Call("shop.find")
		cancelCall(h, r, "eve", "theirs", dear.Event.ID)
		equal(t, "a cancel of somebody else", h.DeadLetter().Reason, "permission_denied")
		cancelCall(h, r, "", "unknown", "c9-0-"+dear.Event.ID[len(dear.Event.ID)-26:])
		equal(t, "a cancel of no call", h.DeadLetter().Reason, "unknown_run")
		cancelCall(h, r, "ann", "hers", dear.Event.ID)
		h.Suspended(r, 1)
		h.Void("shop.find")
		h.Restart()
		dear.Answer("shop.find.done", value("late"))
		cancelCall(h, r, "", "again", dear.Event.ID)
		await(t, "both change nothing", func() bool { return h.Worker().Runner().Stats().Stale.Load() >= 2 })
		other.Answer("shop.find.done", value("it"))
		succeeds(t, h, r, `{"response": "done"}`)
		all := results(t, last(t, model).Messages, 2)
		p := problem(t, all[0])
		equal(t, "result", []any{string(p.Code), p.ErrorMessage, all[0].CallID},
			[]any{"cancelled", "shop_find was cancelled: too dear; whether it took effect is unknown", dear.Event.ID})
		equal(t, "result of the other call", all[1].Text, `{"value":"it"}`)
		asked(t, model, 2)
		h.NoDeadLetter()
	})
	t.Run("at work", func(t *testing.T) {
		stopped := make(chan error, 1)
		tool, began, _ := slow("note")
		works := tool.Run
		tool.AtMostOnce = true
		tool.Run = func(ctx context.Context, c sdk.ToolCall) (json.RawMessage, error) {
			data, err := works(ctx, c)
			stopped <- err
			return data, err
		}
		a := desk(service("shop.find"))
		a.Tools = []sdk.Tool{tool}
		model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
		h := start(t, model, a)
		r := h.Run("desk", message("hello"))
		call := <-began
		cancelCall(h, r, "", "enough", call)
		if err := <-stopped; !errors.Is(err, context.Canceled) {
			t.Errorf("the tool was let finish: %v", err)
		}
		h.Suspended(r, 1)
		h.Call("shop.find").Answer("shop.find.done", value("it"))
		succeeds(t, h, r, `{"response": "done"}`)
		all := results(t, last(t, model).Messages, 2)
		equal(t, "result", []any{string(problem(t, all[0]).Code), all[1].Text}, []any{"cancelled", `{"value":"it"}`})
		h.NoDeadLetter()
	})
	t.Run("held", func(t *testing.T) {
		a := desk(service("shop.find"))
		a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Tools: []string{"shop_find"}, Verdict: "ask"}}}
		model := sdktest.Script(find(1), sdktest.Say("done"))
		h := start(t, model, a)
		r := h.Run("desk", message("hello"))
		request := requests(t, h, 1)["1"]
		cancelCall(h, r, "", "by itself", request.Event.ID)
		equal(t, "a cancel of the request", h.DeadLetter().Reason, "cancel_refused")
		cancelCall(h, r, "", "enough", fmt.Sprint(request.Data()["call"]))
		succeeds(t, h, r, `{"response": "done"}`)
		h.Void(sdk.TypePermissionRequest)
		p := problem(t, results(t, last(t, model).Messages, 1)[0])
		equal(t, "result", p.ErrorMessage, "shop_find was cancelled: too dear")
		decide(request, allow)
		equal(t, "a decision afterwards", h.DeadLetter().Reason, "decision_refused")
		h.NoCall("shop.find")
	})
}
