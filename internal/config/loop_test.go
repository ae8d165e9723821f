package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/prompt"
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
    answers: small-model
    steering: interrupt
    order: sequential
    decisions: batch
    hooks:
      - {name: first, when: interactions == 0, message: Look., keep: true, hide: ["task_*"]}
`

func TestLoad_HowTheLoopGoesOnAndEnds(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, write(t, map[string]string{"agentd.yaml": loopConfig})).Agents[0]
	have := []any{s.Limits, s.StopOn, s.Stop, s.NoToolCall, s.Answers, s.Steering, s.Order, s.Decisions, s.Rules}
	want := []any{
		sdk.Limits{Interactions: 30, Tokens: 200000, DeadlineMillis: 72 * 3600_000},
		[]string{"task_completion"},
		sdk.StopConditions{Errors: 3, SameError: 5, Repeats: 3, Window: 10, Text: []string{"FINISHED"}},
		&sdk.NoToolCall{Policy: sdk.NoToolCallRemind, Reminders: 2},
		&sdk.Answers{Incomplete: 10, Deflecting: 3, Summary: true}, sdk.SteeringInterrupt, sdk.CallsSequential, sdk.DecisionsBatch,
		[]sdk.HookRule{{Name: "first", When: "interactions == 0", Message: "Look.", Keep: true, Hide: []string{"task_*"}}},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

const guidanceConfig = `
agents:
  - {name: a, model: {name: m}, guidance: standard}
  - {name: b, model: {name: m}, guidance: {loop: standard, thinking: "Think of {{.Input.message}}."}}
  - {name: c, model: {name: m}, guidance: {}}
`

// The sections that come with agentd are templates like any other, and are part of the spec: a run keeps those that it began with.
func TestLoad_GuidanceThatComesWithAgentd(t *testing.T) {
	t.Parallel()
	shipped := sdk.StandardGuidance()
	want := []*sdk.Guidance{&shipped, {Loop: shipped.Loop, Thinking: "Think of {{.Input.message}}."}, nil}
	for i, a := range mustLoad(t, write(t, map[string]string{"agentd.yaml": guidanceConfig})).Agents {
		if diff := cmp.Diff(want[i], a.Guidance); diff != "" {
			t.Errorf("agent %s (-want +got):\n%s", a.Name, diff)
		}
	}
	for _, text := range []string{shipped.Loop, shipped.Capabilities, shipped.Thinking} {
		if faults := prompt.Check[prompt.Data](text, nil); len(faults) > 0 || text == "" {
			t.Errorf("faults %v in %q", faults, text)
		}
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

// The least constraints that an agent may have hold its runs to those of whoever starts them.
func TestLoad_ConstraintsThatBoundNothingByThemselves(t *testing.T) {
	t.Parallel()
	s := mustLoad(t, write(t, map[string]string{"agentd.yaml": "agents: [{name: a, model: {name: m}, constraints: {read_only: false}}]\n"})).Agents[0]
	if diff := cmp.Diff(&sdk.Constraints{}, s.Constraints); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
