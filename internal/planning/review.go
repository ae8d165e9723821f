package planning

import (
	"bytes"
	"encoding/json"
	"fmt"

	"agentd/internal/core"
)

// ReviewSchema is the JSON Schema of plans that people review (core.ReviewedPlan).
var ReviewSchema = json.RawMessage(`{
  "type": "object",
  "properties": {
    "steps": ` + stepsSchema + `
  },
  "required": ["steps"],
  "additionalProperties": false
}`)

// ReadReviewed reads a plan that people have reviewed, as it is checked when a planner writes it: each step comes after those that it refers to.
func ReadReviewed(data json.RawMessage) (json.RawMessage, error) {
	var plan core.ReviewedPlan
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&plan); err != nil {
		return nil, fmt.Errorf("it cannot be read: %w", err)
	}
	if n := len(plan.Steps); n == 0 || n > core.MaxPlanSteps {
		return nil, fmt.Errorf("it has %d steps; want 1 to %d", n, core.MaxPlanSteps)
	}
	first := plan.Steps[0].Step
	var steps []written
	var before []core.PlanStep
	for n := 1; n < first && n <= maxNumber; n++ {
		before = append(before, core.PlanStep{Number: n, Status: core.StepDone}) // whether they are done is seen where the plan is known
	}
	for i, s := range plan.Steps {
		if s.Step != first+i || first < 1 {
			return nil, fmt.Errorf("its step %d has the number %d, and not the next one", i+1, s.Step)
		}
		steps = append(steps, written{number: s.Step, text: s.Text, tool: s.Tool, after: s.After, when: s.When, each: s.Each})
	}
	read, err := numbered(steps, before, first)
	if err != nil {
		return nil, err
	}
	for i, s := range read.Steps {
		plan.Steps[i] = core.ReviewedStep{Step: first + i, Text: s.Text, Tool: s.Tool, After: s.After, When: s.When, Each: s.Each}
	}
	return core.EncodeJSON(plan)
}

// maxNumber bounds the numbers of steps that a plan refers to.
const maxNumber = 9999
