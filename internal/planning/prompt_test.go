package planning_test

import (
	"fmt"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/planning"
	"agentd/sdk"
)

// TestPlanner_IsToldTheLatestDecisions: of more decisions on the calls of a step than are told, it is told the latest, in their order.
func TestPlanner_IsToldTheLatestDecisions(t *testing.T) {
	t.Parallel()
	const all = 30
	s := &core.State{}
	s.Plan = &core.Plan{Made: 1, Steps: []core.PlanStep{
		{Number: 1, Plan: 1, Text: "Mend it", Status: core.StepFailed, Called: "mend", Fault: "permission_needed: mend needs permission"},
	}}
	for i := range all {
		text := fmt.Sprintf(`{"permission":{"tool":"mend","decision":"deny","reason":"decision %d %s"}}`, i+1, strings.Repeat("x", 200))
		s.History = append(s.History, core.Remembered{Message: sdk.Message{Role: sdk.RoleUser, Content: []sdk.Content{
			{Kind: sdk.ContentText, CallID: fmt.Sprint("permission", i), Tool: "mend", Text: text},
		}}})
	}
	told, _ := planning.JSONForm.Planner("", nil, s, "")
	if len(told) > 10<<10 {
		t.Errorf("the planner is told %d bytes", len(told))
	}
	if !strings.Contains(told, "decision 30 ") || strings.Contains(told, "decision 1 ") {
		t.Errorf("of %d decisions the planner is told others than the latest:\n%s", all, told)
	}
	if strings.Index(told, "decision 29 ") > strings.Index(told, "decision 30 ") || !strings.Contains(told, "decision 29 ") {
		t.Errorf("decisions are told in another order:\n%s", told)
	}
}
