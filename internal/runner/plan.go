package runner

import (
	"context"
	"errors"
	"slices"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/sdk"
)

// Planning is how an agent plans.
type Planning struct {
	// Planner makes plans, Router chooses the calls of steps, and Synthesizer writes the answer.
	Planner, Router, Synthesizer Role
	// Form is how the planner is asked to write plans.
	Form      *planning.Form
	Templates []sdk.PlanTemplate
	// Review are the terms under which people approve plans; nil asks nobody.
	Review *sdk.PermissionTerms
	// Skips are the tools that no step is done with: they end the run, keep notes of it, or show what it has.
	Skips map[string]bool
}

// Role is a model of an agent that plans, by its name in requests.
type Role struct {
	Model sdk.Provider
	Name  string
}

// What model calls are for whose replies are not of the conversation.
const (
	forPlan  = "plan"
	forRoute = "route"
)

// consult asks a model for something that is not a reply to the conversation, and adds what that costs. Of a reply that is too large there is
// only that it is: a step, or a plan, fails by it, and the run goes on. No model is asked when no tokens are left (errNoTokens), by what the
// calls before have used.
func (a *activation) consult(
	ctx context.Context, model sdk.Provider, request sdk.ModelRequest, purpose string, cost *sdk.ModelReply,
) (sdk.ModelReply, error) {
	if a.outOfTokens() {
		return sdk.ModelReply{}, errNoTokens
	}
	request.Tokens = max(a.tokensLeft(), 0)
	within, cancel := a.withTimeout(ctx, a.agent.ModelTimeout)
	defer cancel()
	a.stats.ModelCalls.Add(1)
	a.calling(&request, purpose)
	// Fragments are progress, and nobody is shown them.
	reply, err := guarded(func() (sdk.ModelReply, error) {
		return model.Generate(within, request, func(sdk.Delta) { a.progress() })
	})
	a.progress() // each call may take as long as a step
	if err == nil {
		a.called(&reply)
		a.use(&reply)
		addCost(cost, &reply)
		err = core.CheckReply(&reply)
	}
	if tooLarge(err) {
		return sdk.ModelReply{Fault: &sdk.ReplyFault{Message: sdk.AsError(err).Message}}, nil
	}
	if err != nil {
		return sdk.ModelReply{}, a.unanswered(ctx, within, err)
	}
	storable(&reply)
	return reply, nil
}

// tooLarge reports whether something has more bytes than are kept of such: a model's reply, here or where it is received, or an entry.
func tooLarge(err error) bool {
	return err != nil && errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge})
}

// inTurn does the work of a turn of planning, which adds to a reply, between the hooks of model calls; outcome is what comes of it.
func (a *activation) inTurn(
	ctx context.Context, work func(ctx context.Context, s *hookEffects, reply *sdk.ModelReply) error,
	outcome func(ctx context.Context, s *hookEffects, reply sdk.ModelReply) (core.Event, error),
) (core.Event, error) {
	if event := a.unasked(ctx); event != nil {
		return event, nil
	}
	s, err := a.beforeInference(ctx)
	if err != nil {
		return a.hookFailed(err)
	}
	if s.terminate != nil {
		return core.Ended{Ending: *s.terminate, Hooks: s.states}, nil
	}
	calling, done := a.working.calling(ctx, a.key)
	defer done()
	if a.state.Driver.Takeovers > 0 {
		a.stats.RepeatedModelCalls.Add(1)
	}
	var reply sdk.ModelReply
	err = work(calling, s, &reply)
	if err != nil {
		a.lose(reply)
		if errors.Is(context.Cause(calling), errSteered) {
			return nil, errSteered
		}
		return a.modelFailed(calling, err)
	}
	a.Outages.Back(a.agent.ModelKey, a.probes)
	var event core.Event
	if err = a.afterInference(ctx, s, reply, nil); err != nil {
		event, err = a.hookFailed(err)
	} else {
		event, err = outcome(ctx, s, reply)
	}
	return a.accounted(&reply, event, err)
}

func (s *hookEffects) turn() core.HookEffects {
	return core.HookEffects{Context: s.kept, Reminded: s.reminded, Hooks: s.states, Terminate: s.terminate}
}

// roleRequest is a request to a model of planning.
func (a *activation) roleRequest(role Role, kind sdk.TurnKind, s *hookEffects) sdk.ModelRequest {
	h := &a.state.Head
	return sdk.ModelRequest{
		Run: h.Run, Lifecycle: h.Lifecycle, Model: role.Name, Kind: kind, Temperature: s.temperature, MaxTokens: s.maxTokens,
		Interactions: a.agent.Core.Interactions(h),
	}
}

// makePlan has a plan made: by a template that fits the request, or by the planner, which may answer instead.
func (a *activation) makePlan(ctx context.Context) (core.Event, error) {
	first := a.state.Plan.NextNumber()
	if t := planning.Template(a.agent.Planning.Templates, planning.Request(a.state)); t != nil && a.state.Plan == nil {
		plan, err := planning.FromTemplate(t, first)
		if err != nil {
			return core.Planned{Fault: "template " + t.Name + ": " + err.Error()}, nil //nolint:nilerr // the run goes on without a plan, and says why
		}
		return a.proposed(ctx, core.Planned{Steps: plan.Steps, By: t.Name})
	}
	var plan planning.Plan
	var fault error
	return a.inTurn(ctx, func(ctx context.Context, s *hookEffects, reply *sdk.ModelReply) (err error) {
		plan, fault, err = a.askPlanner(ctx, s, reply)
		return err
	}, func(ctx context.Context, s *hookEffects, cost sdk.ModelReply) (core.Event, error) {
		if fault == nil && plan.Answer != "" {
			cost.Text = plan.Answer
			event, err := a.accept(ctx, s, cost)
			if replied, ok := event.(core.Replied); ok {
				replied.Final, replied.Results = true, a.state.Shown()
				return replied, err
			}
			return event, err
		}
		ev := core.Planned{Steps: plan.Steps, By: core.PlannedByModel, Asked: true, Reply: cost, HookEffects: s.turn()}
		if fault != nil {
			ev.Fault, ev.Steps = fault.Error(), nil
		}
		return a.proposed(ctx, ev)
	})
}

// askPlanner asks for a plan, and once more when it cannot be read, or has one step for a request of several. fault is that none can be
// read at all.
func (a *activation) askPlanner(ctx context.Context, s *hookEffects, cost *sdk.ModelReply) (best planning.Plan, fault, err error) {
	before := a.state.Plan
	tools := a.routable(s)
	form, told := a.agent.Planning.Form, ""
	for range 2 {
		request := a.roleRequest(a.agent.Planning.Planner, sdk.TurnConversation, s)
		request.Output = form.Schema
		request.System, request.Messages = form.Planner(a.state.System, tools, a.state, told)
		request.Messages = slices.Concat(request.Messages, s.kept, s.context)
		reply, err := a.consult(ctx, a.agent.Planning.Planner.Model, request, forPlan, cost)
		if errors.Is(err, errNoTokens) || err != nil && ctx.Err() == nil && (len(best.Steps) > 0 || best.Answer != "") {
			break // the one before has to do
		}
		if err != nil {
			return planning.Plan{}, nil, err
		}
		plan, unread := planning.Parse(reply.Text, before.Kept(core.MaxPlanSteps), before.NextNumber())
		if unread != nil && reply.Fault != nil {
			unread = errors.New(reply.Fault.Message)
		}
		switch {
		case unread == nil && len(plan.Steps) >= len(best.Steps):
			best, fault = plan, nil
		case len(best.Steps) == 0 && best.Answer == "":
			fault = unread
		}
		if unread == nil && (len(plan.Steps) != 1 || !planning.Compound(planning.Request(a.state))) {
			break
		}
		told = form.AskAgain(unread)
	}
	return best, fault, nil
}

// routable are the tools that steps may be done with: those that do something, and that neither hooks nor guards keep from the model.
func (a *activation) routable(s *hookEffects) []sdk.ToolDefinition {
	hidden := slices.Concat(s.hidden, a.state.Withdrawn())
	return slices.DeleteFunc(slices.Clone(a.agent.Definitions), func(d sdk.ToolDefinition) bool {
		return slices.Contains(hidden, d.Name) || a.agent.Planning.Skips[d.Name]
	})
}

// model is what is asked for the next reply to the conversation.
func (a *activation) model() Role {
	if a.agent.Planning != nil && a.state.Synthesizes() {
		return a.agent.Planning.Synthesizer
	}
	return Role{a.agent.Model, a.agent.ModelName}
}
