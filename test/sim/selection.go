package sim

import (
	"context"
	"slices"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// choosing gives an agent, now and then, a choice of its tools, which is another one each time that it is made.
func (s *simulation) choosing(a *runner.Agent) {
	if s.pick(4) > 0 {
		return
	}
	for _, t := range a.Core.Tools {
		a.Definitions = append(a.Definitions, sdk.ToolDefinition{Name: t.Name})
	}
	a.Core.Selects = true
	a.Model.(*model).chooses = true // every agent's is
	none := func(string) bool { return false }
	some := func() core.Offered {
		o := core.Offered{By: sdk.SelectedByEmbeddings}
		for _, d := range a.Definitions {
			if s.pick(2) == 0 {
				o.Tools = append(o.Tools, d.Name)
			}
		}
		return o
	}
	a.Selection = &runner.Selection{
		Tools: a.Core.Digest, Person: none, Finds: none,
		Choose: func(context.Context, []string) core.Offered { return some() },
		Fit:    func(context.Context, string) core.Offered { return some() },
	}
}

// offered sees that what a model is offered is a choice in the journal, and what the run has called. It may be that of a history which a
// failover forgot.
func (m *models) offered(key wire.RunKey, tools []sdk.ToolDefinition) {
	j := m.store.journals[key]
	if len(tools) == 0 || m.chosen(tools, j.decoded) || slices.ContainsFunc(j.deposed, func(p past) bool { return m.chosen(tools, p.decoded) }) {
		return
	}
	m.violate("offered", "run %s: a model is offered tools that no choice in the journal has: %v", key, tools)
}

func (m *models) chosen(tools []sdk.ToolDefinition, entries []decoded) bool {
	called := map[string]bool{}
	var choices []*core.Offered
	for _, d := range entries {
		e, err := m.store.whole(d)
		if err != nil {
			continue
		}
		if e.Offered != nil {
			choices = append(choices, e.Offered)
		}
		for i := range e.Messages {
			for _, c := range e.Messages[i].Content {
				called[c.Tool] = true
			}
		}
	}
	return slices.ContainsFunc(choices, func(o *core.Offered) bool {
		return !slices.ContainsFunc(tools, func(d sdk.ToolDefinition) bool { return !called[d.Name] && !slices.Contains(o.Tools, d.Name) })
	})
}
