package seeds_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// runStartFirst is row T2: what RunStart does is done before the user's message is kept, and is kept with it.
func runStartFirst(t *testing.T) {
	var h *harness.Harness
	var key harness.Run
	var began, entries int
	var seen []string
	a := desk(service("shop.find"))
	a.Hooks.Phases = []sdk.Hook{{
		Name: "starter",
		RunStart: func(_ context.Context, s sdk.Snapshot) (sdk.StateEffects, error) {
			began++
			entries = len(h.Parts(key))
			return sdk.StateEffects{State: []byte(`{"opened":"` + s.Messages[0].PlainText() + `"}`)}, nil
		},
		BeforeInference: func(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
			seen = append(seen, string(s.State))
			return sdk.InferenceEffects{}, nil
		},
	}}
	h = start(t, sdktest.Script(find(1), sdktest.Say("done")), a)
	init := h.Init("desk", message("hello"))
	key = harness.Run{Key: wire.NewRunKey(init.Subject)}
	r := h.Send("desk", init)
	h.Suspended(r, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "calls of RunStart, and what was kept before", []int{began, entries}, []int{1, 0})
	first := h.Parts(r)[0]
	equal(t, "checkpoints of the first entry", checkpoints(h.Parts(r)[:1]), checkpointsOf("UserMessage"))
	equal(t, "what is kept with the message", string(first.Head.HookState("starter")), `{"opened":"hello"}`)
	equal(t, "what later phases find", seen, []string{`{"opened":"hello"}`, `{"opened":"hello"}`})
}

// afterEveryOutcome is row T35: whatever becomes of a call, AfterToolExecute is told: when it is over, and when it has to wait.
func afterEveryOutcome(t *testing.T) {
	var p phases
	a := desk(service("shop.find"), service("shop.wipe"), service("shop.buy"))
	a.Tools = []sdk.Tool{echo("note"), failing("broken"), echo("locked"), echo("known"), echo("pay")}
	a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
		{Tools: []string{"shop_wipe"}, Verdict: sdk.PermissionDeny}, {Tools: []string{"pay"}, Verdict: sdk.PermissionAsk},
	}}
	a.Hooks.Phases = []sdk.Hook{{
		Name: "all",
		BeforeToolExecute: func(_ context.Context, c sdk.ToolAttempt) (sdk.Gate, error) {
			switch c.Tool {
			case "locked":
				return sdk.Gate{Verdict: "block", Reason: "closed"}, nil
			case "known":
				return sdk.Gate{Verdict: "result", Result: []byte(`{"n":0}`)}, nil
			}
			return sdk.Gate{}, nil
		},
		AfterToolExecute: func(_ context.Context, o sdk.ToolOutcome) (sdk.ToolEffects, error) {
			p.note("%s %s", o.Tool, o.Outcome)
			return sdk.ToolEffects{Messages: []string{o.Tool + " " + string(o.Outcome)}}, nil
		},
	}}
	model := sdktest.Script(sdktest.Ask(
		sdktest.Tool("note", n(1)), sdktest.Tool("broken", n(2)), sdktest.Tool("locked", n(3)), sdktest.Tool("known", n(4)),
		sdktest.Tool("shop_wipe", n(5)), sdktest.Tool("shop_find", n(6)), sdktest.Tool("pay", n(7)), sdktest.Tool("shop_buy", "wrong"),
		sdktest.Tool("nothing", n(9))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	decide(request(t, h), sdk.PermissionDecision{Decision: "deny"})
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	want := []string{
		"shop_find suspended", "pay suspended",
		"note succeeded", "broken failed", "locked blocked", "known succeeded", "shop_wipe blocked", "shop_find succeeded", "pay blocked",
		"shop_buy failed", "nothing failed",
	}
	equal(t, "outcomes", p.all(), want)
	var told []string
	for _, m := range last(t, model).Messages {
		if text := m.PlainText(); m.Role == sdk.RoleUser && len(toolResults(m)) == 0 && text != "hello" {
			told = append(told, text)
		}
	}
	equal(t, "what the model is told of them, of those that waited last", told, append(append([]string(nil), want[2:]...), want[:2]...))
}

func toolResults(m sdk.Message) (all []sdk.Content) {
	for _, c := range m.Content {
		if c.Kind == sdk.ContentToolResult {
			all = append(all, c)
		}
	}
	return all
}

// deferredStop is row T53: a run that is to stop first makes all calls of the reply and waits for their results.
func deferredStop(t *testing.T) {
	for name, stop := range map[string]struct {
		reason string
		text   string
		calls  []sdk.ToolRequest
		spec   func(*sdk.AgentSpec)
	}{
		"text": {
			reason: "stopped:text", text: "All FINISHED.", spec: func(s *sdk.AgentSpec) { s.Stop.Text = []string{"FINISHED"} },
		},
		"tool": {
			reason: "stopped:tool", spec: func(s *sdk.AgentSpec) { s.Builtin = []string{"task_completion"} },
			calls: []sdk.ToolRequest{sdktest.Tool("task_completion", map[string]any{"result": "All FINISHED."})},
		},
		"limit": {reason: "quota:interactions", spec: func(s *sdk.AgentSpec) { s.Limits.Interactions = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			var ran atomic.Int64
			a := desk(service("shop.find"))
			a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
				ran.Add(1)
				return []byte(`{"noted":true}`), nil
			})}
			stop.spec(&a.Spec)
			reply := sdktest.Ask(append(stop.calls, sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2)))...)
			reply.Text = stop.text
			model := sdktest.Script(reply)
			h := start(t, model, a)
			r := h.Run("desk", message("hello"))
			call := h.Call("shop.find")
			equal(t, "status while a service works", string(h.Suspended(r, 1).Status), "waiting")
			equal(t, "tools that ran", ran.Load(), int64(1))
			call.Answer("shop.find.done", value("it"))
			equal(t, "reason", reason(h, r), stop.reason)
			told := results(t, h.Messages(r), len(stop.calls)+2)[len(stop.calls):]
			equal(t, "results", []string{told[0].Text, told[1].Text}, []string{`{"noted":true}`, `{"value":"it"}`})
			asked(t, model, 1)
		})
	}
}

// runtimeErrors is row T37: what goes wrong outside of tools ends the run with an error: code of the agent, what it keeps, and what
// cannot be stored.
func runtimeErrors(t *testing.T) {
	keeping := func(state string) sdk.Hook {
		return sdk.Hook{StepStart: func(context.Context, sdk.Snapshot) (sdk.StateEffects, error) {
			return sdk.StateEffects{State: []byte(state)}, nil
		}}
	}
	for name, way := range map[string]struct {
		reason string
		hook   sdk.Hook
		reply  string
		model  int
	}{
		"executor": {reason: "error:hook", model: 1, hook: sdk.Hook{
			AfterToolExecute: func(context.Context, sdk.ToolOutcome) (sdk.ToolEffects, error) {
				return sdk.ToolEffects{}, errors.New("no")
			},
		}},
		"executor that panics": {reason: "error:hook", hook: sdk.Hook{
			BeforeInference: func(context.Context, sdk.Snapshot) (sdk.InferenceEffects, error) { panic("no") },
		}},
		"patch that is not JSON":       {reason: "error:hook", hook: keeping(`{"n":`)},
		"patch that is too large":      {reason: "error:hook", hook: keeping(`"` + strings.Repeat("x", 5000) + `"`)},
		"checkpoint that is too large": {hook: keeping(`{}`), reason: "error:too_large", model: 1, reply: strings.Repeat("x", 3<<20)},
	} {
		t.Run(name, func(t *testing.T) {
			reply := sdktest.Ask(sdktest.Tool("note", n(1)))
			if way.reply != "" {
				reply = sdktest.Say(way.reply)
			}
			a := desk()
			a.Tools = []sdk.Tool{echo("note")}
			way.hook.Name = "hurt"
			a.Hooks.Phases = []sdk.Hook{way.hook}
			a.Spec.Limits.DeadlineMillis = 20_000 // for a run that is not ended by its error
			model := sdktest.Script(reply, sdktest.Say("never"))
			h := start(t, model, a)
			r := h.Run("desk", message("hello"))
			fails(t, h, r, deskType)
			equal(t, "reason", reason(h, r), way.reason)
			asked(t, model, way.model)
		})
	}
}
