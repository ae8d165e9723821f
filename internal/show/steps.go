package show

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// stepData is the union of what milestones of plans hold.
type stepData struct {
	Step   int             `json:"step"`
	Status core.StepStatus `json:"status"`
	Text   string          `json:"text"`
	Tool   string          `json:"tool"`
	Fault  string          `json:"fault"`
	Reason string          `json:"reason"`
	By     string          `json:"by"`
	Edited bool            `json:"edited"`
	Steps  json.RawMessage `json:"steps"`
	Done   int             `json:"done"`
	Of     int             `json:"of"`
}

// labelPlan is the label of what is told of a plan.
const labelPlan = "plan"

// describeSteps is a milestone of a plan in words.
func describeSteps(l wire.Live) (label, text string) {
	var d stepData
	if err := json.Unmarshal(l.Data, &d); err != nil {
		return l.Type, string(l.Data)
	}
	switch l.Type {
	case wire.MilestonePlanned:
		var steps []core.ReviewedStep
		_ = json.Unmarshal(d.Steps, &steps) // workers tell them so
		said := Count(len(steps), "step") + madeBy(d.By)
		if d.Edited {
			said += editedPlan
		}
		for _, s := range steps {
			text := stepText(&core.PlanStep{Text: s.Text, Called: s.Tool, After: s.After, When: s.When, Each: s.Each})
			said += fmt.Sprintf("\n%d. %s", s.Step, strings.ReplaceAll(text, "\n", " "))
		}
		return labelPlan, said
	case wire.MilestoneUnplanned:
		return labelPlan, "goes on without: " + d.Reason
	case wire.MilestoneStep:
		if d.Of > 0 {
			d.Text += fmt.Sprintf(", for %s", Count(d.Of, "element"))
		}
		return fmt.Sprintf("step %d", d.Step), d.Text
	}
	said := string(d.Status)
	if d.Of > 0 {
		said += fmt.Sprintf(" for %d of %d", d.Done, d.Of)
	}
	if d.Fault != "" {
		said += ": " + d.Fault
	}
	return fmt.Sprintf("step %d", d.Step), strings.ReplaceAll(said, "_", " ")
}

func madeBy(by string) string {
	if by == core.PlannedByModel || by == "" {
		return ""
	}
	return ", of the template " + by
}

// stepSigns stand before steps.
var stepSigns = map[core.StepStatus]string{
	core.StepPlanned: "[ ]", core.StepCalling: "[…]", core.StepDone: "[✓]", core.StepFailed: "[✗]", core.StepGivenUp: "[-]", core.StepSkipped: "[»]",
}

// stepWords say what became of steps, in the order in which a plan counts them.
var stepWords = []struct {
	status core.StepStatus
	word   string
}{
	{core.StepDone, "done"},
	{core.StepCalling, "under way"},
	{core.StepPlanned, "to do"},
	{core.StepFailed, "failed"},
	{core.StepGivenUp, "given up"},
	{core.StepSkipped, "skipped"},
}

const (
	// faultIndent stands before what is said of a step, and mostFailed is how many elements are shown that have failed.
	faultIndent = "           "
	mostFailed  = 5
	// elementMax is how long the arguments of an element are, in bytes.
	elementMax = 60
)

// editedPlan is said of a plan that whoever approved it has changed.
const editedPlan = ", edited by whoever approved it"

// Plan is the plan of a run with what became of each of its steps; empty is that there is none. It is safe to show.
func Plan(h *core.Head) string {
	if h.Plan == nil {
		return ""
	}
	var b strings.Builder
	writePlan(&b, h.Plan, h.Status, nil)
	return strings.TrimSpace(b.String())
}

// closed are the steps of a run that has ended: those that were left are given up, though a retry takes them up again.
func closed(steps []core.PlanStep) []core.PlanStep {
	steps = slices.Clone(steps)
	for i := range steps {
		s := &steps[i]
		switch s.Status {
		case core.StepCalling:
			s.Status, s.Fault = core.StepGivenUp, "the run ended while it was under way"
		case core.StepPlanned:
			s.Status, s.Fault = core.StepGivenUp, "the run ended before it"
		case core.StepDone, core.StepFailed, core.StepGivenUp, core.StepSkipped:
		}
	}
	return steps
}

// writePlan writes the plan of a run that is of that status, with what became of its steps. messages are those of the run, with the calls of
// elements.
func writePlan(w io.Writer, p *core.Plan, run core.Status, messages []sdk.Message) {
	said, steps := madeBy(p.By), p.Steps
	if run == core.StatusDone {
		steps = closed(steps)
	}
	switch {
	case p.Phase == core.PhaseReview && run == core.StatusDone:
		said += ", never approved"
	case p.Phase == core.PhaseReview:
		said += ", to be approved"
	case p.Edited:
		said += editedPlan
	}
	fmt.Fprintln(w, "\nplan"+countSteps(steps, said))
	for i := range steps {
		s := &steps[i]
		fmt.Fprintf(w, "  %s %2d. %s\n", stepSigns[s.Status], s.Number, Line(stepText(s), LineMax))
		if failed := writeFailed(w, s, messages); failed == 0 && s.Fault != "" {
			fmt.Fprintln(w, faultIndent+Line(s.Fault, LineMax))
		}
	}
	if p.Fault != "" {
		fmt.Fprintln(w, "  goes on without a plan: "+Line(p.Fault, LineMax))
	}
}

// countSteps says how many steps there are, what is said of them, and how many are of each status.
func countSteps(steps []core.PlanStep, said string) string {
	if len(steps) < 2 {
		return said
	}
	var parts []string
	for _, of := range stepWords {
		n := 0
		for i := range steps {
			if steps[i].Status == of.status {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, of.word))
		}
	}
	return fmt.Sprintf(" of %s%s: %s", Count(len(steps), "step"), said, strings.Join(parts, ", "))
}

// stepText is a step in one line: what is to be done with what, for what, after what, and when.
func stepText(s *core.PlanStep) string {
	text := s.Text
	if s.Called != "" {
		text += " (" + s.Called + ")"
	}
	if s.Each != "" {
		text += ", each of " + s.Each
		if len(s.Elements) > 0 {
			text += fmt.Sprintf(": %d of %d", s.Done(), len(s.Elements))
		}
	}
	if len(s.After) > 0 {
		text += ", after " + stepNumbers(s.After)
	}
	if s.When != "" && s.Status != core.StepSkipped {
		text += ", when " + s.When
	}
	return text
}

// writeFailed writes the elements of a step that have failed, each with what it was called with and why, and counts them.
func writeFailed(w io.Writer, s *core.PlanStep, messages []sdk.Message) (failed int) {
	for i, e := range s.Elements {
		if e.Status != core.StepFailed {
			continue
		}
		if failed++; failed > mostFailed {
			continue
		}
		said := fmt.Sprintf("✗ %d.", i+1)
		args := partOf(messages, e.Call, sdk.ContentToolUse)
		if args != nil {
			said += " " + Line(string(args.Args), elementMax)
		}
		why := e.Fault
		if result := partOf(messages, e.Call, sdk.ContentToolResult); why == "" && result != nil {
			why = failureText(result.Text)
		}
		if args == nil && why == "" {
			return 0 // the fault of the step says more
		}
		fmt.Fprintln(w, faultIndent+said+" "+Line(why, LineMax))
	}
	if failed > mostFailed {
		fmt.Fprintf(w, "%sand %d more\n", faultIndent, failed-mostFailed)
	}
	return failed
}

// failureText is why a call failed, of what a model is shown of that.
func failureText(result string) string {
	var shown struct {
		Error struct{ Code, Message string }
	}
	if json.Unmarshal([]byte(result), &shown) != nil || shown.Error.Message == "" {
		return result
	}
	return shown.Error.Code + ": " + shown.Error.Message
}

// partOf is the part of that kind of a conversation that is of a call; nil is none.
func partOf(messages []sdk.Message, call string, kind sdk.ContentKind) *sdk.Content {
	for i := range messages {
		for j := range messages[i].Content {
			if c := &messages[i].Content[j]; c.CallID == call && call != "" && c.Kind == kind {
				return c
			}
		}
	}
	return nil
}
