package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// planning has some agents plan. Their own model plays all roles.
func (s *simulation) planning(a *runner.Agent) {
	if s.pick(4) > 0 || len(a.Core.Tools) == 0 {
		return
	}
	if len(a.Definitions) == 0 {
		for _, t := range a.Core.Tools {
			a.Definitions = append(a.Definitions, sdk.ToolDefinition{Name: t.Name})
		}
	}
	a.Core.Planning, a.Core.Continues = &core.Planning{Replans: s.pick(3)}, false // plans wait for all calls of a round
	a.Core.MaxTurns += s.pick(8)
	role := runner.Role{Model: a.Model}
	a.Planning = &runner.Planning{Form: planning.JSONForm, Planner: role, Router: role, Synthesizer: role}
	if s.pick(3) == 0 {
		s.reviewed(a)
	}
	if s.pick(6) == 0 {
		a.Planning.Templates = []sdk.PlanTemplate{{Name: "hi", Keywords: [][]string{{"hello"}}, Steps: []sdk.TemplateStep{{Text: "one"}, {Text: "two", After: []int{1}}}}}
	}
}

// reviewed has people approve plans of the agent.
func (s *simulation) reviewed(a *runner.Agent) {
	terms := s.terms()
	terms.Mode, terms.Scopes, terms.Results, terms.Batch = sdk.PermissionHold, nil, false, false
	a.Planning.Review = &terms
	a.Core.ReviewSchema = "#/plan/review/1.0.0"
	a.Core.Tools = append(a.Core.Tools, core.Tool{
		Name: sdk.ToolReviewPlan, Kind: core.CallInline, Recalls: true, Reviews: planning.ReadReviewed,
		Validate: func(plan string) (json.RawMessage, []sdk.Fault) {
			data, err := wire.Canonicalize([]byte(plan))
			if err == nil {
				_, err = planning.ReadReviewed(data)
			}
			if err != nil {
				return nil, []sdk.Fault{{Path: "$", Expected: "a plan", Got: err.Error()}}
			}
			return data, nil
		},
	})
	a.Inline[sdk.ToolReviewPlan] = sdk.Tool{Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) { return call.Args, nil }}
	if a.Permissions == nil {
		a.Permissions = gate{s.manager, policy{}}
		a.Describe = func(string) sdk.PermissionCheck { return sdk.PermissionCheck{} }
	}
}

// editPlan is a plan as a person has it carried out: without its last step, without order, or as nobody can.
func (s *simulation) editPlan(args json.RawMessage) json.RawMessage {
	var plan core.ReviewedPlan
	if err := json.Unmarshal(args, &plan); err != nil {
		panic(fmt.Sprintf("sim: plan: %v", err))
	}
	last := len(plan.Steps) - 1
	switch s.pick(4) {
	case 0:
		plan.Steps[last].Step++
	case 1:
		plan.Steps[last].After = nil
	default:
		plan.Steps = plan.Steps[:max(last, 1)]
	}
	data, err := json.Marshal(plan)
	if err != nil {
		panic(fmt.Sprintf("sim: plan: %v", err))
	}
	return data
}

// plans is the reply of a planner or a router; false is that the request is another. What it costs is not counted: a turn of planning has
// several replies.
func (m *model) plans(req sdk.ModelRequest) (sdk.ModelReply, bool) {
	reply := sdk.ModelReply{Usage: sdk.Usage{Prompt: 1, Completion: 1}}
	switch {
	case strings.Contains(req.System, "You plan how the request is met"):
		switch m.pick(8) {
		case 0:
			reply.Text = "I would rather not."
		case 1:
			reply.Text = `plan.respond(message="at once")`
		default:
			for i := range 1 + m.pick(5) {
				m.steps++
				reply.Text += fmt.Sprintf(`plan.add_step(text="do %d"`, m.steps)
				if i > 0 && m.pick(2) == 0 {
					reply.Text += ", after=[1]"
				}
				reply.Text += [...]string{
					"", "", "", "", ", each=[1, 2, 3]", `, each="[1, 1]", when="true"`, `, when="has(step1.n) && step1.n > 2147483648.0"`, `, each="step1.list"`,
				}[m.pick(8)]
				reply.Text += ")\n"
			}
		}
	case strings.HasPrefix(req.System, "You make one call of a tool"):
		m.routed(wire.NewRunKey(req.Run), &req)
		reply.Calls = m.calls()[:1]
		if m.strikes(modelOdd) {
			reply.Calls, reply.Text = nil, "Gladly."
		}
	default:
		return sdk.ModelReply{}, false
	}
	return reply, true
}

// routed sees that the step which a router is shown was due in the plan that the journal has, and that it is offered the tools that the
// journal has for the step. It may be that of a history which a failover forgot.
func (m *model) routed(key wire.RunKey, req *sdk.ModelRequest) {
	text, _, _ := strings.Cut(strings.TrimPrefix(req.Messages[0].PlainText(), "Step: "), "\n")
	j := m.store.journals[key]
	planned := func(entries []decoded) bool {
		return due(text, entries) && (!m.chooses || fits(text, req.Tools, entries))
	}
	if !planned(j.decoded) && !slices.ContainsFunc(j.deposed, func(p past) bool { return planned(p.decoded) }) {
		m.violate("routed", "run %s: a call is to be chosen for %q, which is not a step that is due, of %v", key, text, req.Tools)
	}
}

// due reports whether a step of that text was due in a journal.
func due(text string, entries []decoded) bool {
	return slices.ContainsFunc(entries, func(d decoded) bool {
		p := d.Head.Plan
		done := func(n int) bool { return p.Step(n) != nil && p.Step(n).Status == core.StepDone }
		return p != nil && slices.ContainsFunc(p.Steps, func(s core.PlanStep) bool {
			return s.Text == text && s.Status == core.StepPlanned && !slices.ContainsFunc(s.After, func(n int) bool { return !done(n) })
		})
	})
}

// fits reports whether a journal has the tools as those for a step of that text.
func fits(text string, tools []sdk.ToolDefinition, entries []decoded) bool {
	return slices.ContainsFunc(entries, func(d decoded) bool {
		return slices.ContainsFunc(d.StepOffers, func(o core.StepOffer) bool {
			s := d.Head.Plan.Step(o.Step)
			return s.Text == text && !slices.ContainsFunc(tools, func(t sdk.ToolDefinition) bool { return !slices.Contains(o.Tools, t.Name) })
		})
	})
}

// synthesizes reports whether a message is what a model is told that writes the answer to a plan.
func synthesizes(told string) bool {
	return strings.HasPrefix(told, "The plan is carried out") || strings.HasPrefix(told, "There is no plan that could be carried out")
}
