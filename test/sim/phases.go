package sim

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// hookState is what the hook of watch keeps from a run's beginning on.
var hookState = json.RawMessage(`{"begun":true}`)

// watch gives an agent a hook that sees every phase, which may hide tools, gate calls, speak and end the run.
func (s *simulation) watch(a *runner.Agent) {
	a.Core.Hooked, a.Core.Reviews, a.Core.Ends = true, true, true
	if !a.Core.NeedsRulings { // else nobody would ask the hook about calls
		s.gated(a, nil)
	}
	a.Phases = []sdk.Hook{{
		Name: "watch",
		RunStart: func(ctx context.Context, _ sdk.Snapshot) (sdk.StateEffects, error) {
			return sdk.StateEffects{State: hookState}, s.enterHook(ctx)
		},
		BeforeInference: func(ctx context.Context, snap sdk.Snapshot) (sdk.InferenceEffects, error) {
			var e sdk.InferenceEffects
			if s.pick(4) == 0 {
				e.Hide = []string{"b*"}
			}
			if s.strikes(hookEnds) {
				e.Terminate = "that is enough"
			}
			return e, s.seen(ctx, &snap)
		},
		AfterInference: func(ctx context.Context, r sdk.Inferred) (sdk.TurnEffects, error) {
			var e sdk.TurnEffects
			if s.strikes(hookEnds) {
				e.Terminate = "not like this"
			}
			return e, s.seen(ctx, &r.Snapshot)
		},
		BeforeToolExecute: func(ctx context.Context, c sdk.ToolAttempt) (sdk.Gate, error) {
			g := sdk.Gate{Verdict: gateOf(c.Call, c.Resumed), Reason: "so it is", Result: json.RawMessage(`{ "set" : 1 }`)}
			g.Terms.Stages = []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: minute}}
			return g, s.seen(ctx, &c.Snapshot)
		},
		AfterToolExecute: func(ctx context.Context, o sdk.ToolOutcome) (sdk.ToolEffects, error) {
			var e sdk.ToolEffects
			if s.pick(3) == 0 {
				e.Messages = []string{"mind the gap"}
			}
			return e, s.seen(ctx, &o.Snapshot)
		},
		RunEnd: func(ctx context.Context, _ sdk.Snapshot) error { return s.enterHook(ctx) },
	}}
}

// enterHook is the point before a hook.
func (s *simulation) enterHook(ctx context.Context) error {
	if err := s.enter(ctx, atHook); err != nil {
		return err
	}
	if s.strikes(hookFails) {
		if s.pick(2) == 0 {
			panic("hook")
		}
		return errStore
	}
	return nil
}

// seen checks what a hook is shown of a run that goes on.
func (s *simulation) seen(ctx context.Context, snap *sdk.Snapshot) error {
	if string(snap.State) != string(hookState) {
		s.violate("I2", "run %s: the hook kept %s, and is shown %q in %s", snap.Run, hookState, snap.State, snap.Phase)
	}
	return s.enterHook(ctx)
}

// gateOf is what the hook says of a call. It says the same each time, so that a call which it blocks is known never to be made.
func gateOf(call string, resumed bool) sdk.GateVerdict {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(call)) // never fails
	switch n := hash.Sum32() % 10; {
	case n == 0:
		return sdk.GateBlock
	case n == 1 && !resumed:
		return sdk.GateSuspend
	case n == 2:
		return sdk.GateResult
	case n == 3 && resumed:
		return sdk.GateBlock
	}
	return sdk.GateAllow
}

// gatedService is gatedCall for what is sent to a service. Context providers are not the model's calls: hooks do not judge them.
func (s *simulation) gatedService(agent, service, call string) {
	isTool := func(a *runner.Agent) bool {
		return slices.ContainsFunc(a.Core.Tools, func(t core.Tool) bool { return t.Type == service })
	}
	if slices.ContainsFunc(s.agents[agent], isTool) {
		s.gatedCall(agent, call)
	}
}

// gatedCall sees that a call which is made was not blocked.
func (s *simulation) gatedCall(agent, call string) {
	if ref, ok := wire.ParseCallRef(call); ok && s.hooked && gateOf(ref.ID, false) == sdk.GateBlock {
		s.violate("I13", "call %s of %s is made, which a hook blocks", call, agent)
	}
}
