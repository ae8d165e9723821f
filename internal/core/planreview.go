package core

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Where people review the plans of an agent, a plan opens a round of its own: a call of the tool that Reviews, with the plan as its arguments,
// which is held for their decision as any other call. Allowed, perhaps edited, the driver hands the plan back as the call's result, and its
// steps are carried out. Else another plan is made, or the run's answer says that none was approved.

// ReviewedStep is a step of a plan as people review it.
type ReviewedStep struct {
	Step  int    `json:"step"`
	Text  string `json:"text"`
	Tool  string `json:"tool,omitempty"`
	After []int  `json:"after,omitempty"`
	When  string `json:"when,omitempty"`
	Each  string `json:"each,omitempty"`
}

// ReviewedPlan are the arguments of the call of a plan: its steps, with the numbers that they have in the run.
type ReviewedPlan struct {
	Steps []ReviewedStep `json:"steps"`
}

// encodeReviewed is the plan of those steps, numbered from first, as canonical JSON.
func encodeReviewed(steps []PlanStep, first int) (json.RawMessage, error) {
	var plan ReviewedPlan
	for i, s := range steps {
		plan.Steps = append(plan.Steps, ReviewedStep{
			Step: first + i, Text: s.Text, Tool: clipJSON(s.Tool, maxStepTool), After: s.After, When: s.When, Each: s.Each,
		})
	}
	data, err := EncodeJSON(plan)
	if err != nil {
		return nil, fmt.Errorf("encode the plan: %w", err)
	}
	return wire.Canonicalize(data)
}

// AdmitReview admits the call of a plan of those steps. People have to be asked for it (Admission.Ask), else it is denied.
func AdmitReview(spec *Spec, head *Head, steps []PlanStep, now int64) (*Admission, error) {
	tool := spec.reviewTool()
	args, err := encodeReviewed(steps, head.Plan.NextNumber())
	if err != nil || tool == nil {
		return nil, err
	}
	c := AdmittedCall{Tool: tool.Name, Args: args, tool: tool}
	c.ID = wire.CallID(head.Key(), head.Init.Token, head.Round+1, 0, c.Tool, c.Args)
	return &Admission{turn: head.turn(), grants: spec.grants(head, now), Calls: []AdmittedCall{c}}, nil
}

// reviews reports whether the admission is that of the call of a plan of those steps.
func (p *Admission) reviews(h *Head, steps []PlanStep) bool {
	args, err := encodeReviewed(steps, h.Plan.NextNumber())
	return err == nil && p != nil && p.turn == h.turn() && len(p.Calls) == 1 && bytes.Equal(p.Calls[0].Args, args)
}

// reviews reports whether a call is a plan that people review.
func (s *Spec) reviews(c *Call) bool {
	tool := s.tool(c.Tool)
	return c.ofModel() && tool != nil && tool.Reviews != nil
}

// review has people asked about the plan.
func (t *transition) review(admission *Admission) error {
	t.Head.Plan.Phase = PhaseReview
	said := fmt.Sprintf("Plan %d is to be approved.", t.Head.Plan.Made)
	return t.openRound([]sdk.Content{{Kind: sdk.ContentText, Text: said}}, admission, nil)
}

// checkReviewed says why the plan of an edited request cannot be; nil for every other request.
func (t *transition) checkReviewed(request *Call, args json.RawMessage) error {
	tool := t.spec.tool(request.Tool)
	if request.Type != sdk.TypePlanReview || t.Head.Plan == nil || tool == nil || tool.Reviews == nil {
		return nil
	}
	_, err := t.Head.Plan.withReviewed(tool, args)
	return err
}

// withReviewed are the steps of the plan with those that were approved in place of what was proposed.
func (p *Plan) withReviewed(tool *Tool, args json.RawMessage) ([]PlanStep, error) {
	var reviewed ReviewedPlan
	read, err := tool.Reviews(args)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(read, &reviewed); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if n := len(reviewed.Steps); n == 0 || n > MaxPlanSteps {
		return nil, fmt.Errorf("it has %d steps; want 1 to %d", n, MaxPlanSteps)
	}
	proposed := func(s PlanStep) bool { return s.Plan == p.Made }
	first := p.Steps[slices.IndexFunc(p.Steps, proposed)].Number
	made := &Plan{Made: p.Made, Steps: slices.DeleteFunc(slices.Clone(p.Steps), proposed)}
	for i, r := range reviewed.Steps {
		s := PlanStep{
			Number: first + i, Plan: p.Made, Text: r.Text, Tool: clipJSON(r.Tool, maxStepTool), After: r.After, When: r.When, Each: r.Each, Status: StepPlanned,
		}
		if r.Step != s.Number {
			return nil, fmt.Errorf("step %d has the number %d; its steps are numbered from %d", s.Number, r.Step, first)
		}
		if err := made.check(&s); err != nil {
			return nil, fmt.Errorf("step %d: %w", s.Number, err)
		}
		made.Steps = append(made.Steps, s)
	}
	return made.Steps, nil
}

// planReviewed carries the plan out that was approved, or has another one made, or none.
func (t *transition) planReviewed(c *Call, r *Result) {
	p := t.Head.Plan
	switch {
	case !t.spec.reviews(c):
		return
	case r.Kind == ResultCancelled:
		p.Phase = PhasePlanning
		return
	case r.Error:
		t.planRefused(c, r)
		return
	}
	steps, err := p.withReviewed(t.spec.tool(c.Tool), r.Data)
	if err != nil {
		t.planRefused(c, &Result{Data: FailureData(sdk.Errorf(sdk.CodeInternal, "%s", err))})
		return
	}
	same := func(a, b PlanStep) bool {
		return a.Text == b.Text && a.Tool == b.Tool && slices.Equal(a.After, b.After) && a.When == b.When && a.Each == b.Each
	}
	p.Edited = !slices.EqualFunc(p.Steps, steps, same)
	p.Phase, p.Steps = PhaseSteps, steps
	for i := range p.Steps {
		if s := &p.Steps[i]; p.Edited && s.Plan == p.Made {
			t.tellStep(s)
		}
	}
}

// planRefused gives up the plan that nobody has approved. Who says why has another one made, as often as plans are replaced; else the run's
// answer says that nothing of it was done.
func (t *transition) planRefused(c *Call, r *Result) {
	p := t.Head.Plan
	said := ""
	for _, d := range t.Decisions {
		if d.Call == c.ID && d.Event != "" {
			said = d.Reason
		}
	}
	p.Refused = clipJSON(cmp.Or(said, faultText(r)), maxFault)
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Plan == p.Made && s.Status == StepPlanned {
			s.Status, s.Fault = StepGivenUp, "the plan was not approved"
			t.tellStep(s)
		}
	}
	if said != "" && p.Replans < t.spec.replans() && p.roomForAnother() {
		p.Phase = PhasePlanning
		p.Replans++
		return
	}
	p.Phase, p.Fault = PhaseAnswer, clipJSON("the plan was not approved: "+p.Refused, maxFault)
}
