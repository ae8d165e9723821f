package seeds_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// initOrResume is row A1.
func initOrResume(t *testing.T) {
	var built atomic.Int32
	a := desk(service("shop.find"))
	a.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		built.Add(1)
		return sdk.Context{System: "sell", Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "hello")}}, nil
	}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_find", n(1))), sdktest.Say("found"))
	h := start(t, model, a)

	r := h.Run("desk", message("hello"))
	h.Suspended(r, 1)
	equal(t, "lifecycles after the init event", lifecycles(model.Requests()), []sdk.Lifecycle{sdk.LifecycleInit})
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "found"}`)

	equal(t, "lifecycles after the response", lifecycles(model.Requests()),
		[]sdk.Lifecycle{sdk.LifecycleInit, sdk.LifecycleToolResult})
	if built.Load() != 1 {
		t.Errorf("the conversation was begun %d times, want once", built.Load())
	}
	var kinds []string
	for _, e := range h.Parts(r) {
		kinds = append(kinds, e.Kind)
	}
	equal(t, "journal", kinds, []string{"started", "replied", "answered", "replied"})
}

// contextBuilder is row A4.
func contextBuilder(t *testing.T) {
	var got sdk.ContextInput
	a := desk(service("shop.find"))
	a.Spec.System, a.Spec.Prompt = "not this", "nor this"
	a.Hooks.Context = func(_ context.Context, in sdk.ContextInput) (sdk.Context, error) {
		got = in
		return sdk.Context{System: "You sell in " + in.Run, Messages: []sdk.Message{
			sdk.Text(sdk.RoleUser, "an example"), sdk.Text(sdk.RoleAssistant, "its answer"), sdk.Text(sdk.RoleUser, "the question"),
		}}, nil
	}
	model := sdktest.Script(sdktest.Say("sold"))
	h := start(t, model, a)
	event := h.Init("desk", message("ignored"))
	event.AccessControl = "role:buyer"
	succeeds(t, h, h.Send("desk", event), `{"response": "sold"}`)

	request := last(t, model)
	equal(t, "what the builder got", got, sdk.ContextInput{
		Lifecycle: sdk.LifecycleInit, Run: event.Subject, Input: []byte(`{"message":"ignored"}`), Tools: request.Tools,
		AccessControl: "role:buyer",
	})
	if len(got.Tools) != 1 || got.Tools[0].Name != "shop_find" {
		t.Errorf("the builder saw the tools %v", got.Tools)
	}
	equal(t, "system prompt", request.System, "You sell in "+event.Subject)
	equal(t, "messages", request.Messages, []sdk.Message{
		sdk.Text(sdk.RoleUser, "an example"), sdk.Text(sdk.RoleAssistant, "its answer"), sdk.Text(sdk.RoleUser, "the question"),
	})
}

// defaultMessage is row A5.
func defaultMessage(t *testing.T) {
	silent := desk()
	silent.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		return sdk.Context{System: "only this"}, nil
	}
	plain := agent("plain", contract("test.plain", anyObject, textAnswer))
	for _, a := range []sdk.Agent{silent, plain} {
		t.Run(a.Spec.Name, func(t *testing.T) {
			model := sdktest.Script(sdktest.Say("done"))
			h := start(t, model, a)
			h.Done(h.Run(a.Spec.Name, map[string]any{"b": 2, "a": "x"}))
			equal(t, "messages", last(t, model).Messages, []sdk.Message{sdk.Text(sdk.RoleUser, `{"a":"x","b":2}`)})
		})
	}
	t.Run("without the caller's subject", func(t *testing.T) {
		counter := agent("counter", contract("test.counter", `{"type": "object", "properties": {
			"n": {"type": "integer"}, "parentSubject$$": {"type": "string"}
		}, "required": ["n", "parentSubject$$"]}`, textAnswer))
		scripts := map[string]*sdktest.Model{
			"desk":    sdktest.Script(sdktest.Ask(sdktest.Tool("test_counter", n(3))), sdktest.Say("done")),
			"counter": sdktest.Script(sdktest.Say("counted")),
		}
		h := start(t, byModel(scripts), desk(calling(counter)), counter)
		succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
		equal(t, "messages", last(t, scripts["counter"]).Messages, []sdk.Message{sdk.Text(sdk.RoleUser, `{"n":3}`)})
	})
}

// seenCountDefault is row A6.
func seenCountDefault(t *testing.T) {
	a := desk()
	a.Hooks.Context = func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		plain := []sdk.Content{{Kind: sdk.ContentText, Text: "text"}}
		return sdk.Context{Messages: []sdk.Message{
			{Role: sdk.RoleUser, Content: plain}, {Role: sdk.RoleUser, Content: plain, Seen: 4},
		}}, nil
	}
	model := sdktest.Script(sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	h.Done(r)
	equal(t, "seen counts in the first request", seen(last(t, model).Messages), []int{0, 4})
	equal(t, "seen counts at the end", seen(h.Messages(r)), []int{1, 5, 1})
}

// resumeRestoresState is row A9.
func resumeRestoresState(t *testing.T) {
	a := desk(service("shop.find"))
	a.Spec.System = "You sell."
	a.Tools = []sdk.Tool{echo("note")}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Ask(sdktest.Tool("shop_find", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	before := h.Suspended(r, 1)
	equal(t, "seen counts of the suspended run", seen(before.Messages()), []int{2, 2, 1, 1})

	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	request := last(t, model)
	equal(t, "system prompt after the restart", request.System, "You sell.")
	equal(t, "messages after the restart", request.Messages[:len(before.History)], before.Messages())
	results(t, request.Messages, 2)
}

// echo is an internal tool that returns its arguments.
func echo(name string) sdk.Tool {
	return internal(name, func(_ context.Context, call sdk.ToolCall) ([]byte, error) { return call.Args, nil })
}

// internal is an inline tool that takes {"n": integer}.
func internal(name string, run func(context.Context, sdk.ToolCall) ([]byte, error)) sdk.Tool {
	return sdk.Tool{
		Definition: sdk.ToolDefinition{Name: name, Description: "A test's " + name + ".", Parameters: []byte(numberInput)},
		Run:        func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) { return run(ctx, call) },
	}
}

// waits reports whether the run ever was suspended.
func waits(entries []core.Entry) bool {
	for _, s := range statuses(entries) {
		if s == core.StatusWaiting {
			return true
		}
	}
	return false
}
