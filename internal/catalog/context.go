package catalog

import (
	"agentd/internal/core"
	"agentd/internal/toolbox"
	"agentd/sdk"
)

// contexts are the services of an agent that are asked for sections of the prompt, in the order of its sections.
func contexts(tools *toolbox.Toolbox) []core.ContextProvider {
	var providers []core.ContextProvider
	for _, section := range []string{sdk.SectionPlanning, sdk.SectionRetrieval} {
		if t, ok := tools.ContextService(section); ok {
			providers = append(providers, core.ContextProvider{
				Section: section, Service: coreTool(t), Once: t.Context.Ask == sdk.AskOnce,
				Required: t.Context.OnFailure == sdk.ContextFail,
			})
		}
	}
	return providers
}

// answerGates are the services of an agent that are asked about its outputs, in the order of its requirements.
func answerGates(spec sdk.AgentSpec, tools *toolbox.Toolbox) []core.ContextProvider {
	if spec.Answers == nil {
		return nil
	}
	var gates []core.ContextProvider
	for i := range spec.Answers.Require {
		r := &spec.Answers.Require[i]
		if t, ok := tools.ContextService(sdk.AnswerSection(r.Name)); ok {
			gates = append(gates, core.ContextProvider{Section: t.Name, Service: coreTool(t), Required: !r.Optional, Gate: gateOf(r)})
		}
	}
	return gates
}

// sectionKey tells a service that is asked for a section from a tool of that name, which has no colon.
func sectionKey(section string) string { return "context:" + section }
