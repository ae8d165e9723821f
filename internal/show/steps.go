package show

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"agentd/internal/core"
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
	Steps  json.RawMessage `json:"steps"`
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
		var steps []struct {
			Step int    `json:"step"`
			Text string `json:"text"`
		}
		_ = json.Unmarshal(d.Steps, &steps) // workers tell them so
		said := Count(len(steps), "step") + madeBy(d.By)
		for _, s := range steps {
			said += fmt.Sprintf("\n%d. %s", s.Step, s.Text)
		}
		return labelPlan, said
	case wire.MilestoneUnplanned:
		return labelPlan, "goes on without: " + d.Reason
	case wire.MilestoneStep:
		return fmt.Sprintf("step %d", d.Step), d.Text
	}
	said := string(d.Status)
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
	core.StepPlanned: "[ ]", core.StepCalling: "[…]", core.StepDone: "[✓]", core.StepFailed: "[✗]", core.StepGivenUp: "[-]",
}

// writePlan writes a plan with what became of its steps.
func writePlan(w io.Writer, p *core.Plan) {
	fmt.Fprintf(w, "\nplan%s\n", madeBy(p.By))
	for i := range p.Steps {
		s := &p.Steps[i]
		line := fmt.Sprintf("%s %d. %s", stepSigns[s.Status], s.Number, s.Text)
		if s.Called != "" {
			line += " (" + s.Called + ")"
		}
		if len(s.After) > 0 {
			line += " after " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(s.After)), ", "), "[]")
		}
		fmt.Fprintln(w, "  "+Line(line, LineMax))
		if s.Fault != "" {
			fmt.Fprintln(w, "        "+Line(s.Fault, LineMax))
		}
	}
	if p.Fault != "" {
		fmt.Fprintln(w, "  goes on without a plan: "+Line(p.Fault, LineMax))
	}
}
