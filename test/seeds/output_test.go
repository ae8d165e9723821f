package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// numbers is an agent that answers {"answer": integer}.
func numbers() sdk.Agent { return agent("desk", contract(deskType, anyObject, numberAnswer)) }

// outputBuilder is row A39.
func outputBuilder(t *testing.T) {
	a := numbers()
	a.Hooks.Output = func(_ context.Context, in sdk.OutputInput) (json.RawMessage, error) {
		number, err := strconv.Atoi(strings.TrimPrefix(in.Text, "It is "))
		if err != nil {
			return nil, errors.New("say: It is, and a number")
		}
		return json.Marshal(map[string]any{"answer": number})
	}
	model := sdktest.Script(sdktest.Say("Who knows"), sdktest.Say("It is 42"))
	h := start(t, model, a)
	event := succeeds(t, h, h.Run("desk", message("hello")), `{"answer": 42}`)
	equal(t, "type", event.Type, done(deskType))
	requests := asked(t, model, 2)
	if requests[0].Output != nil {
		t.Errorf("a builder of text asks the model for JSON: %s", requests[0].Output)
	}
	feedback := requests[1].Messages[2].PlainText()
	if !strings.Contains(feedback, "say: It is, and a number") {
		t.Errorf("the builder's error reaches the model as %q", feedback)
	}

	// What the builder makes is held to the contract too.
	b := agent("other", contract("test.other", anyObject, numberAnswer))
	built := []string{`{"answer": "many"}`, `{"answer": 7}`}
	b.Hooks.Output = func(_ context.Context, in sdk.OutputInput) (json.RawMessage, error) {
		return json.RawMessage(built[len(in.Text)-1]), nil
	}
	h = start(t, sdktest.Script(sdktest.Say("1"), sdktest.Say("22")), b)
	succeeds(t, h, h.Run("other", message("hello")), `{"answer": 7}`)
}

// selfCorrection is row A40.
func selfCorrection(t *testing.T) {
	model := sdktest.Script(sdktest.Say("a lot"), sdktest.Say(`{"answer": "a lot"}`), sdktest.Say(`{"answer": 3}`))
	h := start(t, model, numbers())
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"answer": 3}`)

	requests := asked(t, model, 3)
	equal(t, "lifecycles", lifecycles(requests), []sdk.Lifecycle{
		sdk.LifecycleInit, sdk.LifecycleOutputErrorFeedback, sdk.LifecycleOutputErrorFeedback,
	})
	for i, said := range []string{"a lot", `{"answer": "a lot"}`} {
		messages := requests[i+1].Messages
		answer, fault := messages[len(messages)-2], messages[len(messages)-1]
		equal(t, "what the model said", answer, sdk.Text(sdk.RoleAssistant, said)) // seen 1
		if fault.Role != sdk.RoleUser || fault.Seen != 0 || !strings.Contains(fault.PlainText(), string(sdk.CodeContractViolation)) {
			t.Errorf("the fault is told as %+v", fault)
		}
	}
	if told := requests[2].Messages[4].PlainText(); !strings.Contains(told, "$.answer") {
		t.Errorf("the fault %q does not say where it is", told)
	}
	if waits(h.Parts(r)) {
		t.Error("a correction suspended the run")
	}
}

// completion is row A41.
func completion(t *testing.T) {
	h := start(t, sdktest.Script(sdktest.Say("```json\n{\"answer\": 3}\n```")), numbers())
	init := h.Init("desk", message("hello"))
	init.RedirectTo, init.AccessControl = "com.test.inbox", "role:buyer"
	r := h.Send("desk", init)
	event := succeeds(t, h, r, `{"answer": 3}`)
	equal(t, "attributes", []string{
		event.Type, event.Subject, event.ParentID, event.To, event.Source, event.DataSchema, event.AccessControl, event.Agent,
	}, []string{
		done(deskType), r.Subject, init.ID, "com.test.inbox", deskType, "#/test/test.desk/1.0.0", "role:buyer", "desk",
	})
	equal(t, "execution units", event.ExecutionUnits, sdk.Units(1_000_000))
	state := h.State(r)
	equal(t, "final message", state.Messages()[1], sdk.Text(sdk.RoleAssistant, `{"answer":3}`))
	equal(t, "end", []any{state.Status, state.Reason}, []any{core.StatusDone, core.ReasonCompleted})
}

// textAndJSON is row A43.
func textAndJSON(t *testing.T) {
	scripts := map[string]*sdktest.Model{
		"text": sdktest.Script(sdktest.Say("42 it is")), "json": sdktest.Script(sdktest.Say(`{"answer": 42}`)),
	}
	h := start(t, byModel(scripts), agent("text", contract("test.text", anyObject, textAnswer)),
		agent("json", contract("test.json", anyObject, numberAnswer)))
	succeeds(t, h, h.Run("text", message("hello")), `{"response": "42 it is"}`)
	succeeds(t, h, h.Send("json", other(h, "json", "another run", message("hello"))), `{"answer": 42}`)
	if schema := last(t, scripts["text"]).Output; schema != nil {
		t.Errorf("an agent that answers in text asks for %s", schema)
	}
	equalJSON(t, "schema that the model is asked for", last(t, scripts["json"]).Output, numberAnswer)
}

// outputValidator is row B6.
func outputValidator(t *testing.T) {
	own := contract(deskType, anyObject, `{"type": "object", "properties": {
		"flights": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number", "minimum": 0}}}}
	}, "required": ["flights"], "additionalProperties": false}`)
	model := sdktest.Script(
		sdktest.Say(`{"flights": [{"price": 1}, {"price": -1}], "note": "x"}`), sdktest.Say(`[]`),
		sdktest.Say(`{"flights": [{"price": 1}]}`))
	h := start(t, model, agent("desk", own))
	event := succeeds(t, h, h.Run("desk", message("hello")), `{"flights": [{"price": 1}]}`)
	equal(t, "type", event.Type, done(deskType))
	requests := asked(t, model, 3)
	told := requests[1].Messages[2].PlainText()
	p := problem(t, sdk.Content{Text: told, IsError: true})
	equal(t, "code", p.Code, sdk.CodeContractViolation)
	for _, path := range []string{"$.flights[1].price", "$.note"} {
		if !strings.Contains(told, path) {
			t.Errorf("the model is not told of the fault at %s: %s", path, told)
		}
	}
	equal(t, "code of what is not an object", problem(t, sdk.Content{Text: requests[2].Messages[4].PlainText(), IsError: true}).Code,
		sdk.CodeContractViolation)
}

// historyInOutput is row B13.
func historyInOutput(t *testing.T) {
	with := desk(service("shop.find"))
	with.Spec.History = true
	without := agent("without", contract("test.without", anyObject, textAnswer), service("shop.find"))
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("done"))
	h := start(t, model, with, without)
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	var data struct {
		Response string        `json:"response"`
		Messages []sdk.Message `json:"messages"`
	}
	if err := json.Unmarshal(h.Done(r).Data, &data); err != nil {
		t.Fatal(err)
	}
	equal(t, "output", data.Response, "done")
	equal(t, "messages beside it", data.Messages, h.Messages(r))
	if len(data.Messages) != 4 {
		t.Errorf("%d messages, want question, call, result and answer", len(data.Messages))
	}

	plain := h.Send("without", other(h, "without", "without history", message("hello")))
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, plain, `{"response": "done"}`)
}

// structuredOrPlain is row B17.
func structuredOrPlain(t *testing.T) {
	scripts := map[string]*sdktest.Model{
		"plain":      sdktest.Script(sdktest.Say(`{"answer": 42}`)),
		"structured": sdktest.Script(sdktest.Say("plain text"), sdktest.Say(`{"answer": 42}`)),
	}
	h := start(t, byModel(scripts), agent("plain", contract("test.plain", anyObject, textAnswer)),
		agent("structured", contract("test.structured", anyObject, numberAnswer)))
	// Without a schema even JSON is but text.
	succeeds(t, h, h.Run("plain", message("hello")), `{"response": "{\"answer\": 42}"}`)
	// With one, text alone is not an answer.
	succeeds(t, h, h.Send("structured", other(h, "structured", "structured", message("hello"))), `{"answer": 42}`)
	asked(t, scripts["structured"], 2)
}
