package runner

import (
	"context"
	"errors"

	"agentd/internal/core"
	"agentd/internal/prompt"
	"agentd/sdk"
)

// callModel asks the model once, between the hooks of the turn.
func (a *activation) callModel(ctx context.Context) (core.Event, error) {
	if event := a.unasked(ctx); event != nil {
		return event, nil
	}
	if chosen, err := a.choose(ctx); chosen != nil || err != nil {
		return chosen, err
	}
	s, err := a.beforeInference(ctx)
	if err != nil {
		return a.hookFailed(err)
	}
	if s.terminate != nil {
		return core.Ended{Ending: *s.terminate, Hooks: s.states}, nil
	}
	request, built, err := a.request(ctx, s)
	if err != nil {
		return a.promptFailed(ctx, err)
	}
	if built.Compaction != nil {
		if err := a.write(ctx); err != nil {
			return nil, err
		}
		return a.compact(ctx, built.Compaction, request), nil
	}
	final := a.conclude(&request, built.Final)
	request.Kind = kindOf(&request, final)
	a.budgeted(ctx, &built)
	reply, ended, err := a.generate(ctx, s, request)
	if ended != nil || err != nil {
		return ended, err
	}
	event, err := a.take(ctx, s, reply, final, &built)
	return a.accounted(&reply, event, err)
}

// take makes of a reply to the conversation what the core is to be told, after hooks have seen it.
func (a *activation) take(ctx context.Context, s *hookEffects, reply sdk.ModelReply, final bool, built *prompt.Fitted) (core.Event, error) {
	if err := a.afterInference(ctx, s, reply, nil); err != nil {
		return a.hookFailed(err)
	}
	if final {
		reply.Calls = nil // it was offered no tools
	}
	event, err := a.accept(ctx, s, reply)
	if replied, ok := event.(core.Replied); ok {
		replied.Final, replied.Results = final, a.state.Shown()
		if !reply.Estimated && (reply.Model == "" || reply.Model == a.agent.ModelName) {
			replied.Estimated = int64(built.Ledger.Prompt())
		}
		return replied, err
	}
	return event, err
}

// unasked is what happens in place of a model call, because the agent has no model to ask, or more than it can read; nil says that the model is asked.
func (a *activation) unasked(ctx context.Context) core.Event {
	a.renewAgent(ctx)
	if err := core.CheckHistory(a.state); err != nil {
		e := sdk.AsError(err)
		return core.Ended{Ending: core.Ending{
			Reason: core.ReasonQuota, Code: e.Code, Message: e.Message, Detail: "history",
		}}
	}
	away := a.mayAsk(ctx)
	if away == nil {
		return nil
	}
	if degraded := a.degraded(ctx, sdk.Errorf(away.Code, "%s", away.Message)); degraded != nil {
		return *degraded
	}
	return *away
}

// renewAgent has the run offer its model the tools that there are now. An agent that cannot be had leaves it with those that it has.
func (a *activation) renewAgent(ctx context.Context) {
	if !a.agent.Changing {
		return
	}
	agent, err := a.Catalog.Version(ctx, a.msg.Address.Agent, a.state.Spec)
	if err != nil {
		a.Logger.WarnContext(ctx, "run keeps its tools", "run", a.state.Run, "error", err)
		return
	}
	a.agent = agent
}

// accept makes of a reply what the core is to be told.
func (a *activation) accept(ctx context.Context, s *hookEffects, reply sdk.ModelReply) (core.Event, error) {
	ev := core.Replied{Reply: reply, Context: s.kept, Reminded: s.reminded, Terminate: s.terminate, Hooks: s.states}
	switch {
	case s.terminate != nil || reply.Fault != nil || core.Empty(&reply):
		return ev, nil
	case len(reply.Calls) == 0:
		return a.judged(ctx, ev)
	}
	ev.Admission = core.Admit(a.agent.Core, &a.state.Head, a.state.Input, reply, s.hidden, a.Env.Now())
	if ev.Admission.NeedsRulings() { // whoever rules may count what they allow
		if err := a.write(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.rule(ctx, s, ev.Admission); err != nil {
		return a.hookFailed(err)
	}
	if err := a.suspended(ctx, s, ev.Admission); err != nil {
		return a.hookFailed(err)
	}
	ev.Notes, ev.Hooks = s.notes, s.states
	return ev, nil
}

// generate is the model call itself; the provider retries. A failure that retrying did not mend parks the run or ends it, with ended.
func (a *activation) generate(ctx context.Context, s *hookEffects, request sdk.ModelRequest) (reply sdk.ModelReply, ended core.Event, err error) {
	calling, done := a.working.calling(ctx, a.key)
	defer done()
	within, cancel := a.withTimeout(calling, a.agent.ModelTimeout)
	defer cancel()
	a.stats.ModelCalls.Add(1)
	if a.state.Driver.Takeovers > 0 || a.overtaken {
		a.stats.RepeatedModelCalls.Add(1)
	}
	a.calling(&request, "")
	live := fragments{activation: a, turn: a.state.Turns + 1}
	reply, err, lost := a.ask(within, cancel, func() (sdk.ModelReply, error) {
		return a.model().Model.Generate(within, request, live.add)
	})
	live.end()
	var cost sdk.ModelReply
	if err == nil {
		cost = reply
		a.called(&reply)
		a.use(&reply)
		err = core.CheckReply(&reply)
	}
	if lost != nil || err != nil {
		a.lose(cost)
	}
	if lost != nil {
		return sdk.ModelReply{}, nil, lost
	}
	if err == nil {
		a.Outages.Back(a.agent.ModelKey, a.probes)
		storable(&reply)
		return reply, nil, nil
	}
	if errors.Is(context.Cause(calling), errSteered) {
		return sdk.ModelReply{}, nil, errSteered
	}
	ended, failed := a.modelFailed(calling, a.unanswered(calling, within, err))
	if end, ok := ended.(core.Ended); ok && !woken(calling) { // hooks see a failure too
		if err := a.afterInference(calling, s, sdk.ModelReply{}, err); err != nil {
			a.Logger.Error("hook failed", "run", a.state.Run, "error", err)
		}
		end.Hooks = s.states
		ended = end
	}
	return sdk.ModelReply{}, ended, failed
}

// unanswered is the error of a model call that began in ctx, and had the time that within has: that it was too short, if it was.
func (a *activation) unanswered(ctx, within context.Context, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
		return sdk.Errorf(sdk.CodeUnavailable, "the model did not answer within %s", a.agent.ModelTimeout).WithCause(err)
	}
	return err
}

// kindOf is what the model is asked for.
func kindOf(r *sdk.ModelRequest, final bool) sdk.TurnKind {
	switch {
	case final:
		return sdk.TurnSummary
	case len(r.Tools) > 0:
		return sdk.TurnTools
	}
	return sdk.TurnConversation
}
