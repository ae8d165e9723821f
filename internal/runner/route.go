package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/sdk"
)

const (
	// routerAttempts is how often a router is asked for one call.
	routerAttempts = 3
	// routersAtOnce bounds how many calls are being chosen at the same time.
	routersAtOnce = 16
	// routerPause is how long it takes until a router that failed is asked again, unless its server says, and at most the time of a model
	// call. It is as long as a run is parked first.
	routerPause = 30 * time.Second
	// LongestTurn is how many times as long as a model call a turn of planning may take: the calls of a round are chosen, so many at once, and
	// after a pause once more.
	LongestTurn = 2*routerAttempts*core.MaxRound/routersAtOnce + 1
	// maxEvaluated is the size of all results together, in bytes, that the expressions of a step call at most.
	maxEvaluated = 2 * core.MaxResult
)

// choice is a call that is to be chosen, for a step or an element of its list, and what came of asking a router for it.
type choice struct {
	step    *core.PlanStep
	element *planning.Element

	call  *sdk.ToolRequest
	fault string
	cost  sdk.ModelReply
	err   error
}

// routeSteps has calls chosen for the steps, as many as a round has, and makes one round of them.
func (a *activation) routeSteps(ctx context.Context, numbers []int) (core.Event, error) {
	routes, choices, err := a.dueChoices(ctx, numbers)
	if err != nil {
		return nil, err
	}
	ev := core.Routed{Routes: routes, Unasked: len(choices) == 0}
	if ev.Unasked {
		return ev, nil
	}
	return a.inTurn(ctx, func(ctx context.Context, s *hookEffects, reply *sdk.ModelReply) error {
		a.chooseTwice(ctx, s, choices)
		err := chosen(choices, &ev, reply)
		if err == nil || ctx.Err() != nil || len(undecided(choices)) == len(choices) && !errors.Is(err, errNoTokens) {
			return err
		}
		a.Logger.WarnContext(ctx, "calls could not be chosen for some steps; they are asked for again", "run", a.state.Run, "error", err)
		return nil
	}, func(ctx context.Context, s *hookEffects, reply sdk.ModelReply) (core.Event, error) {
		ev.Reply = reply
		if len(reply.Calls) > 0 && s.terminate == nil {
			ev.Admission = core.Admit(a.agent.Core, &a.state.Head, a.state.Input, reply, s.hidden, a.Env.Now())
			if err := a.rule(ctx, s, ev.Admission); err != nil {
				return a.hookFailed(err)
			}
			if err := a.suspended(ctx, s, ev.Admission); err != nil {
				return a.hookFailed(err)
			}
		}
		ev.Notes, ev.HookEffects = s.notes, s.turn()
		return ev, nil
	})
}

// chooseTwice has calls chosen, and those once more, after a pause, for which that could not be done while it was done for others: a round
// waits for people and services as long as they take, and what has no call yet waits with it.
func (a *activation) chooseTwice(ctx context.Context, s *hookEffects, choices []*choice) {
	a.chooseCalls(ctx, s, choices)
	left := undecided(choices)
	if len(left) == 0 || len(left) == len(choices) || a.outOfTokens() || a.draining.Load() {
		return
	}
	e := sdk.AsError(left[0].err)
	if !a.passes(e) || a.Env.Sleep(ctx, min(cmp.Or(e.RetryAfter, routerPause), a.agent.ModelTimeout)) != nil {
		return
	}
	a.progress()
	a.chooseCalls(ctx, s, left)
}

// chooseCalls has calls chosen, some at the same time. Once a choice has failed it begins no more: a model that is away is not to take its
// time for each.
func (a *activation) chooseCalls(ctx context.Context, s *hookEffects, choices []*choice) {
	var failed error
	for some := range slices.Chunk(choices, routersAtOnce) {
		var runs []func()
		for _, c := range some {
			if c.err = failed; failed == nil {
				runs = append(runs, func() { a.route(ctx, s, c) })
			}
		}
		a.Env.Parallel(runs...)
		if left := undecided(some); len(left) > 0 {
			failed = left[0].err
		}
	}
}

// undecided are the choices that could not be made.
func undecided(choices []*choice) []*choice {
	return slices.DeleteFunc(slices.Clone(choices), func(c *choice) bool { return c.err == nil })
}

// chosen adds what came of the choices to the routes and the reply. A model that failed does not undo what others have chosen: what it was
// asked for stays to be chosen, and the error says why.
func chosen(choices []*choice, ev *core.Routed, reply *sdk.ModelReply) (err error) {
	failed := map[int]bool{}
	for _, c := range choices {
		addCost(reply, &c.cost)
		if c.err != nil {
			err = c.err
			failed[c.step.Number] = true
			continue
		}
		if c.call != nil {
			reply.Calls = append(reply.Calls, *c.call)
		}
		r := &ev.Routes[slices.IndexFunc(ev.Routes, func(r core.Route) bool { return r.Step == c.step.Number })]
		if c.element == nil {
			r.Fault = c.fault
			continue
		}
		r.Elements = append(r.Elements, core.ElementRoute{Place: c.element.Place, Fault: c.fault})
	}
	ev.Routes = slices.DeleteFunc(ev.Routes, func(r core.Route) bool { return failed[r.Step] && len(r.Elements) == 0 })
	return err
}

// dueChoices says which calls are to be chosen for the steps, as many as a round has. Steps are skipped whose conditions do not hold, and
// those fail whose expressions nobody can evaluate. What a round has no room for is chosen for the next one.
func (a *activation) dueChoices(ctx context.Context, numbers []int) (routes []core.Route, choices []*choice, err error) {
	elements := 0
	for _, n := range numbers {
		step := *a.state.Plan.Step(n)
		if len(choices) == core.MaxRound {
			break
		}
		r, list, err := a.dueStep(ctx, &step, elements)
		if err != nil {
			return nil, nil, err
		}
		switch {
		case r.Fault != "" || r.Skipped != "":
		case step.Each == "":
			choices = append(choices, &choice{step: &step})
		default:
			if step.Elements == nil {
				elements += r.Of
			}
			for i, data := range list {
				due := step.Elements == nil || step.Elements[i].Status == core.StepPlanned
				if due && len(choices) < core.MaxRound {
					choices = append(choices, &choice{step: &step, element: &planning.Element{Place: i, Of: len(list), Data: data}})
				}
			}
		}
		routes = append(routes, r)
	}
	return routes, choices, nil
}

// dueStep says whether a step is to be done, and the elements of its list. taken is how many elements steps have that begin with it.
func (a *activation) dueStep(ctx context.Context, step *core.PlanStep, taken int) (r core.Route, list []json.RawMessage, err error) {
	r.Step = step.Number
	results, size := map[int]json.RawMessage{}, 0
	for _, n := range planning.Calls(step) {
		if size += a.resultSize(a.state.Plan.Step(n)); size > maxEvaluated {
			r.Fault = fmt.Sprintf("its expressions call results of more than %d bytes", maxEvaluated)
			return r, nil, nil
		}
		if results[n], err = a.stepResult(ctx, a.state.Plan.Step(n)); err != nil {
			return r, nil, err
		}
	}
	if step.Elements == nil {
		holds, fault := planning.Holds(step, results)
		switch {
		case fault != nil:
			r.Fault = "its condition: " + fault.Error()
			return r, nil, nil //nolint:nilerr // the step has failed, and says why
		case !holds:
			r.Skipped = "its condition does not hold: " + step.When
			return r, nil, nil
		}
	}
	if step.Each == "" {
		return r, nil, nil
	}
	list, fault := planning.Elements(step, results, a.state.Plan.RoomForElements(step)-taken)
	if fault != nil {
		r.Fault = "its list: " + fault.Error()
	}
	r.Of = len(list)
	return r, list, nil
}

// resultSize is the size of stepResult in bytes, about.
func (a *activation) resultSize(step *core.PlanStep) int {
	size := 0
	for _, call := range step.Calls() {
		if c := a.state.ResultNamed(call); c != nil {
			size += max(c.Size, len(c.Text))
		}
	}
	return size
}

// stepResult is the whole result of a step, or of all elements of its list.
func (a *activation) stepResult(ctx context.Context, step *core.PlanStep) (json.RawMessage, error) {
	if step.Each != "" {
		all := []json.RawMessage{}
		for i := range step.Elements {
			e := &step.Elements[i]
			data, err := a.callResult(ctx, e.Call)
			if err != nil {
				return nil, err
			}
			if data == nil {
				data = a.state.ElementResult(e)
			}
			all = append(all, data)
		}
		return core.EncodeJSON(all)
	}
	return a.callResult(ctx, step.Call)
}

// callResult is the whole result of a call of the history; nil is none.
func (a *activation) callResult(ctx context.Context, call string) (json.RawMessage, error) {
	c := a.state.ResultNamed(call)
	if call == "" || c == nil {
		return nil, nil
	}
	text, err := a.wholeResult(ctx, c)
	return json.RawMessage(text), err
}

// route asks for one call, a few times. A text that names one tool, and nothing else, is taken for its call in the end.
func (a *activation) route(ctx context.Context, s *hookEffects, c *choice) {
	tools := a.routed(s, c.step)
	if len(tools) == 0 {
		c.fault = "no tool is for it"
		return
	}
	request := a.roleRequest(a.agent.Planning.Router, sdk.TurnTools, s)
	request.Tools = tools
	request.System, request.Messages = planning.Router(a.state, c.step, c.element)
	request.Messages = slices.Concat(request.Messages, s.kept, s.context)
	fault, said := "", ""
	for range routerAttempts {
		reply, err := a.consult(ctx, a.agent.Planning.Router.Model, request, forRoute, &c.cost)
		if err != nil {
			c.err = err
			return
		}
		if said, fault = reply.Text, ""; reply.Fault != nil {
			fault = reply.Fault.Message
		}
		if len(reply.Calls) > 0 {
			if fault = a.unmade(reply.Calls[0], s); fault == "" {
				c.call = &reply.Calls[0]
				return
			}
		}
		request.Messages = append(slices.Clip(request.Messages), planning.NoCall(said, tools, fault)...)
	}
	if named := planning.InText(said, tools); named != nil && a.unmade(*named, s) == "" {
		c.call = named
		return
	}
	if c.fault = fault; fault == "" {
		c.fault = "no call was chosen for it"
	}
}

// unmade says why a call cannot be made, whatever anybody rules; empty is that it can.
func (a *activation) unmade(call sdk.ToolRequest, s *hookEffects) string {
	admission := core.Admit(a.agent.Core, &a.state.Head, a.state.Input, sdk.ModelReply{Calls: []sdk.ToolRequest{call}}, s.hidden, a.Env.Now())
	c := &admission.Calls[0]
	switch {
	case c.Refusal != nil:
		return c.Refusal.Error()
	case a.agent.Planning.Skips[c.Tool]:
		return c.Tool + " is not for steps of plans"
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
