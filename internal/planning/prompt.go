package planning

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/internal/clip"
	"agentd/internal/core"
	"agentd/sdk"
)

// What models are shown, in bytes: of a tool's description, of a request, of a result that a step refers to, of the result of the step
// before it, and of a result that is known to the planner.
const (
	maxDescription = 160
	maxRequest     = 8 << 10
	maxReferred    = 4 << 10
	maxBefore      = 600
	maxKnown       = 400
	// mostDecided is about what the planner is shown of decisions on the calls of one step, the latest.
	mostDecided = 2 << 10
	// lastTexts is how many texts of the conversation the planner is shown.
	lastTexts = 6
)

const plannerRules = `You plan how the request is met. You do not call tools and you do not meet the request yourself: somebody else makes one call for each step of your plan.

Rules:
1. A step is one call of one tool. Split what is joined by "and", "then" or "also".
2. A step must be understood without the request: write names, dates, numbers and other values out.
3. A step that needs the result of another comes after it: say so in after. Steps that need nothing of each other have no after, and are done at the same time.
4. At most %d steps, in at most %d bytes each. Number them from %d on.
5. Where no tool is needed, respond instead of planning.
6. What is to be done for each element of a list is one step with each: the list, in the result of an earlier step, as an expression in CEL such as step1.orders. Its result is the list of the results.
7. A step that is to be done only if something holds has when: a condition in CEL over results of earlier steps, such as step1.total > 100.0. Else it is skipped, with the steps that come after it.
`

// Planner is the request for a plan, without the model's name. told is what is wrong with the plan that the planner has just made; empty is
// that it is asked the first time.
func (f *Form) Planner(system string, tools []sdk.ToolDefinition, s *core.State, told string) (string, []sdk.Message) {
	parts := []string{system, fmt.Sprintf(plannerRules, core.MaxPlanSteps, core.MaxStepText, s.Plan.NextNumber()) + f.rules}
	list := "Tools:"
	for _, t := range tools {
		list += "\n- " + t.Name + ": " + clip.Text(plain(t.Description), maxDescription)
	}
	parts = append(parts, list)
	if before := stepsSoFar(s); before != "" {
		parts = append(parts, before)
	}
	messages := texts(s)
	if told != "" {
		messages = append(messages, sdk.Text(sdk.RoleUser, told))
	}
	return strings.TrimSpace(strings.Join(parts, "\n\n")), messages
}

// AskAgain is what a planner is told whose plan cannot be used, or has too few steps.
func (f *Form) AskAgain(fault error) string {
	if fault == nil {
		return "The request asks for several things, and the plan has one step. Plan it again: one step for each call that is needed."
	}
	return fmt.Sprintf("The plan cannot be used: %s. Write it again, as %s and nothing else.", fault, f.name)
}

// texts are the last texts of the conversation, and the one that it began with.
func texts(s *core.State) []sdk.Message {
	var all []sdk.Message
	for _, m := range s.Spoken() {
		all = append(all, sdk.Text(m.Role, clip.Text(m.PlainText(), maxRequest)))
	}
	if len(all) > lastTexts {
		all = append(all[:1:1], all[len(all)-lastTexts+1:]...)
	}
	return all
}

// Request is what people have asked for: the last text of theirs, after the one that the conversation began with.
func Request(s *core.State) string {
	var said []string
	for _, m := range texts(s) {
		if m.Role == sdk.RoleUser {
			said = append(said, m.PlainText())
		}
	}
	if len(said) == 0 {
		return ""
	}
	return said[len(said)-1]
}

// stepsSoFar tells a planner of the steps before.
func stepsSoFar(s *core.State) string {
	p := s.Plan
	if p == nil {
		return ""
	}
	told := ""
	for i := range p.Steps {
		step := &p.Steps[i]
		switch step.Status {
		case core.StepDone:
			told += fmt.Sprintf("\nStep %d is done%s: %s\n  Result: %s", step.Number, forElements(step), step.Text, result(s, step, maxKnown))
		case core.StepFailed:
			told += fmt.Sprintf("\nStep %d has failed: %s\n  %s", step.Number, step.Text, step.Fault)
		case core.StepSkipped:
			told += fmt.Sprintf("\nStep %d was skipped (%s): %s", step.Number, step.Fault, step.Text)
		case core.StepPlanned, core.StepCalling, core.StepGivenUp:
		}
		told += decisions(s, step)
	}
	if p.Refused != "" {
		told += "\nThe last plan was not approved by those who were asked: " + p.Refused
		for i := range p.Steps {
			if step := &p.Steps[i]; step.Plan == p.Made && step.Status == core.StepGivenUp {
				told += fmt.Sprintf("\n  Its step %d, which was not done: %s", step.Number, step.Text)
			}
		}
	}
	if told == "" {
		return ""
	}
	return "An earlier plan was left with this. Plan only what is still to be done, in another way where a step has failed. Do not plan again what is " +
		"done; a step may come after it." + told
}

// decisions are what people have decided on calls of the tool of a step of the last plan, which was not made because permission was asked for:
// another step has to make it.
func decisions(s *core.State, step *core.PlanStep) string {
	if step.Plan != s.Plan.Made || !strings.Contains(step.Fault, string(sdk.CodePermissionNeeded)) {
		return ""
	}
	told := ""
	for i := range slices.Backward(s.History) {
		for j := range slices.Backward(s.History[i].Content) {
			c := &s.History[i].Content[j]
			if c.Kind != sdk.ContentText || c.Tool != step.Called || c.CallID == "" || c.Pending {
				continue
			}
			told = "\n  Decided since: " + clip.Text(c.Text, maxKnown) + told
			if len(told) > mostDecided {
				return told
			}
		}
	}
	return told
}

// forElements says for how many elements of its list a step is done, and what went wrong with others.
func forElements(step *core.PlanStep) string {
	if step.Each == "" {
		return ""
	}
	told := fmt.Sprintf(" for %d of %d elements", step.Done(), len(step.Elements))
	if step.Fault != "" {
		told += " (" + step.Fault + ")"
	}
	return told
}

func result(s *core.State, step *core.PlanStep, limit int) string {
	data := s.StepResult(step)
	if data == nil {
		return "none"
	}
	return clip.Text(core.Unquoted(string(data)), limit)
}

const routerRules = "You make one call of a tool: the one that does the step below. Make exactly one call, with the values that the step, the " +
	"request and the results give you. Do not answer in text."

// Element is an element of a step's list: the one at that place, from 0, of so many.
type Element struct {
	Place, Of int
	Data      json.RawMessage
}

// Router is the request for the call of a step, for an element of its list unless that is nil, without the model's name.
func Router(s *core.State, step *core.PlanStep, element *Element) (system string, messages []sdk.Message) {
	text := "Step: " + step.Text
	listed := []int(nil)
	if element != nil {
		text += fmt.Sprintf("\n\nDo it for this element alone, which is number %d of %d: %s", element.Place+1, element.Of, clip.Text(string(element.Data), maxReferred))
		listed = calledIn(step.Each)
	}
	if request := Request(s); request != "" {
		text += "\n\nIt is part of this request: " + request
	}
	for i := range s.Plan.Steps {
		other := &s.Plan.Steps[i]
		limit := 0
		switch {
		case slices.Contains(listed, other.Number):
			limit = maxBefore
		case slices.Contains(step.After, other.Number):
			limit = maxReferred
		case other.Number == step.Number-1:
			limit = maxBefore
		}
		if limit > 0 && other.Status == core.StepDone {
			text += fmt.Sprintf("\n\nResult of step %d (%s): %s", other.Number, other.Text, result(s, other, limit))
		}
	}
	return routerRules, []sdk.Message{sdk.Text(sdk.RoleUser, text)}
}

// namesInExample is how many names of tools a router is told that made no call.
const namesInExample = 5

// NoCall is what a router is told whose reply had no call that can be made.
func NoCall(said string, tools []sdk.ToolDefinition, fault string) []sdk.Message {
	var names []string
	for i := range min(len(tools), namesInExample) {
		names = append(names, tools[i].Name)
	}
	if fault == "" {
		fault = "there was no call of a tool"
	}
	told := fmt.Sprintf("That cannot be made: %s. Make one call of one tool, such as %s, with its arguments as a JSON object. For example: "+
		`{"name": %q, "arguments": {}}`, fault, strings.Join(names, ", "), names[0])
	messages := []sdk.Message{sdk.Text(sdk.RoleUser, told)}
	if strings.TrimSpace(said) != "" {
		messages = append([]sdk.Message{sdk.Text(sdk.RoleAssistant, said)}, messages...)
	}
	return messages
}

// Hinted reports whether a step's hint means a tool, or the server that it is of.
func Hinted(hint, tool string) bool {
	hint = strings.ReplaceAll(hint, ".", "_")
	return hint != "" && (tool == hint || strings.HasPrefix(tool, hint+"_"))
}

// InText is the call of the one tool that a text names, with what stands in it as name="value"; nil where it names none, or several, where it
// says what is not to be done, and where it gives arguments otherwise: nothing is guessed.
func InText(text string, tools []sdk.ToolDefinition) *sdk.ToolRequest {
	said := quoted.ReplaceAllString(text, `""`)
	if negation.MatchString(said) || unread.MatchString(said) {
		return nil
	}
	named := ""
	for _, t := range tools {
		if !names(said, t.Name) {
			continue
		}
		if named != "" {
			return nil
		}
		named = t.Name
	}
	if named == "" {
		return nil
	}
	args := map[string]string{}
	for _, m := range pair.FindAllStringSubmatch(text, -1) {
		args[m[1]] = m[2] + m[3]
	}
	data, err := json.Marshal(args)
	if err != nil {
		return nil
	}
	return &sdk.ToolRequest{Name: named, Arguments: string(data)}
}

// Synthesis is what the model is told that writes the answer.
func Synthesis(p *core.Plan) string {
	told := "The plan is carried out, and you cannot call tools any more. Answer the request now, from the results above."
	if p.Fault != "" {
		told = "There is no plan that could be carried out (" + p.Fault + "), and you cannot call tools. Answer the request now: say so, and that nothing was " +
			"done but what is said to be done here."
	}
	return told + SoFar(p)
}

// SoFar tells the model that writes the answer what became of the steps; it is empty where the run has no plan, or goes on without one.
func SoFar(p *core.Plan) string {
	told := ""
	if p == nil || p.Phase == core.PhaseLoop {
		return told
	}
	for i := range p.Steps {
		s := &p.Steps[i]
		switch s.Status {
		case core.StepDone:
			told += fmt.Sprintf("\nStep %d is done%s: %s", s.Number, forElements(s), s.Text)
		case core.StepFailed:
			told += fmt.Sprintf("\nStep %d has failed (%s): %s", s.Number, s.Fault, s.Text)
		case core.StepSkipped:
			told += fmt.Sprintf("\nStep %d was skipped, and not done (%s): %s", s.Number, s.Fault, s.Text)
		case core.StepPlanned, core.StepCalling, core.StepGivenUp:
			told += fmt.Sprintf("\nStep %d was not done: %s", s.Number, s.Text)
		}
	}
	return told + "\nReport only what the results say. Say of each step that has failed or was not done that it was not done, and why, unless a later " +
		"step has done the same. Invent nothing."
}
