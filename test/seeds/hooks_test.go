package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// phases records which phases of hooks were called, in order.
type phases struct {
	mu   sync.Mutex
	seen []string
}

func (p *phases) note(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, fmt.Sprintf(format, args...))
}

func (p *phases) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// await waits until a phase was called: a suspended run is told of once that is stored.
func (p *phases) await(t *testing.T, phase string) {
	t.Helper()
	p.awaitCount(t, phase, 1)
}

func (p *phases) awaitCount(t *testing.T, phase string, times int) {
	t.Helper()
	await(t, phase, func() bool { return count(p.all(), phase) >= times })
}

// hook is one that records every phase.
func (p *phases) hook(name string) sdk.Hook {
	state := func(_ context.Context, s sdk.Snapshot) (sdk.StateEffects, error) {
		p.note("%s", s.Phase)
		return sdk.StateEffects{}, nil
	}
	return sdk.Hook{
		Name: name, RunStart: state, StepStart: state, StepEnd: state,
		BeforeInference: func(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
			p.note("%s", s.Phase)
			return sdk.InferenceEffects{}, nil
		},
		AfterInference: func(_ context.Context, r sdk.Inferred) (sdk.TurnEffects, error) {
			if p.note("%s", r.Phase); r.Err != nil {
				p.note("with an error")
			}
			return sdk.TurnEffects{}, nil
		},
		BeforeToolExecute: func(_ context.Context, c sdk.ToolAttempt) (sdk.Gate, error) {
			p.note("%s %s", c.Phase, c.Tool)
			return sdk.Gate{}, nil
		},
		AfterToolExecute: func(_ context.Context, o sdk.ToolOutcome) (sdk.ToolEffects, error) {
			p.note("%s %s %s", o.Phase, o.Tool, o.Outcome)
			return sdk.ToolEffects{}, nil
		},
		RunEnd: func(_ context.Context, s sdk.Snapshot) error {
			p.note("%s %s %s", s.Phase, s.Status, s.Reason)
			return nil
		},
	}
}

var oneStep = []string{"StepStart", "BeforeInference", "AfterInference", "StepEnd"}

// phasesInOrder is rows T1 and T8: every phase is called in the order of the seed, and each suspension and the
// end are a RunEnd.
func phasesInOrder(t *testing.T) {
	var p phases
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	a.Hooks.Phases = []sdk.Hook{p.hook("all")}
	h := start(t, sdktest.Script(
		sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("nothing", n(3))),
		sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	p.await(t, "RunEnd waiting ")
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	var want []string
	want = append(want, "RunStart")
	want = append(want, oneStep...)
	want = append(want, "BeforeToolExecute note", "BeforeToolExecute shop_find", "AfterToolExecute shop_find suspended",
		"RunEnd waiting ", "AfterToolExecute note succeeded", "AfterToolExecute shop_find succeeded",
		"AfterToolExecute nothing failed")
	want = append(want, oneStep...)
	want = append(want, "RunEnd done completed:answer")
	equal(t, "phases", p.all(), want)
}

// runEndOnEveryPath is row T19: however a run ends, RunEnd is told why, and so is whoever reads the terminal event.
func runEndOnEveryPath(t *testing.T) {
	show(t, phasesInOrder)
	for _, way := range []struct {
		name, reason string
		model        sdk.Provider
		change       func(*sdk.Agent)
		act          func(*testing.T, *harness.Harness, harness.Run, *phases)
	}{
		{name: "error", reason: "error:model_failed", model: sdktest.Script()},
		{
			name: "quota", reason: "quota:interactions", model: sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)))),
			change: func(a *sdk.Agent) { a.Spec.Limits.Interactions = 1 },
		},
		{
			name: "stopped", reason: "stopped:tool", model: sdktest.Script(complete(map[string]any{"response": "x"})),
			change: func(a *sdk.Agent) { a.Spec.Builtin = []string{"task_completion"} },
		},
		{
			name: "cancelled", reason: "cancelled:asked", model: sdktest.Script(find(1)),
			act: func(t *testing.T, h *harness.Harness, r harness.Run, p *phases) {
				p.await(t, "RunEnd waiting ")
				h.Cancel(r, "enough")
			},
		},
		{
			name: "terminated", reason: "terminated:stopper", model: sdktest.Script(sdktest.Say("never")),
			change: func(a *sdk.Agent) {
				a.Hooks.Phases = append(a.Hooks.Phases, sdk.Hook{
					Name: "stopper", BeforeInference: func(context.Context, sdk.Snapshot) (sdk.InferenceEffects, error) {
						return sdk.InferenceEffects{Terminate: "no more"}, nil
					},
				})
			},
		},
	} {
		t.Run(way.name, func(t *testing.T) {
			var p phases
			a := desk(service("shop.find"))
			a.Tools = []sdk.Tool{echo("note")}
			a.Hooks.Phases = []sdk.Hook{p.hook("all")}
			if way.change != nil {
				way.change(&a)
			}
			h := start(t, way.model, a)
			r := h.Run("desk", message("hello"))
			if way.act != nil {
				way.act(t, h, r, &p)
			}
			event := h.Done(r)
			equal(t, "reason in the terminal event", event.Extensions[wire.TerminationReason], any(way.reason))
			seen := p.all()
			equal(t, "last phase", seen[len(seen)-1], "RunEnd done "+way.reason)
			equal(t, "phases called once", count(seen, "RunEnd done "+way.reason), 1)
		})
	}
}

func count(list []string, what string) int {
	n := 0
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}

// terminatesFirst is rows T8, T9 and T44: a hook ends the run before the model is asked, and is the reason.
func terminatesFirst(t *testing.T) {
	a := desk()
	a.Hooks.Phases = []sdk.Hook{{Name: "stopper", BeforeInference: func(context.Context, sdk.Snapshot) (sdk.InferenceEffects, error) {
		return sdk.InferenceEffects{Terminate: "no more"}, nil
	}}}
	model := sdktest.Script(sdktest.Say("never"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	p := fails(t, h, r, deskType)
	equal(t, "problem", []string{string(p.Code), p.ErrorMessage}, []string{"terminated", "no more"})
	equal(t, "reason", reason(h, r), "terminated:stopper")
	asked(t, model, 0)
}

// stepHooks is row T8.
func stepHooks(t *testing.T) {
	t.Run("called", func(t *testing.T) { show(t, phasesInOrder) })
	t.Run("terminate", func(t *testing.T) { show(t, terminatesFirst) })
}

// allHooks is row F56.
func allHooks(t *testing.T) {
	t.Run("called", func(t *testing.T) { show(t, phasesInOrder) })
	t.Run("gates", allGates)
}

// hookTerminates is rows T9 and T44: a hook ends the run before the model is asked, or after its reply and before any call.
func hookTerminates(t *testing.T) {
	show(t, terminatesFirst)
	ran := false
	a := desk()
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		ran = true
		return []byte(`{}`), nil
	})}
	a.Hooks.Phases = []sdk.Hook{{
		Name: "censor", AfterInference: func(_ context.Context, r sdk.Inferred) (sdk.TurnEffects, error) {
			if len(r.Reply.Calls) > 0 {
				return sdk.TurnEffects{Terminate: "no tools today"}, nil
			}
			return sdk.TurnEffects{}, nil
		},
	}}
	h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1)))), a)
	r := h.Run("desk", message("hello"))
	p := fails(t, h, r, deskType)
	equal(t, "problem", []string{string(p.Code), p.ErrorMessage}, []string{string(sdk.CodeTerminated), "no tools today"})
	equal(t, "the call was made", ran, false)
	s := h.State(r)
	equal(t, "reason", []string{string(s.Reason), s.ReasonCode}, []string{"terminated", "censor"})
	equal(t, "calls that were not made", h.Parts(r)[len(h.Parts(r))-1].Dropped, []string{"note"})
}

// toolFiltering is row T45: a hook and a rule decide which tools the model may use in a step; others are refused.
func toolFiltering(t *testing.T) {
	a := desk(service("shop.find"), service("shop.buy"))
	a.Tools = []sdk.Tool{echo("note")}
	a.Spec.Rules = []sdk.HookRule{{Name: "first look", When: "interactions == 0", Hide: []string{"shop_b*"}}}
	a.Hooks.Phases = []sdk.Hook{{
		Name: "then buy", BeforeInference: func(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
			if s.Interactions == 1 {
				return sdk.InferenceEffects{Only: []string{"shop_buy"}}, nil
			}
			return sdk.InferenceEffects{}, nil
		},
	}}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_buy", n(1))), sdktest.Ask(sdktest.Tool("note", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	var shown [][]string
	for _, request := range asked(t, model, 3) {
		shown = append(shown, toolNames(request))
	}
	equal(t, "tools that the model is shown", shown,
		[][]string{{"shop_find", "note"}, {"shop_buy"}, {"shop_find", "shop_buy", "note"}})
	for _, c := range results(t, h.Messages(r), 2) {
		equal(t, "code", problem(t, c).Code, sdk.CodeUnknownTool)
	}
}

// reminders is row T61: of hooks that remind of the same, the model hears one; it is reminded again after so many steps, or when there
// is something new to say; and of some things once only. What it has heard is remembered over restarts.
func reminders(t *testing.T) {
	t.Run("messages", contextMessages)
	remind := func(name string, m func(sdk.Snapshot) sdk.ContextMessage) sdk.Hook {
		return sdk.Hook{Name: name, BeforeInference: func(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
			return sdk.InferenceEffects{Context: []sdk.ContextMessage{m(s)}}, nil
		}}
	}
	goal := func(sdk.Snapshot) sdk.ContextMessage {
		return sdk.ContextMessage{Text: "mind the goal", Key: "goal", Cooldown: 2}
	}
	a := desk(service("shop.find"))
	a.Spec.Rules = []sdk.HookRule{
		{Name: "hello", Message: "be brief", Once: true}, {Name: "stock", When: "interactions >= 1", Message: "mind the stock", Cooldown: 3},
	}
	a.Hooks.Phases = []sdk.Hook{remind("a", goal), remind("b", goal), remind("c", func(s sdk.Snapshot) sdk.ContextMessage {
		return sdk.ContextMessage{Text: fmt.Sprint("phase ", s.Interactions/4), Key: "phase", Cooldown: 100}
	})}
	model := sdktest.Script(find(1), find(2), find(3), find(4), find(5), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	for range 5 {
		h.Suspended(r, 1)
		h.Restart()
		h.Call("shop.find").Answer("shop.find.done", value("it"))
	}
	succeeds(t, h, r, `{"response": "done"}`)
	var told []string
	for _, request := range asked(t, model, 6) {
		var texts []string
		for _, m := range request.Messages {
			if text := m.PlainText(); m.Role == sdk.RoleUser && text != "hello" && text != "" {
				texts = append(texts, text)
			}
		}
		told = append(told, strings.Join(texts, ", "))
	}
	equal(t, "what each model call is told", told, []string{
		"be brief, mind the goal, phase 0", "mind the stock", "", "mind the goal", "phase 1", "mind the stock",
	})

	bare := desk()
	bare.Hooks.Phases = []sdk.Hook{remind("bare", func(sdk.Snapshot) sdk.ContextMessage { return sdk.ContextMessage{Text: "x", Once: true} })}
	h = start(t, sdktest.Script(sdktest.Say("never")), bare)
	r = h.Run("desk", message("hello"))
	fails(t, h, r, deskType)
	equal(t, "a reminder without a key", reason(h, r), "error:hook")
}

// contextMessages: what a hook shows the model is seen in that step alone, unless it is to be kept.
func contextMessages(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("note")}
	a.Spec.Rules = []sdk.HookRule{{Name: "hint", When: "interactions == 0", Message: "be quick"}}
	a.Hooks.Phases = []sdk.Hook{{
		Name: "fact", BeforeInference: func(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
			if s.State != nil {
				return sdk.InferenceEffects{}, nil
			}
			return sdk.InferenceEffects{
				StateEffects: sdk.StateEffects{State: []byte(`{"told": true}`)},
				Context:      []sdk.ContextMessage{{Text: "it is Monday", Keep: true}},
			}, nil
		},
		AfterToolExecute: func(context.Context, sdk.ToolOutcome) (sdk.ToolEffects, error) {
			return sdk.ToolEffects{Messages: []string{"note that"}}, nil
		},
	}}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done"))
	h := start(t, model, a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	texts := func(request sdk.ModelRequest) (all []string) {
		for _, m := range request.Messages {
			if text := m.PlainText(); m.Role == sdk.RoleUser && text != "" {
				all = append(all, text)
			}
		}
		return all
	}
	requests := asked(t, model, 2)
	equal(t, "first request", texts(requests[0]), []string{"hello", "it is Monday", "be quick"})
	equal(t, "second request", texts(requests[1]), []string{"hello", "it is Monday", "note that"})
}

// hookGates is rows T31 and T32 for hooks: block, suspend, and set the result; the strictest counts.
func hookGates(t *testing.T) {
	gate := func(name string, by map[string]sdk.Gate) sdk.Hook {
		return sdk.Hook{Name: name, BeforeToolExecute: func(_ context.Context, c sdk.ToolAttempt) (sdk.Gate, error) {
			if c.Tool == "broken" {
				return sdk.Gate{}, errors.New("lost its mind")
			}
			if c.Resumed {
				return sdk.Gate{}, nil
			}
			return by[c.Tool], nil
		}}
	}
	a := desk(service("shop.find"), service("shop.buy"))
	a.Tools = []sdk.Tool{echo("note"), echo("broken"), echo("pay")}
	set := sdk.Gate{Verdict: sdk.GateResult, Result: []byte(`{"value": "from the cache"}`)}
	a.Hooks.Phases = []sdk.Hook{
		gate("cache", map[string]sdk.Gate{"shop_find": set, "shop_buy": set}),
		gate("guard", map[string]sdk.Gate{
			"shop_buy": {Verdict: sdk.GateBlock, Reason: "closed on Sundays"}, "pay": {Verdict: sdk.GateSuspend, Reason: "dear"},
		}),
	}
	model := sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_buy", n(2)), sdktest.Tool("note", n(3)),
		sdktest.Tool("broken", n(4)), sdktest.Tool("pay", n(5)),
	), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	asked := request(t, h)
	equal(t, "what is asked", []any{asked.Data()["tool"], asked.Data()["reason"], asked.Data()["rule"]}, []any{"pay", "dear", "hook guard"})
	decide(asked, allow)
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.find")
	told := results(t, h.Messages(r), 5)
	equalJSON(t, "set result", []byte(told[0].Text), `{"value": "from the cache"}`)
	equal(t, "blocked", []any{problem(t, told[1]).Code, strings.Contains(told[1].Text, "closed on Sundays")}, []any{sdk.CodeBlocked, true})
	equal(t, "made", []bool{told[2].IsError, told[4].IsError}, []bool{false, false})
	equal(t, "a hook that fails blocks", problem(t, told[3]).Code, sdk.CodeBlocked)
}

// hookOrder: hooks are called in the order that they ask for, and what cannot be ordered does not load.
func hookOrder(t *testing.T) {
	var p phases
	named := func(name string, before, after []string) sdk.Hook {
		return sdk.Hook{Name: name, Before: before, After: after, StepStart: func(context.Context, sdk.Snapshot) (sdk.StateEffects, error) {
			p.note("%s", name)
			return sdk.StateEffects{}, nil
		}}
	}
	a := desk()
	a.Hooks.Phases = []sdk.Hook{
		named("c", nil, []string{"b"}), named("a", nil, nil), named("b", nil, nil), named("first", []string{"c", "a"}, nil),
	}
	h := start(t, sdktest.Script(sdktest.Say("done")), a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	equal(t, "order", p.all(), []string{"b", "first", "c", "a"})
}

// hookState is what a hook keeps: it survives suspension and restarts, and is gone with the run.
func hookState(t *testing.T) {
	a := desk(service("shop.find"))
	a.Hooks.Phases = []sdk.Hook{{
		Name: "counter", StepStart: func(_ context.Context, s sdk.Snapshot) (sdk.StateEffects, error) {
			var steps int
			if s.State != nil {
				if err := json.Unmarshal(s.State, &steps); err != nil {
					return sdk.StateEffects{}, err
				}
			}
			return sdk.StateEffects{State: fmt.Appendf(nil, "%d", steps+1)}, nil
		},
	}}
	h := start(t, sdktest.Script(find(1), find(2), sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	for range 2 {
		h.Suspended(r, 1)
		h.Restart()
		h.Call("shop.find").Answer("shop.find.done", value("it"))
	}
	succeeds(t, h, r, `{"response": "done"}`)
	var kept []string
	for _, e := range h.Parts(r) {
		if e.Kind == "replied" && e.Head.Status != core.StatusDone {
			kept = append(kept, string(e.Head.HookState("counter")))
		}
	}
	equal(t, "kept", kept, []string{"1", "2"})
}

// distinctExits is row T10: a model call that fails is an error, one that is cancelled is not.
func distinctExits(t *testing.T) {
	t.Run("error", hooksOverFailures)
	t.Run("cancelled", func(t *testing.T) { show(t, twoCancels) })
}

// hooksOverFailures is row T10's one half: AfterInference and StepEnd see a model call that failed.
func hooksOverFailures(t *testing.T) {
	var p phases
	a := desk()
	a.Hooks.Phases = []sdk.Hook{p.hook("all")}
	h := start(t, sdktest.Script(), a)
	fails(t, h, h.Run("desk", message("hello")), deskType)
	equal(t, "phases", p.all(), []string{
		"RunStart", "StepStart", "BeforeInference", "AfterInference", "with an error", "StepEnd", "RunEnd done error:model_failed",
	})
}
