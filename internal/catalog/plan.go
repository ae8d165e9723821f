package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/toolbox"
	"agentd/sdk"
)

// plan is what update_plan keeps: its arguments.
type plan struct {
	Goal  string `json:"goal"`
	Steps []struct {
		Description string `json:"description"`
		Completed   bool   `json:"completed"`
		Result      string `json:"result"`
	} `json:"steps"`
	// Current is the number of a step, from 1; 0 is none.
	Current int `json:"current"`
}

// keepPlan returns the plan as the call's result: the last one in the conversation is the plan of the run.
func keepPlan(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
	var p plan
	if err := json.Unmarshal(call.Args, &p); err != nil {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the plan cannot be read")
	}
	if p.Current > len(p.Steps) {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the plan has %d steps; number %d is none of them", len(p.Steps), p.Current)
	}
	return call.Args, nil
}

// planText is the plan as the model is shown it; empty is none.
func planText(data json.RawMessage) string {
	var p plan
	if len(data) == 0 || json.Unmarshal(data, &p) != nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Your plan. Goal: %s", p.Goal)
	for i, s := range p.Steps {
		mark := " "
		switch {
		case s.Completed:
			mark = "x"
		case i+1 == p.Current:
			mark = ">"
		}
		fmt.Fprintf(&b, "\n%d. [%s] %s", i+1, mark, s.Description)
		if s.Result != "" {
			b.WriteString(": " + s.Result)
		}
	}
	return b.String()
}

// plans reports whether the agent keeps a plan.
func plans(tools *toolbox.Toolbox) bool {
	t, ok := tools.ByName(sdk.ToolUpdatePlan)
	return ok && t.Kind == toolbox.Builtin
}
