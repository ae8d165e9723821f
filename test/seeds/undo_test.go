package seeds_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// booking is an agent that books, and says how a booking is undone: by its number and the ticket that it came to.
func booking() sdk.Agent {
	cancel := service("shop.cancel")
	cancel.Contract = contract("shop.cancel", `{"type": "object", "properties": {"n": {"type": "integer"}, "ticket": {"type": "string"}},
		"required": ["n", "ticket"], "additionalProperties": false}`, valueAnswer)
	a := desk(service("shop.book"), cancel, service("shop.find"))
	a.Spec.Undo = map[string]sdk.Undo{"shop_book": {Tool: "shop_cancel", Args: map[string]json.RawMessage{
		"n": json.RawMessage(`"{{.Args.n}}"`), "ticket": json.RawMessage(`"{{.Result.value}}"`),
	}}}
	return a
}

// booked is a run of booking that has booked 1 and 2, not 3, and was cancelled while it waited.
func booked(t *testing.T, h *harness.Harness) harness.Run {
	t.Helper()
	r := h.Run("desk", message("hello"))
	for range 3 {
		c := h.Call("shop.book")
		if fmt.Sprint(c.Data()["n"]) == "3" {
			c.Fail(wire.Problem{Code: sdk.CodeTool, ErrorMessage: "no room"})
		} else {
			c.Answer("shop.book.done", value(fmt.Sprint("ticket-", c.Data()["n"])))
		}
	}
	h.Call("shop.find")
	h.Cancel(r, "enough")
	equal(t, "how the run ends", string(fails(t, h, r, deskType).Code), "cancelled")
	return r
}

func booker() *sdktest.Model {
	return sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_book", n(1))),
		sdktest.Ask(sdktest.Tool("shop_book", n(2)), sdktest.Tool("shop_book", n(3))), find(4))
}

// undo asks for calls of a run to be undone, none for all, and returns the generation that does.
func undo(h *harness.Harness, r harness.Run, id string, calls ...string) harness.Run {
	data, err := json.Marshal(map[string]any{"calls": calls})
	if err != nil {
		panic(err) // strings always encode
	}
	ev := wire.Event{ID: id, Source: "com.test.operator", Type: wire.TypeUndo, Subject: r.Subject, Data: data}
	h.Publish(h.Conn().Subjects().Control(wire.ControlUndo, r.Agent, r.Key), ev)
	r.Init = wire.InitToken(ev.Source, ev.ID)
	return r
}

// undone is what the end of a generation tells: the tools and outcomes, in their order.
func undone(t *testing.T, h *harness.Harness, r harness.Run) (told []string, p wire.Problem) {
	t.Helper()
	p = fails(t, h, r, deskType)
	for _, u := range p.Undone {
		told = append(told, wire.CallPlace(u.Call)+" "+u.Tool+" "+string(u.Outcome))
	}
	return told, p
}

// undoable are the places of the calls that can be undone.
func undoable(t *testing.T, h *harness.Harness, r harness.Run) []string {
	t.Helper()
	calls, err := h.Worker().Runner().Undoable(t.Context(), h.Parts(r))
	if err != nil {
		t.Fatal(err)
	}
	places := []string{}
	for _, c := range calls {
		places = append(places, wire.CallPlace(c.Call))
	}
	return places
}

// compensation is row L71: what a run did is undone when somebody wants that after it was cancelled, the newest first, through the gate
// of permissions, each once. Its model is not called.
func compensation(t *testing.T) {
	t.Run("newest first", func(t *testing.T) {
		model := booker()
		h := start(t, model, booking())
		r := booked(t, h)
		h.NoCall("shop.cancel")
		generation := undo(h, r, "undo-1")
		second := h.Call("shop.cancel")
		equal(t, "what is undone first", second.Data(), map[string]any{"n": 2.0, "ticket": "ticket-2"})
		h.NoCall("shop.cancel") // the first waits for it
		second.Answer("shop.cancel.done", value("gone"))
		first := h.Call("shop.cancel")
		equal(t, "what is undone last", first.Data(), map[string]any{"n": 1.0, "ticket": "ticket-1"})
		first.Answer("shop.cancel.done", value("gone"))
		told, p := undone(t, h, generation)
		equal(t, "what is told", told, []string{"c2-0 shop_book undone", "c1-0 shop_book undone"})
		equal(t, "in words", []string{string(p.Code), p.ErrorMessage}, []string{"undone", "all calls that were to be undone are undone: 2"})
		equal(t, "how it ended", termination(h, r), "undone:all")
		asked(t, model, 3)
		h.NoDeadLetter()
	})
	t.Run("one, through the gate", func(t *testing.T) {
		a := booking()
		a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
			{Tools: []string{"shop_cancel"}, Verdict: "ask"}, {Verdict: "allow"},
		}}
		h := start(t, booker(), a)
		r := booked(t, h)
		call := callAt(t, h, r, "c1-0")
		generation := undo(h, r, "undo-1", call)
		decide(requests(t, h, 1)["1"], sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "she flies"})
		told, p := undone(t, h, generation)
		equal(t, "what is told", told, []string{"c1-0 shop_book not_undone"})
		equal(t, "why", p.Undone[0].Message, "permission_denied: shop_cancel is not allowed: she flies")
		h.NoCall("shop.cancel")
		generation = undo(h, r, "undo-2", call)
		decide(requests(t, h, 1)["1"], allow)
		h.Call("shop.cancel").Answer("shop.cancel.done", value("gone"))
		told, _ = undone(t, h, generation)
		equal(t, "what is told when it is allowed", told, []string{"c1-0 shop_book undone"})
		undo(h, r, "undo-3", call)
		equal(t, "once more", h.DeadLetter().Reason, "undo_refused")
		h.NoCall("shop.cancel")
	})
	t.Run("while it goes on", func(t *testing.T) {
		h := start(t, booker(), booking())
		r := booked(t, h)
		undo(h, r, "undo-1")
		c := h.Call("shop.cancel")
		h.Cancel(r, "stop")
		told, p := undone(t, h, harness.Run{Agent: r.Agent, Subject: r.Subject, Key: r.Key, Init: wire.InitToken("com.test.operator", "undo-1")})
		equal(t, "what is told", told, []string{"c2-0 shop_book unknown", "c1-0 shop_book not_undone"})
		equal(t, "how it ended", []string{string(p.Code), termination(h, r)}, []string{"cancelled", "undone:cancelled"})
		h.Void("shop.cancel")
		c.Answer("shop.cancel.done", value("late"))
		equal(t, "what can be undone still", undoable(t, h, r), []string{"c1-0"})
	})
}

// termination is how the run ended last.
func termination(h *harness.Harness, r harness.Run) string {
	state := h.State(r)
	return state.Termination()
}

// callAt is the id of the call at a place of the run.
func callAt(t *testing.T, h *harness.Harness, r harness.Run, place string) string {
	t.Helper()
	for _, m := range h.Messages(r) {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentToolUse && wire.CallPlace(c.CallID) == place {
				return c.CallID
			}
		}
	}
	t.Fatalf("no call at %s", place)
	return ""
}

// undoStack is row L42: what can be undone is in the run's history. It outlives workers, and a call that may be undone is not undone
// again: by another message, one that comes twice, or another worker.
func undoStack(t *testing.T) {
	h := start(t, booker(), booking())
	r := booked(t, h)
	h.Restart()
	equal(t, "what can be undone", undoable(t, h, r), []string{"c2-0", "c1-0"})
	generation := undo(h, r, "undo-1", callAt(t, h, r, "c2-0"))
	h.Until(r, "asked", func(s core.State) bool { return s.Status == core.StatusWaiting })
	h.Restart()
	undo(h, r, "undo-1", callAt(t, h, r, "c2-0"))
	h.Call("shop.cancel").Answer("shop.cancel.done", value("gone"))
	told, _ := undone(t, h, generation)
	equal(t, "what is told", told, []string{"c2-0 shop_book undone"})
	undo(h, r, "undo-1", callAt(t, h, r, "c2-0"))
	undo(h, r, "undo-2", callAt(t, h, r, "c2-0"))
	equal(t, "a call that is undone", h.DeadLetter().Reason, "undo_refused")
	equal(t, "what can be undone still", undoable(t, h, r), []string{"c1-0"})
	h.NoCall("shop.cancel")
	entries := h.Parts(r)
	ends := slices.DeleteFunc(slices.Clone(entries), func(e core.Entry) bool { return e.Terminal == nil })
	equal(t, "ends", len(ends), 2)
	equal(t, "the stack in the head", ends[1].Head.Undo[0].Call, callAt(t, h, r, "c2-0"))
}
