package core

import (
	"encoding/json"

	"agentd/sdk"
)

// Plan is the plan that the agent has written down last; nil is none.
func (s *State) Plan() json.RawMessage {
	for i := len(s.History) - 1; i >= 0; i-- {
		for _, c := range s.History[i].Content {
			if c.Kind == sdk.ContentToolResult && c.Tool == sdk.ToolUpdatePlan && !c.IsError {
				return json.RawMessage(c.Text)
			}
		}
	}
	return nil
}

// agentPlan is an agent's plan as a live event tells it.
type agentPlan struct {
	Call string          `json:"call"`
	Plan json.RawMessage `json:"plan"`
}

// plan tells of a plan that was written down.
func (m *milestones) plan(r *Result) {
	if r.Kind == ResultInline && !r.Error && toolOf(m.entry, r.Call) == sdk.ToolUpdatePlan {
		m.append(MilestonePlan, agentPlan{Call: r.Call, Plan: r.Data})
	}
}
