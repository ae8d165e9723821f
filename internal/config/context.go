package config

import (
	"agentd/internal/config/strict"
	"agentd/internal/contracts"
	"agentd/sdk"
)

// context resolves the services that are asked for sections of the prompt, and returns where those stand in the file whose
// contracts are known.
func (l *loader) context(f *agentFile, s *sdk.AgentSpec) []strict.Position {
	var known []strict.Position
	for _, section := range []struct {
		name string
		file *contextFile
	}{{sdk.SectionPlanning, f.Context.Planning}, {sdk.SectionRetrieval, f.Context.Retrieval}} {
		c := section.file
		if c == nil {
			continue
		}
		tool, ok := l.service(&serviceFile{
			At: c.At, Contract: c.Contract, Version: c.Version, Agent: c.Agent, Tokens: c.Tokens, Timeout: c.Timeout,
			Retry: c.Retry, Domain: c.Domain, Domains: c.Domains,
		}, f.Name.V)
		if !ok {
			continue
		}
		tool.Context = &sdk.ContextUse{
			Section: section.name, Ask: oneOf(l, "ask", c.Ask, sdk.AskEveryCall, sdk.AskOnce),
			OnFailure: oneOf(l, "on_failure", c.OnFailure, sdk.ContextContinue, sdk.ContextFail),
		}
		s.Services = append(s.Services, tool)
		if !contracts.IsReference(tool) {
			known = append(known, c.At)
		}
	}
	return known
}

// oneOf is the value that a key has, or none where it has another than the allowed ones, which is noted.
func oneOf[T ~string](l *loader, name string, value words, allowed ...T) T {
	if !value.Present() {
		return ""
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	err := checkOneOf(name, value.V, names...)
	if l.Note(value.Position, err); err != nil {
		return ""
	}
	return T(value.V)
}
