package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

const loopConfig = `
agents:
  - name: a
    model: {name: m}
    tools: {builtin: [task_completion]}
    stop:
      interactions: 30
      tokens: 200000
      deadline: 72h
      errors: 3
      same_error: 5
      loop: {repeats: 3, window: 10}
      tools: [task_completion]
      text: [FINISHED]
    no_tool_call: {policy: remind, reminders: 2}
    steering: interrupt
    order: sequential
    decisions: batch
    hooks:
      - {name: first, when: interactions == 0, message: Look., keep: true, hide: ["b*"]}
`

func TestLoad_HowTheLoopGoesOnAndEnds(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, write(t, map[string]string{"agentd.yaml": loopConfig})).Agents[0]
	have := []any{s.Limits, s.StopOn, s.Stop, s.NoToolCall, s.Steering, s.Order, s.Decisions, s.Rules}
	want := []any{
		sdk.Limits{Interactions: 30, Tokens: 200000, DeadlineMillis: 72 * 3600_000},
		[]string{"task_completion"},
		sdk.StopConditions{Errors: 3, SameError: 5, Repeats: 3, Window: 10, Text: []string{"FINISHED"}},
		&sdk.NoToolCall{Policy: sdk.NoToolCallRemind, Reminders: 2}, sdk.SteeringInterrupt, sdk.CallsSequential, sdk.DecisionsBatch,
		[]sdk.HookRule{{Name: "first", When: "interactions == 0", Message: "Look.", Keep: true, Hide: []string{"b*"}}},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLoad_RefusesLoopsThatMakeNoSense(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, to, fault string }{
		"twice":      {"no_tool_call:", "limits: {tokens: 5}\n    no_tool_call:", "tokens: stands in stop and in limits"},
		"no loop":    {"repeats: 3", "repeats: 1", "repeats: want at least 2, got 1"},
		"policy":     {"policy: remind", "policy: nag", "policy: want accept or remind or remind_then_accept"},
		"steering":   {"interrupt", "shout", "steering: want queue or interrupt or reject"},
		"decisions":  {"decisions: batch", "decisions: later", "decisions: want immediate or batch"},
		"no name":    {"name: first, ", "", "a hook needs a name"},
		"no CEL":     {"interactions == 0", "interactions ==", "is no CEL expression"},
		"no boolean": {"interactions == 0", "interactions", "want true or false"},
		"idle hook":  {`, message: Look., keep: true, hide: ["b*"]`, "", "the hook does nothing"},
		"no tool":    {"tools: [task_completion]\n", "tools: [fly]\n", `"fly" is no tool of the agent`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(write(t, map[string]string{"agentd.yaml": strings.Replace(loopConfig, c.change, c.to, 1)}))
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %v, want %q", err, c.fault)
			}
		})
	}
}

const contextConfig = `
agents:
  - name: a
    model: {name: m}
    tools: {services: [{contract: b}]}
    context:
      planning: {contract: b, ask: once, on_failure: fail, timeout: 20s, retry: {attempts: 3}}
      retrieval: {contract: shop.search, version: ^2}
  - name: b
    model: {name: m}
    contract:
      accepts: {type: object, properties: {task: {type: string}}, required: [task]}
`

func TestLoad_ServicesThatAreAskedForContext(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, write(t, map[string]string{"agentd.yaml": contextConfig})).Agents[0]
	var have []any
	for _, service := range s.Services {
		have = append(have, service.Contract.Type, service.Version, service.Agent, service.Context, service.TimeoutMillis, service.Retry)
	}
	want := []any{
		"b", "1.0.0", true, (*sdk.ContextUse)(nil), int64(0), (*sdk.Retry)(nil),
		"b", "1.0.0", true, &sdk.ContextUse{Section: "planning", Ask: sdk.AskOnce, OnFailure: sdk.ContextFail}, int64(20_000), &sdk.Retry{Attempts: 3},
		"shop.search", "^2", false, &sdk.ContextUse{Section: "retrieval"}, int64(0), (*sdk.Retry)(nil),
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLoad_RefusesContextThatCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ change, to, fault string }{
		"when":      {"ask: once", "ask: never", "agentd.yaml:7:36: ask: want every_call or once"},
		"failure":   {"on_failure: fail", "on_failure: cry", "on_failure: want continue or fail"},
		"contract":  {"{contract: shop.search, version: ^2}", "{version: ^2}", "a service needs a contract"},
		"no tool":   {"ask: once", "as: plan", "unknown key"},
		"question":  {"{task: {type: string}}, required: [task]", "{query: {type: string}}, required: [query]", "agentd.yaml:7"},
		"arguments": {"{task: {type: string}}, required: [task]", "{query: {type: string}}, required: [query]", "accepts questions for context"},
		"range":     {"^2", "two", "two"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(write(t, map[string]string{"agentd.yaml": strings.Replace(contextConfig, c.change, c.to, 1)}))
			if err == nil || !strings.Contains(err.Error(), c.fault) {
				t.Errorf("got %v, want %q", err, c.fault)
			}
		})
	}
}
