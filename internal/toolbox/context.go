package toolbox

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
)

// contextQuestion is an example of what services are asked for context (docs/wire.md).
const contextQuestion = `{"interactions":1,"messages":[{"role":"user","text":"How much is it?"},` +
	`{"role":"assistant","text":"{}","tool":"look"},{"role":"tool","text":"{}","tool":"look"}],"task":"How much is it?"}`

// answerSections are those of the services that are asked about an agent's outputs.
func answerSections(spec sdk.AgentSpec) []string {
	var sections []string
	if spec.Answers != nil {
		for _, r := range spec.Answers.Require {
			sections = append(sections, sdk.AnswerSection(r.Name))
		}
	}
	return sections
}

// addContext compiles a service that is asked for context, or about outputs, and returns what is wrong with it.
func (b *Toolbox) addContext(path string, s sdk.ServiceTool, answers []string) []sdk.Fault {
	use := s.Context
	var faults []sdk.Fault
	oneOf := func(field, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			faults = append(faults, sdk.Fault{Path: path + ".context." + field, Expected: fmt.Sprintf("one of %q", allowed), Got: fmt.Sprintf("%q", value)})
		}
	}
	oneOf("section", use.Section, append([]string{sdk.SectionPlanning, sdk.SectionRetrieval}, answers...)...)
	oneOf("ask", string(use.Ask), "", string(sdk.AskEveryCall), string(sdk.AskOnce))
	oneOf("on_failure", string(use.OnFailure), "", string(sdk.ContextContinue), string(sdk.ContextFail))
	if _, taken := b.ContextService(use.Section); taken {
		faults = append(faults, sdk.Fault{Path: path, Expected: "one service for each section", Got: "another for " + use.Section})
	}
	t, err := serviceTool(s)
	if err != nil {
		return append(faults, faultsOf(path, err)...)
	}
	if _, unfit := t.Validate(json.RawMessage(contextQuestion)); len(unfit) > 0 && !slices.Contains(answers, use.Section) {
		for _, f := range unfit {
			faults = append(faults, sdk.Fault{
				Path:     path,
				Expected: `a contract that accepts questions for context, {"task": text, "messages": [{"role", "tool", "text"}], "interactions": number}`,
				Got:      s.Contract.Type + ", which wants " + f.Expected + " at " + f.Path,
			})
		}
	}
	t.Name, t.Context = use.Section, use
	b.context = append(b.context, t)
	return faults
}

// ContextService finds the one that is asked for a section.
func (b *Toolbox) ContextService(section string) (*Tool, bool) {
	for _, t := range b.context {
		if t.Name == section {
			return t, true
		}
	}
	return nil, false
}
