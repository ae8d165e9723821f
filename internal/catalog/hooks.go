package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/expression"
	"agentd/internal/toolpattern"
	"agentd/sdk"
)

// hooksOf are the hooks of an agent in the order in which they are called: that of its constraints first, its rules, as they stand, then
// those in Go.
func hooksOf(a sdk.Agent, describe func(tool string) sdk.PermissionCheck) ([]sdk.Hook, error) {
	var faults []string
	hooks, err := constraintHooks(a.Spec, func(tool string) bool { return changesNothing(a.Spec.Guards, tool, describe) })
	if err != nil {
		faults = append(faults, sdk.AsError(err).Message)
	}
	for i := range a.Spec.Rules {
		hook, err := ruleHook(a.Spec.Rules[i])
		if err != nil {
			faults = append(faults, sdk.AsError(err).Message)
			continue
		}
		hooks = append(hooks, hook)
	}
	hooks = append(hooks, a.Hooks.Phases...)
	ordered, more := orderHooks(hooks)
	if faults = append(faults, more...); len(faults) > 0 {
		return nil, sdk.Errorf(sdk.CodeConfig, "hooks: %s", strings.Join(faults, "; "))
	}
	return ordered, nil
}

// orderHooks sorts hooks so that each comes after those it is to come after. Where nothing is said they stay as they are.
func orderHooks(hooks []sdk.Hook) (ordered []sdk.Hook, faults []string) {
	index := map[string]int{}
	for i := range hooks {
		name := hooks[i].Name
		if _, taken := index[name]; taken || name == "" {
			faults = append(faults, fmt.Sprintf("a hook needs a name of its own, got %q", name))
		}
		if !acts(&hooks[i]) {
			faults = append(faults, fmt.Sprintf("hook %q is called in no phase", name))
		}
		index[name] = i
	}
	after := make([][]int, len(hooks)) // which hooks come before each
	for i := range hooks {
		for _, other := range append(slices.Clone(hooks[i].Before), hooks[i].After...) {
			j, known := index[other]
			switch {
			case !known:
				faults = append(faults, fmt.Sprintf("hook %q is to be ordered by %q, which the agent does not have as a hook", hooks[i].Name, other))
			case slices.Contains(hooks[i].Before, other):
				after[j] = append(after[j], i)
			default:
				after[i] = append(after[i], j)
			}
		}
	}
	if len(faults) > 0 {
		return nil, faults
	}
	placed := make([]bool, len(hooks))
	for len(ordered) < len(hooks) {
		next := slices.IndexFunc(indices(len(hooks)), func(i int) bool {
			return !placed[i] && !slices.ContainsFunc(after[i], func(j int) bool { return !placed[j] })
		})
		if next < 0 {
			return nil, []string{"the order of " + strings.Join(unplaced(hooks, placed), ", ") + " goes in a circle"}
		}
		placed[next] = true
		ordered = append(ordered, hooks[next])
	}
	return ordered, nil
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func unplaced(hooks []sdk.Hook, placed []bool) []string {
	var names []string
	for i := range hooks {
		if !placed[i] {
			names = append(names, hooks[i].Name)
		}
	}
	return names
}

// acts reports whether the hook has a function for some phase.
func acts(h *sdk.Hook) bool {
	return h.RunStart != nil || h.StepStart != nil || h.BeforeInference != nil || h.AfterInference != nil || h.StepEnd != nil ||
		h.BeforeToolExecute != nil || h.AfterToolExecute != nil || h.RunEnd != nil
}

// gates, reviews and ends report whether a hook sees calls before they are made, their results, and the end of the run.
func gates(h sdk.Hook) bool   { return h.BeforeToolExecute != nil }
func reviews(h sdk.Hook) bool { return h.AfterToolExecute != nil }
func ends(h sdk.Hook) bool    { return h.RunEnd != nil }

// ruleHook is a rule as a hook. Where its condition cannot be evaluated, because a field is missing for example, it keeps tools
// from being used all the same, and does nothing else.
func ruleHook(r sdk.HookRule) (sdk.Hook, error) {
	for _, pattern := range append(slices.Clone(r.Only), r.Hide...) {
		if err := toolpattern.Check(pattern); err != nil {
			return sdk.Hook{}, sdk.Errorf(sdk.CodeConfig, "rule %q: %s", r.Name, sdk.AsError(err).Message)
		}
	}
	if r.Message == "" && r.Only == nil && r.Hide == nil && r.Terminate == "" {
		return sdk.Hook{}, sdk.Errorf(sdk.CodeConfig, "rule %q does nothing: want message, only, hide or terminate", r.Name)
	}
	if r.Cooldown < 0 {
		return sdk.Hook{}, sdk.Errorf(sdk.CodeConfig, "rule %q: cooldown is a number of steps, got %d", r.Name, r.Cooldown)
	}
	if (r.Once || r.Cooldown > 0) && (r.Message == "" || len(r.Name) > sdk.MaxReminderKey) {
		return sdk.Hook{}, sdk.Errorf(sdk.CodeConfig, "rule %q: cooldown and once are of a message, under a name of at most %d bytes", r.Name, sdk.MaxReminderKey)
	}
	holds := func(map[string]any) (bool, bool) { return true, true }
	if r.When != "" {
		var err error
		if holds, err = expression.CompileRule(r.When); err != nil {
			return sdk.Hook{}, sdk.Errorf(sdk.CodeConfig, "rule %q: %s", r.Name, sdk.AsError(err).Message)
		}
	}
	effects := sdk.InferenceEffects{Only: r.Only, Hide: r.Hide, Terminate: r.Terminate}
	if r.Message != "" {
		reminder := sdk.ContextMessage{Text: r.Message, Keep: r.Keep, Cooldown: r.Cooldown, Once: r.Once}
		if r.Once || r.Cooldown > 0 {
			reminder.Key = r.Name
		}
		effects.Context = []sdk.ContextMessage{reminder}
	}
	return sdk.Hook{Name: r.Name, BeforeInference: func(_ context.Context, s sdk.Snapshot) (sdk.InferenceEffects, error) {
		var input any
		if err := json.Unmarshal(s.Input, &input); err != nil {
			return sdk.InferenceEffects{}, fmt.Errorf("read input: %w", err)
		}
		yes, known := holds(map[string]any{
			"step": s.Step, "interactions": s.Interactions, "tokens": s.Usage.Prompt + s.Usage.Completion,
			"units": float64(s.Units) / 1e6, "lifecycle": string(s.Lifecycle), variableInput: input, variableRun: s.Run, variableAgent: s.Agent,
		})
		switch {
		case !known:
			return sdk.InferenceEffects{Only: r.Only, Hide: r.Hide}, nil
		case !yes:
			return sdk.InferenceEffects{}, nil
		}
		return effects, nil
	}}, nil
}

// loopControl puts into the core's spec what the agent's spec says about how its loop goes on and ends.
func loopControl(s *core.Spec, spec sdk.AgentSpec, hooks []sdk.Hook) error {
	s.MaxTokens, s.MaxChildren = spec.Limits.Tokens, spec.Limits.Children
	s.Stop, s.Steering = spec.Stop, cmp.Or(spec.Steering, sdk.SteeringQueue)
	s.Sequential, s.Batch = spec.Order == sdk.CallsSequential, spec.Decisions == sdk.DecisionsBatch
	s.Continues = spec.Continue == sdk.ContinueAny
	s.Hooked, s.Reviews = len(hooks) > 0, slices.ContainsFunc(hooks, reviews)
	if spec.Guards != nil {
		s.Guards = *spec.Guards
	}
	s.Ends = slices.ContainsFunc(hooks, ends)
	if n := spec.NoToolCall; n != nil {
		s.NoToolCall = core.NoToolCall{
			Remind: n.Policy == sdk.NoToolCallRemind || n.Policy == sdk.NoToolCallRemindThenAccept,
			Accept: n.Policy == sdk.NoToolCallRemindThenAccept,
			Limit:  cmp.Or(n.Reminders, sdk.DefaultReminders), Text: cmp.Or(n.Text, reminder(s.Tools)),
		}
	}
	return checkLoopControl(spec)
}

// readOnly notes which tools change nothing, and which of those have other results each time.
func readOnly(s *core.Spec, describe func(tool string) sdk.PermissionCheck) {
	for i := range s.Tools {
		t := &s.Tools[i]
		t.ReadOnly = changesNothing(&s.Guards, t.Name, describe)
		t.Changing = toolpattern.Match(s.Guards.Changing, t.Name)
	}
}

// changesNothing reports whether calls of a tool are known to change nothing, by its label or by what the agent says of it.
func changesNothing(guards *sdk.Guards, tool string, describe func(tool string) sdk.PermissionCheck) bool {
	return describe(tool).Labels.ReadOnly || guards != nil && toolpattern.Match(guards.ReadOnly, tool)
}

// reminder names the tools, in the order in which the model is shown them.
func reminder(tools []core.Tool) string {
	names := make([]string, len(tools))
	for i := range tools {
		names[i] = tools[i].Name
	}
	return "Your reply had no tool call. Every reply must have one; the tools are " + strings.Join(names, ", ") + "."
}

func checkLoopControl(spec sdk.AgentSpec) error {
	var faults []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	stop := spec.Stop
	check(stop.Errors >= 0 && stop.SameError >= 0 && stop.Repeats >= 0 && spec.Limits.Tokens >= 0, "stop: want numbers of at least 0")
	check(spec.Limits.Children >= 0, "limits: want at least 0 children, got %d", spec.Limits.Children)
	check(stop.Repeats != 1, "stop: calls that are made once do not make a loop; want at least 2 repeats")
	check(stop.Window >= 0 && stop.Window <= sdk.MaxLoopWindow && (stop.Window == 0 || stop.Window >= stop.Repeats),
		"stop: want a window of %d to %d rounds, got %d", stop.Repeats, sdk.MaxLoopWindow, stop.Window)
	check(stop.Window > 0 || stop.Repeats <= sdk.MaxLoopWindow, "stop: want at most %d repeats, got %d", sdk.MaxLoopWindow, stop.Repeats)
	check(!slices.Contains(stop.Text, ""), "stop: every reply contains an empty text")
	check(slices.Contains([]sdk.SteeringPolicy{"", sdk.SteeringQueue, sdk.SteeringInterrupt, sdk.SteeringReject}, spec.Steering),
		"steering: want queue, interrupt or reject, got %q", spec.Steering)
	check(slices.Contains([]sdk.LivePolicy{"", sdk.LiveWatched, sdk.LiveAlways}, spec.Live), "live: want watched or always, got %q", spec.Live)
	check(slices.Contains([]sdk.CallOrder{"", sdk.CallsParallel, sdk.CallsSequential}, spec.Order),
		"order: want parallel or sequential, got %q", spec.Order)
	check(slices.Contains([]sdk.DecisionPolicy{"", sdk.DecisionsImmediate, sdk.DecisionsBatch}, spec.Decisions),
		"decisions: want immediate or batch, got %q", spec.Decisions)
	check(slices.Contains([]sdk.ContinuePolicy{"", sdk.ContinueAll, sdk.ContinueAny}, spec.Continue),
		"continue: want all or any, got %q", spec.Continue)
	check(spec.Continue != sdk.ContinueAny || spec.Order != sdk.CallsSequential && spec.Decisions != sdk.DecisionsBatch && spec.Mode != sdk.ModePlan,
		"continue: any does not go with order: sequential, decisions: batch or mode: plan, which wait for other calls; leave one out")
	check(!slices.Contains(spec.Builtin, sdk.ToolAnswerChild) || spec.Order != sdk.CallsSequential && spec.Decisions != sdk.DecisionsBatch && spec.Mode != sdk.ModePlan,
		"builtin: answer_child does not go with order: sequential, decisions: batch or mode: plan, which wait for all calls; leave one out")
	if g := spec.Guards; g != nil {
		check(g.Errors >= 0 && g.Failures >= 0 && g.Duplicates >= 0, "guards: want numbers of at least 0")
		for _, pattern := range slices.Concat(g.ReadOnly, g.Changing) {
			err := toolpattern.Check(pattern)
			check(err == nil, "guards: %v", err)
		}
	}
	if n := spec.NoToolCall; n != nil {
		check(slices.Contains([]sdk.NoToolCallPolicy{
			"", sdk.NoToolCallAccept, sdk.NoToolCallRemind, sdk.NoToolCallRemindThenAccept,
		}, n.Policy), "no_tool_call: want accept, remind or remind_then_accept, got %q", n.Policy)
		check(n.Reminders >= 0, "no_tool_call: want at least 0 reminders, got %d", n.Reminders)
		check(n.Policy == sdk.NoToolCallAccept || n.Policy == "" || spec.Text != sdk.TextConverse,
			"no_tool_call: an agent that converses is to reply with text")
	}
	if len(faults) > 0 {
		return sdk.Errorf(sdk.CodeConfig, "%s", strings.Join(faults, "; "))
	}
	return nil
}
