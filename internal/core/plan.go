package core

import (
	"cmp"
	"fmt"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Plan is what a run of an agent that plans is to do, step by step, and how far it is.
type Plan struct {
	// Phase says what the model is asked for next.
	Phase PlanPhase `json:"phase"`
	// By is who made the plan last: PlannedByModel, or the template of that name.
	By string `json:"by,omitempty"`
	// Made is how many plans were made, and Replans how many of them since a person spoke, without the first.
	Made    int `json:"made"`
	Replans int `json:"replans,omitempty"`
	// Steps are those of the last plan, after those of earlier ones that are done or have failed.
	Steps []PlanStep `json:"steps,omitempty"`
	// Fault is why the run goes on without a plan.
	Fault string `json:"fault,omitempty"`
	// Edited says that a person has changed the last plan before they approved it, and Refused why nobody approved the one before.
	Edited  bool   `json:"edited,omitempty"`
	Refused string `json:"refused,omitempty"`
}

// PlannedByModel is Plan.By of a plan that a model has made.
const PlannedByModel = "model"

// PlanPhase is a phase of a run that plans.
type PlanPhase string

// The phases.
const (
	// PhasePlanning: a plan is to be made.
	PhasePlanning PlanPhase = "planning"
	// PhaseReview: people are asked whether the plan may be carried out.
	PhaseReview PlanPhase = "review"
	// PhaseSteps: calls are chosen for the steps whose references are done, and made.
	PhaseSteps PlanPhase = "steps"
	// PhaseAnswer: the model is asked for the answer, without tools.
	PhaseAnswer PlanPhase = "answer"
	// PhaseLoop: the plan came to nothing, and the model is asked as that of an agent that does not plan.
	PhaseLoop PlanPhase = "loop"
)

// Planning is how an agent that plans goes about it.
type Planning struct {
	// Replans is how often a plan with failed steps is replaced by another one.
	Replans int
}

// Planned is a plan that was made, or why there is none.
type Planned struct {
	// Steps have a Text, a Tool and what they come After; those that they come after are before them, or done.
	Steps []PlanStep
	// Offers are which tools the router is offered for each of the steps, in their order; none is all.
	Offers []Offered
	By     string
	Fault  string
	// Review asks people to approve the plan, where the agent wants that: PlanReview of the steps.
	Review *Admission
	// Asked says that a model was asked, and Reply what that cost.
	Asked bool
	Reply sdk.ModelReply
	HookEffects
}

// HookEffects is what hooks did in a model call that is not a reply to the conversation.
type HookEffects struct {
	Context   []sdk.Message
	Reminded  []Reminder
	Hooks     []HookState
	Terminate *Ending
}

// Routed are the calls that were chosen for the steps which are due.
type Routed struct {
	// Routes are those of the steps for which something was chosen: none where the run's tokens were used up before.
	Routes []Route
	// Unasked says that no model was asked: no call was to be chosen.
	Unasked bool
	// Reply is what it cost, with the calls of the routes that have one, and of their elements, in their order.
	Reply sdk.ModelReply
	// Admission is that of the calls; nil where there are none.
	Admission *Admission
	Notes     []Note
	HookEffects
}

// Route says what was chosen for a step: a call, or calls for elements of its list; or why it fails, or is skipped.
type Route struct {
	Step           int
	Fault, Skipped string
	// Of is how many elements the step's list has, and Elements what was chosen for those of them whose turn it is.
	Of       int
	Elements []ElementRoute
}

// ElementRoute says what was chosen for the element of a list at that place, from 0: a call, or Fault, why there is none.
type ElementRoute struct {
	Place int
	Fault string
}

// MakePlan asks the planner; it is fed back as Planned, or as Replied where the planner answers by itself.
type MakePlan struct{}

// RouteSteps asks the router for the calls of steps, by their numbers; it is fed back as Routed.
type RouteSteps struct{ Steps []int }

// nextPlanned is what a run that plans has to do next; nil is that the model is asked.
func (s *Spec) nextPlanned(h *Head) Action {
	if s.Planning == nil || s.LastTurn(h) {
		return nil
	}
	switch {
	case h.Plan == nil, h.Plan.Phase == PhasePlanning:
		return MakePlan{}
	case h.Plan.Phase == PhaseSteps:
		return RouteSteps{h.Plan.due()}
	}
	return nil
}

// due are the steps of which all that they refer to is done.
func (p *Plan) due() []int {
	var due []int
	for i := range p.Steps {
		s := &p.Steps[i]
		waits := slices.ContainsFunc(s.After, func(n int) bool { return p.Step(n) == nil || p.Step(n).Status != StepDone })
		if s.Status == StepPlanned && !waits {
			due = append(due, s.Number)
		}
	}
	return due
}

// Step is the step of that number; nil is none that is still known.
func (p *Plan) Step(number int) *PlanStep {
	for i := range p.Steps {
		if p.Steps[i].Number == number {
			return &p.Steps[i]
		}
	}
	return nil
}

// NextNumber is the number of the first step of the next plan.
func (p *Plan) NextNumber() int {
	if p == nil || len(p.Steps) == 0 {
		return 1
	}
	return p.Steps[len(p.Steps)-1].Number + 1
}

// Kept are the steps that are kept when a plan of so many follows, of those that were done, have failed or were skipped: all that guard,
// where there is room for them and their elements, and the last ones of the others.
func (p *Plan) Kept(next int) []PlanStep {
	if p == nil {
		return nil
	}
	kept := slices.DeleteFunc(slices.Clone(p.Steps), func(s PlanStep) bool {
		return s.Status != StepDone && s.Status != StepFailed && s.Status != StepSkipped
	})
	room := max(maxKeptSteps-next, 0)
	over, elements := len(kept)-room, elementsOf(kept)-maxKeptElements
	kept = slices.DeleteFunc(kept, func(s PlanStep) bool {
		if s.guards() || over <= 0 && (elements <= 0 || len(s.Elements) == 0) {
			return false
		}
		over--
		elements -= len(s.Elements)
		return true
	})
	return kept[max(0, len(kept)-room):]
}

// roomForAnother reports whether another plan, however long, leaves room for all steps that guard.
func (p *Plan) roomForAnother() bool {
	guards := slices.DeleteFunc(slices.Clone(p.Steps), func(s PlanStep) bool { return !s.guards() })
	return len(guards) <= maxKeptSteps-MaxPlanSteps && elementsOf(guards) <= maxKeptElements
}

// any reports whether a step has that status.
func (p *Plan) any(status StepStatus) bool {
	return slices.ContainsFunc(p.Steps, func(s PlanStep) bool { return s.Status == status })
}

func (p *Plan) clone() *Plan {
	if p == nil {
		return nil
	}
	c := *p
	c.Steps = slices.Clone(p.Steps)
	for i := range c.Steps {
		c.Steps[i].Elements = slices.Clone(c.Steps[i].Elements)
	}
	return &c
}

// planned takes a plan in place of what is left of the one before.
func (t *transition) planned(ev Planned) error {
	h := &t.Head
	if t.spec.Planning == nil || len(h.Calls) > 0 || h.stopping() || h.Plan != nil && h.Plan.Phase != PhasePlanning {
		return violation(h, "a plan that nothing asked for")
	}
	reviewed := t.spec.reviewTool() != nil && ev.Fault == "" && len(ev.Steps) > 0 && ev.Terminate == nil
	if reviewed && !ev.Review.reviews(h, ev.Steps) {
		return violation(h, "a plan that people review needs a request for that")
	}
	if ev.Asked {
		t.count(ev.Reply)
	}
	t.turn(ev.HookEffects)
	if ev.Terminate != nil {
		return t.finish(*ev.Terminate)
	}
	if h.Plan == nil {
		h.Plan = &Plan{}
	}
	p := h.Plan
	if ev.Fault != "" || len(ev.Steps) == 0 {
		t.withoutPlan(cmp.Or(ev.Fault, "the plan has no steps"))
		return nil
	}
	if n := len(ev.Offers); n > 0 && n != len(ev.Steps) {
		return violation(h, "choices of tools for %d steps of %d", n, len(ev.Steps))
	}
	first := p.NextNumber()
	p.Made, p.By, p.Phase, p.Fault = p.Made+1, clipJSON(ev.By, maxStepTool), PhaseSteps, ""
	p.Edited, p.Refused = false, ""
	p.Steps = p.Kept(len(ev.Steps))
	for i, s := range ev.Steps {
		s = PlanStep{
			Number: first + i, Plan: p.Made, Text: s.Text, Tool: clipJSON(s.Tool, maxStepTool), After: s.After, When: s.When, Each: s.Each,
			Status: StepPlanned,
		}
		if err := p.check(&s); err != nil || i >= MaxPlanSteps {
			return violation(h, "step %d of %d cannot be: %v", s.Number, len(ev.Steps), err)
		}
		p.Steps = append(p.Steps, s)
		t.tellStep(&s)
	}
	for i, o := range ev.Offers {
		if len(o.Tools) > MaxOffered {
			return violation(h, "a choice of %d tools for a step", len(o.Tools))
		}
		t.StepOffers = append(t.StepOffers, StepOffer{Step: first + i, By: o.By, Tools: o.Tools, Degraded: clip.Text(o.Degraded, maxMessage)})
	}
	if reviewed {
		return t.review(ev.Review)
	}
	return nil
}

// check says why a new step cannot follow those of the plan.
func (p *Plan) check(s *PlanStep) error {
	switch {
	case s.Text == "" || InJSON(s.Text) > MaxStepText:
		return fmt.Errorf("its text has %d bytes", InJSON(s.Text))
	case InJSON(s.When) > MaxStepWhen || InJSON(s.Each) > MaxStepEach:
		return fmt.Errorf("its condition has %d bytes, its list %d", InJSON(s.When), InJSON(s.Each))
	case len(s.After) > maxKeptSteps:
		return fmt.Errorf("it refers to %d steps", len(s.After))
	}
	for _, n := range s.After {
		if before := p.Step(n); before == nil || before.Status != StepPlanned && before.Status != StepDone {
			return fmt.Errorf("step %d is not before it", n)
		}
	}
	return nil
}

// Synthesizes reports whether the next reply is the answer to what the steps of a plan have come to, which is written without tools.
func (h *Head) Synthesizes() bool { return h.Plan != nil && h.Plan.Phase == PhaseAnswer }

// answersPlan notes of a run that plans that the model was asked for the answer, or that its planner gave one.
func (t *transition) answersPlan() {
	if t.Head.Plan == nil {
		t.Head.Plan = &Plan{}
	}
	t.Head.Plan.Phase = PhaseAnswer
	t.giveUpSteps("the answer was written without it")
}

// giveUpSteps gives up all steps that are not begun.
func (t *transition) giveUpSteps(why string) {
	for i := range t.Head.Plan.Steps {
		if s := &t.Head.Plan.Steps[i]; s.Status == StepPlanned {
			s.Status, s.Fault = StepGivenUp, why
			t.tellStep(s)
		}
	}
}

// withoutPlan has the model go on as that of an agent that does not plan. What steps have done is in the conversation.
func (t *transition) withoutPlan(why string) {
	p := t.Head.Plan
	p.Phase, p.Fault = PhaseLoop, clipJSON(why, maxFault)
	if t.spec.reviewTool() != nil {
		p.Phase = PhaseAnswer // nobody has approved of what the loop would do
	}
	t.giveUpSteps("the run went on without a plan")
}

// turn takes what hooks did in a model call.
func (t *transition) turn(turn HookEffects) {
	t.keep(turn.Hooks)
	t.reminded(turn.Reminded)
	t.Messages = append(t.Messages, turn.Context...)
}

// routed opens a round with the calls that were chosen for steps.
func (t *transition) routed(ev Routed) error {
	h := &t.Head
	if h.Plan == nil || h.Plan.Phase != PhaseSteps || len(h.Calls) > 0 || h.stopping() || !h.Plan.routes(ev.Routes) || ev.Unasked && len(ev.Routes) == 0 {
		return violation(h, "calls for steps that nothing asked for")
	}
	if len(ev.Reply.Calls) > 0 && ev.Terminate == nil && !ev.Admission.madeFor(h, &ev.Reply) {
		return violation(h, "calls of steps need the plan that was made for them")
	}
	if !ev.Unasked {
		t.count(ev.Reply)
	}
	t.turn(ev.HookEffects)
	if ev.Terminate != nil {
		return t.finish(*ev.Terminate)
	}
	called, err := t.route(ev.Routes)
	if err != nil {
		return err
	}
	if len(called) != len(ev.Reply.Calls) {
		return violation(h, "%d calls for %d steps", len(ev.Reply.Calls), len(called))
	}
	if len(called) == 0 {
		t.advancePlan()
		return nil
	}
	said, saying := "", 0
	for i := range ev.Admission.Calls {
		c := &ev.Admission.Calls[i]
		s := called[c.place].step
		s.call(called[c.place].element, c)
		if s.Number != saying {
			saying = s.Number
			said += fmt.Sprintf("\nStep %d: %s", s.Number, s.Text)
			t.tellStep(s)
		}
	}
	return t.openRound([]sdk.Content{{Kind: sdk.ContentText, Text: said[1:]}}, ev.Admission, ev.Notes)
}

// routes reports whether the routes are of steps that are due, each once.
func (p *Plan) routes(routes []Route) bool {
	due := p.due()
	for _, r := range routes {
		i := slices.Index(due, r.Step)
		if i < 0 {
			return false
		}
		due = slices.Delete(due, i, i+1)
	}
	return true
}

// stepEnded notes what became of the step that a call is for, which has its result now.
func (t *transition) stepEnded(c *Call, r *Result) {
	if t.Head.Plan == nil {
		return
	}
	if t.Head.Plan.Phase == PhaseReview {
		t.planReviewed(c, r)
		return
	}
	for i := range t.Head.Plan.Steps {
		s := &t.Head.Plan.Steps[i]
		switch e := s.element(c.ID); {
		case s.Status != StepCalling:
		case e >= 0:
			s.elementEnded(e, r)
			if !s.open() {
				s.endElements()
				t.tellStep(s)
			}
		case s.Call == c.ID:
			s.Status = StepDone
			if r.Error {
				s.Status, s.Same, s.Fault = StepFailed, "", clipJSON(faultText(r), maxStepFault)
			}
			t.tellStep(s)
		}
	}
}

// closeSteps says what follows a round that is closed. A step whose call was withdrawn, or is not made again by the retry of a run that had
// ended, has failed: its result, if it has one, was told when the run ended.
func (t *transition) closeSteps() {
	p := t.Head.Plan
	if p != nil && p.Phase == PhaseReview && !t.Head.open(func(c *Call) bool { return t.spec.reviews(c) }) {
		p.Phase = PhasePlanning // the request was taken back
	}
	if p == nil || p.Phase != PhaseSteps {
		return
	}
	withdrawn := func(call string) bool {
		c := t.Head.Call(call)
		return c == nil || c.Closed()
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch {
		case s.Status != StepCalling:
		case len(s.Elements) > 0:
			if s.withdraw(withdrawn) {
				t.tellStep(s)
			}
		case withdrawn(s.Call):
			s.Status, s.Same, s.Fault = StepFailed, "", withdrawnCall
			t.tellStep(s)
		}
	}
	t.advancePlan()
}

// advancePlan says what follows when no step is being called: the next steps, another plan, the answer, or the loop.
func (t *transition) advancePlan() {
	p := t.Head.Plan
	if p.any(StepCalling) {
		return
	}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Status == StepPlanned && p.cannotBe(s) {
			t.tellStep(s)
		}
	}
	failed := slices.ContainsFunc(p.Steps, func(s PlanStep) bool { return s.Plan == p.Made && s.failed() })
	switch {
	case p.any(StepPlanned):
	case failed && p.Replans < t.spec.replans() && p.roomForAnother():
		p.Phase = PhasePlanning
		p.Replans++
	case p.any(StepDone):
		p.Phase = PhaseAnswer
	default:
		t.withoutPlan("no step was done")
	}
}

func (s *Spec) replans() int {
	if s.Planning == nil {
		return 0
	}
	return s.Planning.Replans
}

// replan has another plan made, because a person has spoken. What was done may be wanted again.
func (t *transition) replan() {
	p := t.Head.Plan
	if p == nil || len(t.Head.Undo) > 0 {
		return
	}
	for i := range p.Steps {
		p.Steps[i].unguard()
	}
	p.Phase, p.Replans = PhasePlanning, 0
}

// done finds the calls of the round that a step of an earlier plan has made: they have its result.
func (p *Admission) done(h *Head) {
	if h.Plan == nil || len(h.Undo) > 0 {
		return
	}
	for i := range p.Calls {
		c := &p.Calls[i]
		if c.Refusal != nil {
			continue
		}
		same := sameCall(c)
		for j := range h.Plan.Steps {
			s := &h.Plan.Steps[j]
			if call := s.made(same); call != "" && (s.Plan < h.Plan.Made || h.Plan.Phase == PhaseLoop) {
				c.repeats, c.done = call, true
			}
		}
	}
}
