package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"agentd/internal/core"
	"agentd/internal/toolpattern"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// hookEffects are what hooks do from one entry to the next. Nothing of it counts before that entry is durable.
type hookEffects struct {
	// states is what hooks keep, by the last word of each, in the order of the first.
	states []core.HookState
	// context are messages for the model in this turn, kept those that become part of the conversation.
	context, kept []sdk.Message
	// reminded are the reminders among them.
	reminded []core.Reminder
	// hidden are the tools that the model is not shown.
	hidden      []string
	temperature *float64
	maxTokens   int
	notes       []core.Note
	// terminate is how hooks end the run; nil is not at all.
	terminate *core.Ending
}

// keep remembers what a hook keeps.
func (s *hookEffects) keep(hook string, e sdk.StateEffects) error {
	if e.State == nil {
		return nil
	}
	data, err := wire.Canonicalize(e.State)
	if err != nil {
		return fmt.Errorf("%w: the state of %s is not JSON: %w", errHook, hook, err)
	}
	if len(data) > sdk.MaxHookState {
		return fmt.Errorf("%w: %s keeps %d bytes, more than %d", errHook, hook, len(data), sdk.MaxHookState)
	}
	s.states = append(s.states, core.HookState{Hook: hook, Data: data})
	return nil
}

func (s *hookEffects) end(hook, why string) {
	if why != "" && s.terminate == nil {
		s.terminate = &core.Ending{Reason: core.ReasonTerminated, Code: sdk.CodeTerminated, Message: why, Detail: hook}
	}
}

// snapshot is the run as a hook sees it in a phase.
func (a *activation) snapshot(s *hookEffects, hook *sdk.Hook, phase sdk.Phase) sdk.Snapshot {
	snap := snapshotOf(&a.state.Head, phase)
	snap.Input, snap.Messages = a.state.Input, a.state.Messages()
	snap.State = a.state.HookState(hook.Name)
	for _, kept := range s.states {
		if kept.Hook == hook.Name {
			snap.State = kept.Data
		}
	}
	return snap
}

func snapshotOf(h *core.Head, phase sdk.Phase) sdk.Snapshot {
	s := sdk.Snapshot{
		Agent: h.Agent, Run: h.Run, Phase: phase, Step: h.Round, Interactions: h.Turns, Usage: h.Usage, Units: h.Units,
		Lifecycle: h.Lifecycle, Status: string(h.Status), Constraints: h.Constraints,
	}
	if h.Status == core.StatusDone {
		s.Reason = h.Termination()
	}
	return s
}

// errHook is a failure of a hook, which ends the run.
var errHook = errors.New("a hook of the agent failed")

// hooked calls a hook. Whatever it fails with is errHook, unless ctx has ended.
func hooked[T any](ctx context.Context, hook *sdk.Hook, phase sdk.Phase, call func() (T, error)) (T, error) {
	effects, err := guarded(call)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %s in %s: %w", errHook, hook.Name, phase, err)
	}
	return effects, err
}

// stateful calls a phase that may do nothing but keep something.
func (a *activation) stateful(
	ctx context.Context, s *hookEffects, phase sdk.Phase,
	function func(*sdk.Hook) func(context.Context, sdk.Snapshot) (sdk.StateEffects, error),
) error {
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		call := function(hook)
		if call == nil {
			continue
		}
		snap := a.snapshot(s, hook, phase)
		effects, err := hooked(ctx, hook, phase, func() (sdk.StateEffects, error) { return call(ctx, snap) })
		if err == nil {
			err = s.keep(hook.Name, effects)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func stepStart(h *sdk.Hook) func(context.Context, sdk.Snapshot) (sdk.StateEffects, error) {
	return h.StepStart
}

func stepEnd(h *sdk.Hook) func(context.Context, sdk.Snapshot) (sdk.StateEffects, error) {
	return h.StepEnd
}

// runStart calls RunStart with the run as it is about to begin.
func (a *activation) runStart(ctx context.Context, in sdk.ContextInput, built sdk.Context) ([]core.HookState, error) {
	var s hookEffects
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		if hook.RunStart == nil {
			continue
		}
		snap := sdk.Snapshot{
			Agent: a.agent.Core.Name, Run: in.Run, Phase: sdk.PhaseRunStart, Lifecycle: in.Lifecycle,
			Status: string(core.StatusRunning), Input: in.Input, Messages: built.Messages,
		}
		effects, err := hooked(ctx, hook, sdk.PhaseRunStart, func() (sdk.StateEffects, error) { return hook.RunStart(ctx, snap) })
		if err == nil {
			err = s.keep(hook.Name, effects)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.states, nil
}

// beforeInference calls StepStart and BeforeInference.
func (a *activation) beforeInference(ctx context.Context) (*hookEffects, error) {
	s := &hookEffects{hidden: a.state.Unusable(a.agent.Core)}
	if err := a.stateful(ctx, s, sdk.PhaseStepStart, stepStart); err != nil {
		return s, err
	}
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		if hook.BeforeInference == nil {
			continue
		}
		snap := a.snapshot(s, hook, sdk.PhaseBeforeInference)
		effects, err := hooked(ctx, hook, sdk.PhaseBeforeInference, func() (sdk.InferenceEffects, error) {
			return hook.BeforeInference(ctx, snap)
		})
		if err == nil {
			err = s.keep(hook.Name, effects.StateEffects)
		}
		if err != nil {
			return s, err
		}
		if err := a.infer(s, hook.Name, &effects); err != nil {
			return s, err
		}
	}
	return s, nil
}

// infer adds what one hook wants of the model call.
func (a *activation) infer(s *hookEffects, hook string, e *sdk.InferenceEffects) error {
	for _, m := range e.Context {
		show, err := a.remind(s, hook, m)
		if err != nil {
			return err
		}
		if !show {
			continue
		}
		message := sdk.Text(sdk.RoleUser, m.Text)
		if m.Keep {
			message.Seen = 1 // the model call before which it comes is over when it is kept
			s.kept = append(s.kept, message)
		} else {
			s.context = append(s.context, message)
		}
	}
	for _, d := range a.agent.Definitions {
		hide := toolpattern.Match(e.Hide, d.Name) || e.Only != nil && !toolpattern.Match(e.Only, d.Name)
		if hide && !slices.Contains(s.hidden, d.Name) {
			s.hidden = append(s.hidden, d.Name)
		}
	}
	if e.Temperature != nil {
		s.temperature = e.Temperature
	}
	if e.MaxTokens > 0 {
		s.maxTokens = e.MaxTokens
	}
	s.end(hook, e.Terminate)
	return nil
}

// remind reports whether the model is shown a message of a hook now. A message without a key always is.
func (a *activation) remind(s *hookEffects, hook string, m sdk.ContextMessage) (bool, error) {
	switch {
	case m.Key == "" && (m.Once || m.Cooldown > 0):
		return false, fmt.Errorf("%w: a reminder of %s needs a key", errHook, hook)
	case len(m.Key) > sdk.MaxReminderKey:
		return false, fmt.Errorf("%w: the key of a reminder of %s has %d bytes, more than %d", errHook, hook, len(m.Key), sdk.MaxReminderKey)
	case m.Key == "":
		return true, nil
	}
	r := a.state.Reminded(m.Key, m.Text)
	shown := slices.ContainsFunc(s.reminded, func(other core.Reminder) bool { return other.Key == m.Key })
	if shown || !a.state.Due(r, m.Cooldown, m.Once) {
		return false, nil
	}
	s.reminded = append(s.reminded, r)
	return true, nil
}

// afterInference calls AfterInference and StepEnd, with what the model call came to.
func (a *activation) afterInference(ctx context.Context, s *hookEffects, reply sdk.ModelReply, failed error) error {
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		if hook.AfterInference == nil {
			continue
		}
		in := sdk.Inferred{Snapshot: a.snapshot(s, hook, sdk.PhaseAfterInference), Reply: reply, Err: failed}
		effects, err := hooked(ctx, hook, sdk.PhaseAfterInference, func() (sdk.TurnEffects, error) {
			return hook.AfterInference(ctx, in)
		})
		if err == nil {
			err = s.keep(hook.Name, effects.StateEffects)
		}
		if err != nil {
			return err
		}
		s.end(hook.Name, effects.Terminate)
	}
	return a.stateful(ctx, s, sdk.PhaseStepEnd, stepEnd)
}

// hookFailed ends the run because of a hook; other errors are returned.
func (a *activation) hookFailed(err error) (core.Event, error) {
	if !errors.Is(err, errHook) {
		return nil, err
	}
	a.Logger.Error("hook failed", "run", a.state.Run, "error", err)
	return core.Ended{Ending: core.Ending{
		Reason: core.ReasonError, Code: sdk.CodeInternal, Message: "a hook of the agent failed", Detail: "hook",
	}}, nil
}

// judge asks the hooks about one call, the attempt but for its snapshot: the strictest verdict counts, and the first among equals. A hook that
// fails blocks.
func (a *activation) judge(ctx context.Context, s *hookEffects, attempt sdk.ToolAttempt) (sdk.Gate, string, error) {
	strictness := []sdk.GateVerdict{sdk.GateAllow, sdk.GateResult, sdk.GateSuspend, sdk.GateBlock}
	var strictest sdk.Gate
	by := ""
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		if hook.BeforeToolExecute == nil {
			continue
		}
		attempt.Snapshot = a.snapshot(s, hook, sdk.PhaseBeforeToolExecute)
		g, err := hooked(ctx, hook, sdk.PhaseBeforeToolExecute, func() (sdk.Gate, error) { return hook.BeforeToolExecute(ctx, attempt) })
		if err == nil {
			err = s.keep(hook.Name, g.StateEffects)
		}
		if err == nil && g.Verdict == sdk.GateResult {
			g.Result, err = wire.Canonicalize(g.Result)
		}
		switch {
		case err != nil && ctx.Err() != nil:
			return sdk.Gate{}, "", err
		case err != nil || !slices.Contains(strictness, g.Verdict):
			a.Logger.Error("hook failed, so the call is blocked", "run", a.state.Run, "call", attempt.Call, "hook", hook.Name, "error", err)
			g = sdk.Gate{Verdict: sdk.GateBlock, Reason: "whether the call may be made could not be found out"}
		}
		if slices.Index(strictness, g.Verdict) > slices.Index(strictness, strictest.Verdict) {
			strictest, by = g, hook.Name
		}
	}
	return strictest, by, nil
}

// review is AfterToolExecute for every call of the round that is complete, in the order of the calls, and for carried calls whose results are
// told next.
func (a *activation) review(ctx context.Context) (core.Event, error) {
	var s hookEffects
	var ev core.Reviewed
	var outcomes []sdk.ToolOutcome
	if a.state.Review {
		outcomes = a.lastRound()
	}
	for _, c := range a.state.Untold() {
		ev.Late = append(ev.Late, c.CallID)
		outcomes = append(outcomes, a.outcome(&c))
	}
	for _, o := range outcomes {
		messages, err := a.afterTool(ctx, &s, o)
		if err != nil {
			return a.hookFailed(err)
		}
		for _, m := range messages {
			ev.Messages = append(ev.Messages, sdk.Text(sdk.RoleUser, m))
		}
	}
	ev.Hooks = s.states
	return ev, nil
}

// afterTool calls AfterToolExecute for one call, and returns what the model is to be told.
func (a *activation) afterTool(ctx context.Context, s *hookEffects, o sdk.ToolOutcome) ([]string, error) {
	var messages []string
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		if hook.AfterToolExecute == nil {
			continue
		}
		o.Snapshot = a.snapshot(s, hook, sdk.PhaseAfterToolExecute)
		effects, err := hooked(ctx, hook, sdk.PhaseAfterToolExecute, func() (sdk.ToolEffects, error) {
			return hook.AfterToolExecute(ctx, o)
		})
		if err == nil {
			err = s.keep(hook.Name, effects.StateEffects)
		}
		if err != nil {
			return nil, err
		}
		messages = append(messages, effects.Messages...)
	}
	return messages, nil
}

// lastRound are the outcomes of the calls of the round that was closed last, as the conversation has them.
func (a *activation) lastRound() []sdk.ToolOutcome {
	var round []sdk.ToolOutcome
	history := a.state.History
	for i := len(history) - 1; i >= 0 && history[i].Role == sdk.RoleUser; i-- {
		for _, c := range history[i].Content {
			if c.Kind == sdk.ContentToolResult && !c.Pending {
				round = append(round, a.outcome(&c))
			}
		}
	}
	slices.Reverse(round)
	return round
}

func (a *activation) outcome(c *sdk.Content) sdk.ToolOutcome {
	args, _ := a.state.Arguments(c.CallID)
	return sdk.ToolOutcome{Call: c.CallID, Tool: c.Tool, Args: args, Outcome: outcomeOf(c), Result: json.RawMessage(c.Text)}
}

func outcomeOf(c *sdk.Content) sdk.Outcome {
	if !c.IsError {
		return sdk.OutcomeSucceeded
	}
	kept := []sdk.Code{sdk.CodeBlocked, sdk.CodePermissionDenied, sdk.CodePermissionNeeded}
	if slices.Contains(kept, core.FailureCode(json.RawMessage(c.Text))) {
		return sdk.OutcomeBlocked
	}
	return sdk.OutcomeFailed
}

// suspended is AfterToolExecute for the calls of a round that will wait. What hooks have to say of them is said with the results
// of the round.
func (a *activation) suspended(ctx context.Context, s *hookEffects, admission *core.Admission) error {
	if !a.agent.Core.Reviews {
		return nil
	}
	for i := range admission.Calls {
		c := &admission.Calls[i]
		if !c.Waits() {
			continue
		}
		messages, err := a.afterTool(ctx, s, sdk.ToolOutcome{Call: c.ID, Tool: c.Tool, Args: c.Args, Outcome: sdk.OutcomeSuspended})
		if err != nil {
			return err
		}
		for n, m := range messages {
			s.notes = append(s.notes, core.Note{ID: fmt.Sprintf("n%s-%d", c.ID, n), Text: m})
		}
	}
	return nil
}

// runEnd tells hooks that the run has ended or is suspended. They cannot change that any more, so what they fail with is only
// logged.
func (a *activation) runEnd(ctx context.Context, e *core.Entry) error {
	for i := range a.agent.Phases {
		hook := &a.agent.Phases[i]
		if hook.RunEnd == nil {
			continue
		}
		snap := snapshotOf(&e.Head, sdk.PhaseRunEnd)
		snap.State = e.Head.HookState(hook.Name)
		_, err := hooked(ctx, hook, sdk.PhaseRunEnd, func() (struct{}, error) { return struct{}{}, hook.RunEnd(ctx, snap) })
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			a.Logger.Error("hook failed", "run", e.Head.Run, "error", err)
		}
	}
	return nil
}
