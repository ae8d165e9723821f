package config

import (
	"agentd/internal/approval"
	"agentd/internal/config/strict"
	"agentd/sdk"
)

// stopOn are the tools that the agent's runs stop on, wherever they stand.
func (f *agentFile) stopOn() []words {
	names := f.StopOn
	if f.Stop != nil {
		names = append(names, f.Stop.Tools...)
	}
	return names
}

// loop reads how the loop of an agent goes on and ends.
func (l *loader) loop(f *agentFile, s *sdk.AgentSpec) {
	l.stop(f, s)
	if n := f.NoToolCall; n != nil {
		s.NoToolCall = &sdk.NoToolCall{Policy: sdk.NoToolCallPolicy(n.Policy.V), Reminders: n.Reminders.V, Text: n.Text.V}
		l.atLeast(n.Reminders, "reminders", 1)
		l.Note(n.Policy.Position, checkOneOf("policy", n.Policy.V,
			string(sdk.NoToolCallAccept), string(sdk.NoToolCallRemind), string(sdk.NoToolCallRemindThenAccept)))
	}
	if f.Steering.Present() {
		s.Steering = sdk.SteeringPolicy(f.Steering.V)
		l.Note(f.Steering.Position, checkOneOf("steering", f.Steering.V,
			string(sdk.SteeringQueue), string(sdk.SteeringInterrupt), string(sdk.SteeringReject)))
	}
	if f.Order.Present() {
		s.Order = sdk.CallOrder(f.Order.V)
		l.Note(f.Order.Position, checkOneOf("order", f.Order.V, string(sdk.CallsParallel), string(sdk.CallsSequential)))
	}
	if f.Decisions.Present() {
		s.Decisions = sdk.DecisionPolicy(f.Decisions.V)
		l.Note(f.Decisions.Position, checkOneOf("decisions", f.Decisions.V, string(sdk.DecisionsImmediate), string(sdk.DecisionsBatch)))
	}
	for i := range f.Hooks {
		l.rule(&f.Hooks[i], s)
	}
}

// stop reads the conditions of stop. What limits and stop_on say too must not be said twice.
func (l *loader) stop(f *agentFile, s *sdk.AgentSpec) {
	stop := f.Stop
	l.atLeast(f.Limits.Tokens, "tokens", 1)
	if stop == nil {
		return
	}
	for _, n := range []struct {
		value, limit number
		name         string
	}{
		{stop.Interactions, f.Limits.Interactions, "interactions"},
		{stop.Tokens, f.Limits.Tokens, "tokens"},
		{stop.Errors, number{}, "errors"},
		{stop.SameError, number{}, "same_error"},
		{stop.Loop.Window, number{}, "window"},
	} {
		l.atLeast(n.value, n.name, 1)
		l.once(n.value.Position, n.value.Present() && n.limit.Present(), n.name)
	}
	l.atLeast(stop.Loop.Repeats, "repeats", 2)
	l.once(stop.Deadline.Position, stop.Deadline.Present() && f.Limits.Deadline.Present(), "deadline")
	if stop.Interactions.Present() {
		s.Limits.Interactions = stop.Interactions.V
	}
	if stop.Tokens.Present() {
		s.Limits.Tokens = int64(stop.Tokens.V)
	}
	if stop.Deadline.Present() {
		s.Limits.DeadlineMillis = l.millis(stop.Deadline)
	}
	s.Stop = sdk.StopConditions{
		Errors: stop.Errors.V, SameError: stop.SameError.V, Repeats: stop.Loop.Repeats.V, Window: stop.Loop.Window.V,
		Text: texts(stop.Text),
	}
}

func (l *loader) atLeast(n number, name string, least int) {
	if n.Present() && n.V < least {
		l.Faultf(n.Position, "%s: want at least %d, got %d", name, least, n.V)
	}
}

func (l *loader) once(at strict.Position, twice bool, name string) {
	if twice {
		l.Faultf(at, "%s: stands in stop and in limits; say it once", name)
	}
}

func (l *loader) rule(f *hookFile, s *sdk.AgentSpec) {
	r := sdk.HookRule{
		Name: f.Name.V, When: f.When.V, Message: f.Message.V, Keep: f.Keep.V, Only: texts(f.Only), Hide: texts(f.Hide),
		Terminate: f.Terminate.V,
	}
	if r.Name == "" {
		l.Faultf(f.At, "a hook needs a name")
	}
	if r.When != "" {
		_, err := approval.CompileRule(r.When)
		l.Note(f.When.Position, err)
	}
	if r.Message == "" && r.Only == nil && r.Hide == nil && r.Terminate == "" {
		l.Faultf(f.At, "the hook does nothing: want message, only, hide or terminate")
	}
	if f.Keep.V && r.Message == "" {
		l.Faultf(f.Keep.Position, "keep: there is no message to be kept")
	}
	s.Rules = append(s.Rules, r)
}
