package milestone

import (
	"slices"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// The data of milestones of plans.
type (
	planCreated struct {
		Plan  int       `json:"plan"`
		By    string    `json:"by"`
		Steps []newStep `json:"steps"`
		// Edited says that these are the steps as who approved them has changed them.
		Edited bool `json:"edited,omitempty"`
	}
	newStep struct {
		Step  int    `json:"step"`
		Text  string `json:"text"`
		Tool  string `json:"tool,omitempty"`
		After []int  `json:"after,omitempty"`
		When  string `json:"when,omitempty"`
		Each  string `json:"each,omitempty"`
	}
	planAbandoned struct {
		Reason string `json:"reason"`
	}
	stepExecuting struct {
		Step  int    `json:"step"`
		Steps int    `json:"steps"`
		Text  string `json:"text"`
		Tool  string `json:"tool"`
		Call  string `json:"call,omitempty"`
		// Of is how many elements the step's list has.
		Of int `json:"of,omitempty"`
	}
	stepCompleted struct {
		Step    int             `json:"step"`
		Success bool            `json:"success"`
		Status  core.StepStatus `json:"status"`
		Text    string          `json:"text"`
		Tool    string          `json:"tool,omitempty"`
		Call    string          `json:"call,omitempty"`
		Fault   string          `json:"fault,omitempty"`
		// Done and Of count elements of a step's list.
		Done int `json:"done,omitempty"`
		Of   int `json:"of,omitempty"`
	}
)

// planned tells of a new plan, and of the steps that are begun.
func (t *teller) planned() {
	e := t.entry
	p := e.Head.Plan
	if len(e.Steps) > 0 && (e.Kind == core.KindPlanned && (p.Phase == core.PhaseSteps || p.Phase == core.PhaseReview) || approvedEdited(e)) {
		told := planCreated{Plan: p.Made, By: p.By, Edited: approvedEdited(e)}
		for _, s := range e.Steps {
			told.Steps = append(told.Steps, newStep{Step: s.Number, Text: s.Text, Tool: s.Tool, After: s.After, When: s.When, Each: s.Each})
		}
		t.tell(wire.MilestonePlanned, told)
	}
	for _, s := range e.Steps {
		if s.Status == core.StepCalling {
			t.tell(wire.MilestoneStep, stepExecuting{Step: s.Number, Steps: len(p.Steps), Text: s.Text, Tool: s.Called, Call: s.Call, Of: len(s.Elements)})
		}
	}
}

// approvedEdited reports whether the entry has a plan that a person has edited.
func approvedEdited(e *core.Entry) bool {
	edited := func(s core.PlanStep) bool { return s.Status == core.StepPlanned && s.Elements == nil }
	return e.Head.Plan.Edited && e.Kind == core.KindReturned && !slices.ContainsFunc(e.Steps, func(s core.PlanStep) bool { return !edited(s) })
}

// stepsEnded tells of the steps that came to their end, and of a plan that came to nothing.
func (t *teller) stepsEnded() {
	e := t.entry
	for _, s := range e.Steps {
		switch s.Status {
		case core.StepDone, core.StepFailed, core.StepGivenUp, core.StepSkipped:
			t.tell(wire.MilestoneStepEnded, stepCompleted{
				Step: s.Number, Success: s.Status == core.StepDone, Status: s.Status, Text: s.Text, Tool: s.Called, Call: s.Call, Fault: s.Fault,
				Done: s.Done(), Of: len(s.Elements),
			})
		case core.StepPlanned, core.StepCalling:
		}
	}
	if p := e.Head.Plan; p != nil && p.Phase == core.PhaseLoop && (e.Kind == core.KindPlanned || len(e.Steps) > 0) {
		t.tell(wire.MilestoneUnplanned, planAbandoned{Reason: p.Fault})
	}
}
