package milestone

import (
	"agentd/internal/core"
	"agentd/sdk/wire"
)

// The data of milestones of plans.
type (
	planCreated struct {
		Plan  int       `json:"plan"`
		By    string    `json:"by"`
		Steps []newStep `json:"steps"`
	}
	newStep struct {
		Step  int    `json:"step"`
		Text  string `json:"text"`
		Tool  string `json:"tool,omitempty"`
		After []int  `json:"after,omitempty"`
	}
	planAbandoned struct {
		Reason string `json:"reason"`
	}
	stepExecuting struct {
		Step  int    `json:"step"`
		Steps int    `json:"steps"`
		Text  string `json:"text"`
		Tool  string `json:"tool"`
		Call  string `json:"call"`
	}
	stepCompleted struct {
		Step    int             `json:"step"`
		Success bool            `json:"success"`
		Status  core.StepStatus `json:"status"`
		Text    string          `json:"text"`
		Tool    string          `json:"tool,omitempty"`
		Call    string          `json:"call,omitempty"`
		Fault   string          `json:"fault,omitempty"`
	}
)

// planned tells of a new plan, and of the steps that are begun.
func (t *teller) planned() {
	e := t.entry
	p := e.Head.Plan
	if e.Kind == core.KindPlanned && len(e.Steps) > 0 && p.Phase == core.PhaseSteps {
		told := planCreated{Plan: p.Made, By: p.By}
		for _, s := range e.Steps {
			told.Steps = append(told.Steps, newStep{Step: s.Number, Text: s.Text, Tool: s.Tool, After: s.After})
		}
		t.tell(wire.MilestonePlanned, told)
	}
	for _, s := range e.Steps {
		if s.Status == core.StepCalling {
			t.tell(wire.MilestoneStep, stepExecuting{Step: s.Number, Steps: len(p.Steps), Text: s.Text, Tool: s.Called, Call: s.Call})
		}
	}
}

// stepsEnded tells of the steps that came to their end, and of a plan that came to nothing.
func (t *teller) stepsEnded() {
	e := t.entry
	for _, s := range e.Steps {
		switch s.Status {
		case core.StepDone, core.StepFailed, core.StepGivenUp:
			t.tell(wire.MilestoneStepEnded, stepCompleted{
				Step: s.Number, Success: s.Status == core.StepDone, Status: s.Status, Text: s.Text, Tool: s.Called, Call: s.Call, Fault: s.Fault,
			})
		case core.StepPlanned, core.StepCalling:
		}
	}
	if p := e.Head.Plan; p != nil && p.Phase == core.PhaseLoop && (e.Kind == core.KindPlanned || len(e.Steps) > 0) {
		t.tell(wire.MilestoneUnplanned, planAbandoned{Reason: p.Fault})
	}
}
