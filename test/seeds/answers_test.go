package seeds_test

import (
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// matchByParentID is row A10.
func matchByParentID(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 2)
	first, second := h.Call("shop.find"), h.Call("shop.find")
	if first.Data()["n"] != 1.0 {
		t.Fatalf("the first call has the data %v", first.Data())
	}

	second.Answer("shop.find.done", value("two"))
	state := h.Suspended(r, 1)
	if len(state.Results) != 1 || state.Results[0].Call != second.Event.ID {
		t.Fatalf("results %+v, want one of call %s", state.Results, second.Event.ID)
	}
	equalJSON(t, "result", state.Results[0].Data, `{"value": "two"}`)
	first.Answer("shop.find.done", value("one"))
	succeeds(t, h, r, `{"response": "done"}`)
	told := results(t, last(t, model).Messages, 2)
	for i, want := range []struct{ call, text string }{
		{first.Event.ID, `{"value":"one"}`}, {second.Event.ID, `{"value":"two"}`},
	} {
		got := told[i]
		equal(t, "result of the call", []string{got.CallID, got.Text}, []string{want.call, want.text})
	}
}

// unmatchedResponse is row A11.
func unmatchedResponse(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	before := h.Suspended(r, 2)
	first, second := h.Call("shop.find"), h.Call("shop.find")

	for _, parent := range []string{"no-such-event", second.Event.ID} {
		stray := first.Response("shop.find.done", value("stray"))
		stray.ID, stray.ParentID = "stray-"+parent, parent
		h.PublishAgain(first, stray)
		letter := h.DeadLetter()
		equal(t, "reason", letter.Reason, string(sdk.CodeUnknownRun))
		event, err := wire.DecodeEvent(nil, letter.Data)
		if err != nil || event.ID != stray.ID {
			t.Errorf("the dead letter holds %s (%v), want the whole response", letter.Data, err)
		}
	}
	equal(t, "state after stray responses", h.State(r), before)
	h.PublishAgain(first, first.Response("shop.find.done", value("one")))
	second.Answer("shop.find.done", value("two"))
	succeeds(t, h, r, `{"response": "done"}`)
	var texts []string
	for _, c := range results(t, last(t, model).Messages, 2) {
		texts = append(texts, c.Text)
	}
	equal(t, "results", texts, []string{`{"value":"one"}`, `{"value":"two"}`})
}

// waitForAll is row A14.
func waitForAll(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("shop_find", n(3))),
		sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	r := h.Run("desk", message("hello"))
	before := h.Suspended(r, 3)
	calls := []*harness.Call{h.Call("shop.find"), h.Call("shop.find"), h.Call("shop.find")}

	for i, open := range []int{2, 1} {
		calls[i].Answer("shop.find.done", value("x"))
		state := h.Suspended(r, open)
		equal(t, "messages while calls are outstanding", state.Messages(), before.Messages())
		if len(state.Results) != i+1 || len(state.Calls) != 3 {
			t.Errorf("with %d calls open the state has %d results of %d calls", open, len(state.Results), len(state.Calls))
		}
	}
	asked(t, model, 1)
	calls[2].Answer("shop.find.done", value("x"))
	succeeds(t, h, r, `{"response": "done"}`)
}

// appendAllResults is row A15.
func appendAllResults(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("note", n(2)), sdktest.Tool("shop_book", n(3))),
		sdktest.Say("done"))
	a := desk(service("shop.find"), service("shop.book"))
	a.Tools = []sdk.Tool{echo("note")}
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 2)
	h.Call("shop.book").Answer("shop.book.done", value("booked"))
	h.Suspended(r, 1)
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	succeeds(t, h, r, `{"response": "done"}`)

	messages := last(t, model).Messages
	if len(messages) != 5 {
		t.Fatalf("the model sees %d messages, want its input, the calls and three results", len(messages))
	}
	used := uses(t, messages, 3)
	for i, want := range []string{`{"value":"found"}`, `{"n":2}`, `{"value":"booked"}`} {
		equal(t, "result message", messages[2+i], sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{{
			Kind: sdk.ContentToolResult, CallID: used[i].CallID, Tool: used[i].Tool, Text: want,
		}}})
	}
}

// eventCollection is row B9.
func eventCollection(t *testing.T) {
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_book", n(2))), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find"), service("shop.book")))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 2)
	find := h.Call("shop.find")
	find.Answer("shop.find.done", value("first"))
	h.Suspended(r, 1)
	again := find.Response("shop.find.done", value("second"))
	h.PublishAgain(find, find.Response("shop.find.done", value("first")))
	again.ID = "another"
	h.PublishAgain(find, again)
	await(t, "both duplicates are known for what they are", func() bool { return h.Worker().Runner().Stats().Stale.Load() == 2 })

	state := h.Suspended(r, 1)
	if len(state.Results) != 1 {
		t.Errorf("after duplicates there are %d results, want one", len(state.Results))
	}
	asked(t, model, 1)
	book := h.Call("shop.book")
	book.Answer("shop.book.done", value("booked"))
	h.Until(r, "all collected", func(s core.State) bool { return len(s.Results) == 2 || s.Turns == 2 })
	late := book.Response("shop.book.done", value("booked twice"))
	late.ID = "late"
	h.PublishAgain(book, late)
	await(t, "it is known for what it is", func() bool { return h.Worker().Runner().Stats().Stale.Load() == 3 })
	succeeds(t, h, r, `{"response": "done"}`)
	all := results(t, asked(t, model, 2)[1].Messages, 2)
	equal(t, "the results that count", []string{all[0].Text, all[1].Text}, []string{`{"value":"first"}`, `{"value":"booked"}`})
}

// idempotentInvocations is row B14.
func idempotentInvocations(t *testing.T) {
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	init := h.Init("desk", message("hello"))
	r := h.Send("desk", init)
	state := h.Suspended(r, 1)
	call := h.Call("shop.find")
	equal(t, "event id", call.Event.ID, state.Calls[0].ID)
	if ref, ok := wire.ParseCallRef(call.Event.ID); !ok || ref.ID != call.Event.ID {
		t.Errorf("event id %q is not a call id", call.Event.ID)
	}
	// Whoever is delivered the init event again publishes the call again.
	h.Restart()
	h.Send("desk", init)
	await(t, "the init event is a duplicate", func() bool { return h.Worker().Runner().Stats().Stale.Load() == 1 })
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "id that the model sees", results(t, last(t, model).Messages, 1)[0].CallID, call.Event.ID)

	// Calls come in the order of publication: the next one is another run's.
	next := h.Send("desk", other(h, "desk", "another run", message("hello")))
	if got := h.Call("shop.find"); got.Event.Subject != next.Subject {
		t.Errorf("call %s of run %s was published twice", got.Event.ID, got.Event.Subject)
	}
}

// missingContext is row B16.
func missingContext(t *testing.T) {
	model := sdktest.Script(sdktest.Say("done"))
	h := start(t, model, desk(service("shop.find")))
	key := wire.NewRunKey("a run that never was")
	subject := h.Conn().Subjects().Reply(wire.CallAddress{
		Domain: wire.LocalDomain, Type: "shop_find", Agent: "desk", Run: key,
		Call: wire.CallID(key, wire.InitToken("source", "id"), 1, 0, "shop_find", []byte(`{}`)),
	})
	h.Publish(subject, wire.Event{ID: "answer", Source: "shop.find", Type: "shop.find.done", Data: []byte(`{"value":"x"}`)})
	letter := h.DeadLetter()
	equal(t, "dead letter", []string{letter.Reason, letter.Subject}, []string{string(sdk.CodeUnknownRun), subject})
	equal(t, "what is wrong", letter.Detail, "unknown_run: no run waits for this message: its run has no journal. "+
		"If the run had begun, the journal is lost; agentd reconcile ends such runs")
	if entries := h.Parts(harness.Run{Key: key}); len(entries) > 0 {
		t.Errorf("the response made a run: %v", statuses(entries))
	}
	asked(t, model, 0)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
}

// persistOnSuspension is row A36.
func persistOnSuspension(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.System = "You sell."
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	event := h.Init("desk", message("hello"))
	event.AccessControl = "role:buyer"
	r := h.Send("desk", event)
	h.Suspended(r, 1)
	h.Restart()

	state := h.State(r)
	call := h.Call("shop.find")
	equal(t, "access control", state.Init.AccessControl, "role:buyer")
	equal(t, "subject", state.Run, r.Subject)
	equal(t, "system prompt", state.System, "You sell.")
	equal(t, "interactions", state.Turns, 1)
	equal(t, "units", state.Units, sdk.Units(1_000_000))
	equal(t, "messages", state.Messages(), []sdk.Message{
		{Role: sdk.RoleUser, Seen: 1, Content: []sdk.Content{{Kind: sdk.ContentText, Text: "hello"}}},
		{Role: sdk.RoleAssistant, Seen: 1, Content: []sdk.Content{{
			Kind: sdk.ContentToolUse, CallID: call.Event.ID, Tool: "shop_find", Args: []byte(`{"n":1}`),
		}}},
	})
	if len(state.Calls) != 1 || state.Calls[0].ID != call.Event.ID || state.Calls[0].Type != "shop.find" ||
		state.Calls[0].Status != core.CallSuspended {
		t.Errorf("awaiting calls: %+v", state.Calls)
	}
	if state.Driver != nil {
		t.Errorf("a suspended run is held by %+v", state.Driver)
	}

	call.Answer("shop.find.done", value("it"))
	end := succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "access control and units at the end", []any{end.AccessControl, end.ExecutionUnits},
		[]any{"role:buyer", sdk.Units(2_000_000)})
	equal(t, "system prompt after the restart", last(t, model).System, "You sell.")
}
