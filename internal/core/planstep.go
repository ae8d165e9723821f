package core

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// PlanStep is a step of a plan: one call, or one for each element of a list.
type PlanStep struct {
	// Number names the step in its run, from 1, through all plans. Plan is the number of its plan.
	Number int `json:"number"`
	Plan   int `json:"plan"`
	// Text says what is to be done, and Tool which tool or server may do it.
	Text string `json:"text"`
	Tool string `json:"tool,omitempty"`
	// After are the steps, by their numbers, whose results it needs.
	After []int `json:"after,omitempty"`
	// When is a condition over the results of steps that it comes after: where it does not hold, the step is skipped. Each is the list, in
	// such a result, for each element of which it is done. Both are expressions in CEL (docs/planning.md).
	When   string     `json:"when,omitempty"`
	Each   string     `json:"each,omitempty"`
	Status StepStatus `json:"status"`
	// Call is the call that was chosen for it, and Called its tool.
	Call   string `json:"call,omitempty"`
	Called string `json:"called,omitempty"`
	// Same is equal for equal calls of a tool that may change something: a later plan does not make the call again. Empty: it may.
	Same string `json:"same,omitempty"`
	// Elements are those of its list, in their order, once that is known.
	Elements []Element `json:"elements,omitempty"`
	// Fault is why it failed, was given up or skipped, or which of its elements have failed.
	Fault string `json:"fault,omitempty"`
}

// Element is what became of a step for one element of its list.
type Element struct {
	Status StepStatus `json:"status"`
	// Call and Same are as those of a PlanStep.
	Call string `json:"call,omitempty"`
	Same string `json:"same,omitempty"`
	// Fault is why no call was made for it. Why a call failed is in its result.
	Fault string `json:"fault,omitempty"`
}

// StepStatus is the state of a step: planned → calling → done | failed, or planned → failed | given_up | skipped. A step whose list has more
// elements than are called at once goes back from calling to planned.
type StepStatus string

// The states of steps.
const (
	StepPlanned StepStatus = "planned"
	StepCalling StepStatus = "calling"
	// StepDone is also a step that is done for an element of its list, at least, or whose list has none.
	StepDone   StepStatus = "done"
	StepFailed StepStatus = "failed"
	// StepGivenUp is a step that refers to one that is not done, and never will be.
	StepGivenUp StepStatus = "given_up"
	// StepSkipped is a step whose condition does not hold, or that refers to one that was skipped.
	StepSkipped StepStatus = "skipped"
)

// What a plan may have. Together they keep it below 64 KiB in the head. Sizes are in bytes; those of texts are sizes in JSON (InJSON).
const (
	MaxPlanSteps = 10
	MaxStepText  = 600
	MaxStepWhen  = 256
	MaxStepEach  = 128
	maxKeptSteps = 24
	maxStepFault = 160
	maxStepTool  = 64
	// MaxElements bounds the elements of all steps of a plan, with those that are kept of plans before: at most maxKeptElements.
	MaxElements     = 96
	maxKeptElements = 32
	maxElementFault = 80
)

// withdrawnCall is the fault of what was being called when its run ended.
const withdrawnCall = "its call was given up"

// InJSON is how many bytes a text has as JSON, without its quotation marks.
func InJSON(text string) int {
	data, err := EncodeJSON(text)
	if err != nil {
		return len(text)
	}
	return len(data) - 2
}

// clipJSON shortens a text so that it has at most so many bytes as JSON, and an ellipsis.
func clipJSON(text string, limit int) string {
	size := 0
	for at, char := range text {
		if size += InJSON(string(char)); size > limit {
			return text[:at] + "…"
		}
	}
	return text
}

// branches reports whether steps have conditions or lists.
func (p *Plan) branches() bool {
	return p != nil && slices.ContainsFunc(p.Steps, func(s PlanStep) bool { return s.When != "" || s.Each != "" })
}

// elementsOf counts the elements of steps.
func elementsOf(steps []PlanStep) int {
	n := 0
	for i := range steps {
		n += len(steps[i].Elements)
	}
	return n
}

// RoomForElements is how many elements the list of the step may have.
func (p *Plan) RoomForElements(s *PlanStep) int {
	return MaxElements - elementsOf(p.Steps) + len(s.Elements)
}

// guards reports whether the step keeps later plans from making a call of its again.
func (s *PlanStep) guards() bool {
	return s.Status == StepDone && s.Same != "" || slices.ContainsFunc(s.Elements, Element.guards)
}

func (e Element) guards() bool { return e.Status == StepDone && e.Same != "" }

// unguard lets later plans make the step's calls again.
func (s *PlanStep) unguard() {
	s.Same = ""
	for i := range s.Elements {
		s.Elements[i].Same = ""
	}
}

// edited notes that a person has the call of a step made with other arguments: those are what later plans do not make again.
func (p *Plan) edited(c *Call, args []byte) {
	if p == nil {
		return
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		if s.Call == c.ID && s.Same != "" {
			s.Same = sameAs(c.Tool, args)
		}
		if at := s.element(c.ID); at >= 0 && s.Elements[at].Same != "" {
			s.Elements[at].Same = sameAs(c.Tool, args)
		}
	}
}

// made is the call of the step that is the Same, and was made; empty is none.
func (s *PlanStep) made(same string) string {
	if s.Status == StepDone && s.Same == same {
		return s.Call
	}
	for _, e := range s.Elements {
		if e.guards() && e.Same == same {
			return e.Call
		}
	}
	return ""
}

// failed reports whether the step, or an element of its list, has failed.
func (s *PlanStep) failed() bool {
	return s.Status == StepFailed || s.Status == StepDone && slices.ContainsFunc(s.Elements, Element.failed)
}

func (e Element) failed() bool { return e.Status == StepFailed }

// Calls are the calls that were made for the step, or for elements of its list.
func (s *PlanStep) Calls() []string {
	if s.Each == "" {
		return []string{s.Call}
	}
	var calls []string
	for _, e := range s.Elements {
		calls = append(calls, e.Call)
	}
	return calls
}

// Done counts the elements that the step is done for.
func (s *PlanStep) Done() int {
	n := 0
	for _, e := range s.Elements {
		if e.Status == StepDone {
			n++
		}
	}
	return n
}

// element is the place of the element whose call that is; -1 is none.
func (s *PlanStep) element(call string) int {
	return slices.IndexFunc(s.Elements, func(e Element) bool { return e.Call == call })
}

// open reports whether elements of the list are being called, or have yet to be.
func (s *PlanStep) open() bool {
	return slices.ContainsFunc(s.Elements, func(e Element) bool { return e.Status == StepPlanned || e.Status == StepCalling })
}

// call notes that the step, or the element at that place, is called; no element is -1.
func (s *PlanStep) call(element int, c *AdmittedCall) {
	same := ""
	if c.tool != nil && !c.tool.ReadOnly {
		same = sameCall(c)
	}
	s.Status, s.Called = StepCalling, c.Tool
	if element < 0 {
		s.Call, s.Same = c.ID, same
		return
	}
	s.Elements[element] = Element{Status: StepCalling, Call: c.ID, Same: same}
}

// elementEnded notes the result of the call for the element at that place.
func (s *PlanStep) elementEnded(place int, r *Result) {
	e := &s.Elements[place]
	e.Status = StepDone
	if r.Error {
		s.elementFailed(place, "", faultText(r))
	}
}

// elementFailed notes that the element at that place has failed. kept is what the element says of it. The step says why the first one has.
func (s *PlanStep) elementFailed(place int, kept, fault string) {
	e := &s.Elements[place]
	e.Status, e.Same, e.Fault = StepFailed, "", clipJSON(kept, maxElementFault)
	s.Fault = cmp.Or(s.Fault, clipJSON(fmt.Sprintf("element %d: %s", place+1, fault), maxStepFault))
}

// withdraw notes that elements have failed whose calls were withdrawn, and lets the others have their turn. It reports whether that changes the
// step.
func (s *PlanStep) withdraw(withdrawn func(call string) bool) bool {
	for i := range s.Elements {
		if e := &s.Elements[i]; e.Status == StepCalling && withdrawn(e.Call) {
			s.elementFailed(i, withdrawnCall, withdrawnCall)
		}
	}
	calling := slices.ContainsFunc(s.Elements, func(e Element) bool { return e.Status == StepCalling })
	switch {
	case calling:
		return false
	case s.open():
		s.Status = StepPlanned
	default:
		s.endElements()
	}
	return true
}

// endElements ends the step when all elements of its list have ended: it is done if it is for one of them.
func (s *PlanStep) endElements() {
	done, of := s.Done(), len(s.Elements)
	s.Status = StepDone
	if done == 0 && of > 0 {
		s.Status = StepFailed
	}
	if done < of {
		s.Fault = clipJSON(fmt.Sprintf("%d of %d failed; %s", of-done, of, s.Fault), maxStepFault)
	}
}

// failElements notes that the elements have failed which have yet to be called.
func (s *PlanStep) failElements(fault string) {
	for i := range s.Elements {
		if s.Elements[i].Status == StepPlanned {
			s.elementFailed(i, fault, fault)
		}
	}
	s.endElements()
}

// tellStep lists the step among those that the entry changes, as it is.
func (t *transition) tellStep(s *PlanStep) {
	told := *s
	told.Elements = slices.Clone(s.Elements)
	t.Steps = append(t.Steps, told)
}

// chosenFor is what a call was chosen for: a step, or the element of its list at that place; -1 is none.
type chosenFor struct {
	step    *PlanStep
	element int
}

// route notes what was chosen for steps, and returns what calls were chosen for, in their order.
func (t *transition) route(routes []Route) ([]chosenFor, error) {
	var called []chosenFor
	for i := range routes {
		r := &routes[i]
		s := t.Head.Plan.Step(r.Step)
		switch {
		case r.Skipped != "" && s.When != "":
			s.Status, s.Fault = StepSkipped, clipJSON(r.Skipped, maxStepFault)
		case r.Fault != "" && len(s.Elements) > 0:
			s.failElements(r.Fault)
		case r.Fault != "":
			s.Status, s.Fault = StepFailed, clipJSON(r.Fault, maxStepFault)
		case s.Each != "":
			places, err := t.routeElements(s, r)
			if err != nil {
				return nil, err
			}
			for _, place := range places {
				called = append(called, chosenFor{s, place})
			}
			if s.open() {
				continue
			}
			s.endElements()
		default:
			called = append(called, chosenFor{s, -1})
			continue
		}
		t.tellStep(s)
	}
	return called, nil
}

// routeElements notes what was chosen for elements of the step's list, and returns the places of those that calls were chosen for.
func (t *transition) routeElements(s *PlanStep, r *Route) (called []int, err error) {
	h := &t.Head
	switch {
	case s.Elements == nil && (r.Of < 0 || r.Of > h.Plan.RoomForElements(s)), s.Elements != nil && r.Of != len(s.Elements):
		return nil, violation(h, "step %d is to be done for %d of %d elements, and has %d", s.Number, len(r.Elements), r.Of, len(s.Elements))
	case s.Elements == nil:
		s.Elements = slices.Repeat([]Element{{Status: StepPlanned}}, r.Of)
	}
	for _, e := range r.Elements {
		switch {
		case e.Place < 0 || e.Place >= len(s.Elements) || s.Elements[e.Place].Status != StepPlanned || slices.Contains(called, e.Place):
			return nil, violation(h, "element %d of step %d is not due", e.Place, s.Number)
		case e.Fault != "":
			s.elementFailed(e.Place, e.Fault, e.Fault)
		default:
			called = append(called, e.Place)
		}
	}
	return called, nil
}

// cannotBe gives the step up, or skips it, because of a step that it refers to. It reports whether it did.
func (p *Plan) cannotBe(s *PlanStep) bool {
	for _, n := range s.After {
		switch before := p.Step(n); {
		case before == nil || before.Status == StepFailed || before.Status == StepGivenUp:
			s.Status, s.Fault = StepGivenUp, fmt.Sprintf("step %d is not done", n)
			return true
		case before.Status == StepSkipped:
			s.Status, s.Fault = StepSkipped, fmt.Sprintf("step %d was skipped", n)
			return true
		}
	}
	return false
}

// StepResult is the result of a step that is done, as the conversation has it. Of a step with a list it is the list of the results, in which
// what has failed is an object with the error.
func (s *State) StepResult(step *PlanStep) json.RawMessage {
	if step.Each == "" {
		return s.callResult(step.Call)
	}
	all := []json.RawMessage{}
	for _, e := range step.Elements {
		all = append(all, s.ElementResult(&e))
	}
	data, err := EncodeJSON(all)
	if err != nil { // what the conversation has of a large result is not JSON
		return nil
	}
	return data
}

// ElementResult is the result for an element of a step's list.
func (s *State) ElementResult(e *Element) json.RawMessage {
	data := s.callResult(e.Call)
	switch {
	case data == nil && e.Fault != "":
		data, _ = EncodeJSON(map[string]any{"error": map[string]string{"message": e.Fault}}) // texts always can be
	case data == nil:
		data = json.RawMessage("null")
	case !json.Valid(data):
		data, _ = EncodeJSON(string(data))
	}
	return data
}

func (s *State) callResult(call string) json.RawMessage {
	if c := s.ResultNamed(call); c != nil && call != "" {
		return json.RawMessage(c.Text)
	}
	return nil
}
