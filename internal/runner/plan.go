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
	Templates                    []sdk.PlanTemplate
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

// routerAttempts is how often a router is asked for the call of one step.
const routerAttempts = 3

// consult asks a model for something that is not a reply to the conversation, and adds what that costs.
func (a *activation) consult(
	ctx context.Context, model sdk.Provider, request sdk.ModelRequest, purpose string, cost *sdk.ModelReply,
) (sdk.ModelReply, error) {
	within, cancel := a.withTimeout(ctx, a.agent.ModelTimeout)
	defer cancel()
	a.stats.ModelCalls.Add(1)
	a.calling(&request, purpose)
	// Fragments are progress, and nobody is shown them.
	reply, err := guarded(func() (sdk.ModelReply, error) {
		return model.Generate(within, request, func(sdk.Delta) { a.progress() })
	})
	if err == nil {
		a.called(&reply)
		err = core.CheckReply(&reply)
	}
	if err != nil && ctx.Err() == nil && errors.Is(within.Err(), context.DeadlineExceeded) {
		err = sdk.Errorf(sdk.CodeUnavailable, "the model did not answer within %s", a.agent.ModelTimeout).WithCause(err)
	}
	if err != nil {
		return sdk.ModelReply{}, err
	}
	storable(&reply)
	addCost(cost, &reply)
	return reply, nil
}

func addCost(cost, reply *sdk.ModelReply) {
	cost.Units += reply.Units
	cost.Usage.Prompt += reply.Usage.Prompt
	cost.Usage.Completion += reply.Usage.Completion
	cost.Usage.CacheRead += reply.Usage.CacheRead
	cost.Usage.CacheWrite += reply.Usage.CacheWrite
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
	switch {
	case err != nil && errors.Is(context.Cause(calling), errSteered):
		return nil, errSteered
	case err != nil:
		return a.modelFailed(calling, err)
	}
	a.Outages.Back(a.agent.ModelKey, a.probes)
	if err := a.afterInference(ctx, s, reply, nil); err != nil {
		return a.hookFailed(err)
	}
	return outcome(ctx, s, reply)
}

func (s *hookEffects) turn() core.Turn {
	return core.Turn{Context: s.kept, Reminded: s.reminded, Hooks: s.states, Terminate: s.terminate}
}

// roleRequest is a request to a model of planning.
func (a *activation) roleRequest(role Role, kind sdk.TurnKind, s *hookEffects) sdk.ModelRequest {
	h := &a.state.Head
	return sdk.ModelRequest{
		Run: h.Run, Lifecycle: h.Lifecycle, Model: role.Name, Kind: kind, Temperature: s.temperature, MaxTokens: s.maxTokens,
		Interactions: sdk.Interactions{Current: h.Turns, Max: a.agent.Core.MaxTurns, Exhausted: h.Turns+1 >= a.agent.Core.MaxTurns},
		Tokens:       max(h.TokensLeft(), 0),
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
		return a.offerSteps(ctx, core.Planned{Steps: plan.Steps, By: t.Name})
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
		ev := core.Planned{Steps: plan.Steps, By: core.PlannedByModel, Asked: true, Reply: cost, Turn: s.turn()}
		if fault != nil {
			ev.Fault, ev.Steps = fault.Error(), nil
		}
		return a.offerSteps(ctx, ev)
	})
}

// askPlanner asks for a plan, and once more when it cannot be read, or has one step for a request of several. fault is that none can be
// read at all.
func (a *activation) askPlanner(ctx context.Context, s *hookEffects, cost *sdk.ModelReply) (best planning.Plan, fault, err error) {
	before := a.state.Plan
	tools := a.routable(s)
	told := ""
	for range 2 {
		request := a.roleRequest(a.agent.Planning.Planner, sdk.TurnConversation, s)
		request.System, request.Messages = planning.Planner(a.state.System, tools, a.state, told)
		request.Messages = slices.Concat(request.Messages, s.kept, s.context)
		reply, err := a.consult(ctx, a.agent.Planning.Planner.Model, request, forPlan, cost)
		if err != nil {
			return planning.Plan{}, nil, err
		}
		plan, unread := planning.Parse(reply.Text, before.Kept(core.MaxPlanSteps), before.NextNumber())
		switch {
		case unread == nil && len(plan.Steps) >= len(best.Steps):
			best, fault = plan, nil
		case len(best.Steps) == 0 && best.Answer == "":
			fault = unread
		}
		if unread == nil && (len(plan.Steps) != 1 || !planning.Compound(planning.Request(a.state))) {
			break
		}
		told = planning.AskAgain(unread)
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

// routed is what came of asking a router for the call of a step.
type routed struct {
	route core.Route
	call  *sdk.ToolRequest
	cost  sdk.ModelReply
	err   error
}

// routeSteps has a call chosen for each of the steps, and makes one round of them.
func (a *activation) routeSteps(ctx context.Context, numbers []int) (core.Event, error) {
	var ev core.Routed
	return a.inTurn(ctx, func(ctx context.Context, s *hookEffects, reply *sdk.ModelReply) error {
		results := make([]routed, len(numbers))
		var runs []func()
		for i, n := range numbers {
			step := *a.state.Plan.Step(n)
			runs = append(runs, func() { results[i] = a.route(ctx, s, &step) })
		}
		a.Env.Parallel(runs...)
		for i := range results {
			r := &results[i]
			if r.err != nil {
				return r.err
			}
			addCost(reply, &r.cost)
			ev.Routes = append(ev.Routes, r.route)
			if r.call != nil {
				reply.Calls = append(reply.Calls, *r.call)
			}
		}
		return nil
	}, func(ctx context.Context, s *hookEffects, reply sdk.ModelReply) (core.Event, error) {
		ev.Reply = reply
		if len(reply.Calls) > 0 && s.terminate == nil {
			ev.Plan = core.PlanRound(a.agent.Core, &a.state.Head, a.state.Input, reply, s.hidden, a.Env.Now())
			if err := a.rule(ctx, s, ev.Plan); err != nil {
				return a.hookFailed(err)
			}
			if err := a.suspended(ctx, s, ev.Plan); err != nil {
				return a.hookFailed(err)
			}
		}
		ev.Notes, ev.Turn = s.notes, s.turn()
		return ev, nil
	})
}

// route asks for the call of one step, a few times. A text that names one tool, and nothing else, is taken for its call in the end.
func (a *activation) route(ctx context.Context, s *hookEffects, step *core.PlanStep) routed {
	out := routed{route: core.Route{Step: step.Number}}
	tools := a.routed(s, step)
	if len(tools) == 0 {
		out.route.Fault = "no tool is for it"
		return out
	}
	request := a.roleRequest(a.agent.Planning.Router, sdk.TurnTools, s)
	request.Tools = tools
	request.System, request.Messages = planning.Router(a.state, step)
	request.Messages = slices.Concat(request.Messages, s.kept, s.context)
	fault, said := "", ""
	for range routerAttempts {
		reply, err := a.consult(ctx, a.agent.Planning.Router.Model, request, forRoute, &out.cost)
		if err != nil {
			out.err = err
			return out
		}
		if said, fault = reply.Text, ""; reply.Fault != nil {
			fault = reply.Fault.Message
		}
		if len(reply.Calls) > 0 {
			if fault = a.unmade(reply.Calls[0], s); fault == "" {
				out.call = &reply.Calls[0]
				return out
			}
		}
		request.Messages = append(slices.Clip(request.Messages), planning.NoCall(said, tools, fault)...)
	}
	if named := planning.InText(said, tools); named != nil && a.unmade(*named, s) == "" {
		out.call = named
		return out
	}
	if fault == "" {
		fault = "no call was chosen for it"
	}
	out.route.Fault = fault
	return out
}

// unmade says why a call cannot be made, whatever anybody rules; empty is that it can.
func (a *activation) unmade(call sdk.ToolRequest, s *hookEffects) string {
	plan := core.PlanRound(a.agent.Core, &a.state.Head, a.state.Input, sdk.ModelReply{Calls: []sdk.ToolRequest{call}}, s.hidden, a.Env.Now())
	if refusal := plan.Calls[0].Refusal; refusal != nil {
		return refusal.Error()
	}
	return ""
}

// routed are the tools that the router is offered for a step: of many, those that the journal says, and those that its hint means.
func (a *activation) routed(s *hookEffects, step *core.PlanStep) []sdk.ToolDefinition {
	tools := a.routable(s)
	offer := a.state.OfferedFor(step.Number)
	if offer == nil {
		return tools
	}
	return slices.DeleteFunc(tools, func(d sdk.ToolDefinition) bool {
		return !slices.Contains(offer.Tools, d.Name) && !planning.Hinted(step.Tool, d.Name)
	})
}

// model is what is asked for the next reply to the conversation.
func (a *activation) model() Role {
	if a.agent.Planning != nil && a.state.Synthesizes() {
		return a.agent.Planning.Synthesizer
	}
	return Role{a.agent.Model, a.agent.ModelName}
}
