package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Proposal is what people decide on, and what it is: the steps of a plan, or the arguments of a call as JSON. It is safe to show.
func Proposal(tool string, args json.RawMessage) (what, text string) {
	if plan, ok := readPlan(tool, args); ok {
		return labelPlan, planText(plan)
	}
	return "arguments", VisibleJSON(args)
}

// DifferentProposals are the lines of two proposals for a tool side by side. They are safe to show.
func DifferentProposals(tool string, was, is json.RawMessage) []ComparedLine {
	before, planned := readPlan(tool, was)
	after, still := readPlan(tool, is)
	if planned && still {
		return differentTexts(planText(before), planText(after))
	}
	return DifferentLines(was, is)
}

// readPlan reads a plan that is to be approved. It is nothing where its steps would not show all of what is decided on.
func readPlan(tool string, args json.RawMessage) (plan core.ReviewedPlan, ok bool) {
	if tool != sdk.ToolReviewPlan || json.Unmarshal(args, &plan) != nil || len(plan.Steps) == 0 {
		return plan, false
	}
	shown, err := json.Marshal(plan)
	if err != nil {
		return plan, false
	}
	canonical, err1 := wire.Canonicalize(shown)
	written, err2 := wire.Canonicalize(args)
	return plan, err1 == nil && err2 == nil && bytes.Equal(canonical, written)
}

// planText has a line for each step, and one below it for each thing that is said of it.
func planText(plan core.ReviewedPlan) string {
	var b strings.Builder
	for _, s := range plan.Steps {
		fmt.Fprintf(&b, "%d. %s\n", s.Step, Visible(s.Text))
		said := func(label, text string) {
			if text != "" {
				fmt.Fprintf(&b, "     %s: %s\n", label, Visible(text))
			}
		}
		said("with", s.Tool)
		said("after", stepNumbers(s.After))
		said("for each of", s.Each)
		said("when", s.When)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// stepNumbers are numbers of steps with commas between them.
func stepNumbers(numbers []int) string {
	return strings.Trim(strings.Join(strings.Fields(fmt.Sprint(numbers)), ", "), "[]")
}
