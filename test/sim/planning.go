package sim

import (
	"strings"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
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
	a.Planning = &runner.Planning{Planner: role, Router: role, Synthesizer: role}
	if s.pick(6) == 0 {
		a.Planning.Templates = []sdk.PlanTemplate{{Name: "hi", Keywords: [][]string{{"hello"}}, Steps: []sdk.TemplateStep{{Text: "one"}, {Text: "two", After: []int{1}}}}}
	}
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
				reply.Text += `plan.add_step(text="do it"`
				if i > 0 && m.pick(2) == 0 {
					reply.Text += ", after=[1]"
				}
				reply.Text += ")\n"
			}
		}
	case strings.HasPrefix(req.System, "You make one call of a tool"):
		reply.Calls = m.calls()[:1]
		if m.strikes(modelOdd) {
			reply.Calls, reply.Text = nil, "Gladly."
		}
	default:
		return sdk.ModelReply{}, false
	}
	return reply, true
}
