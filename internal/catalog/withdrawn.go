package catalog

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// version is a compiled agent, with the dataschemas of its tools whose contracts are from the registry, by the tool's name.
type version struct {
	*runner.Agent
	registered map[string]string
}

// registered are the tools of a spec whose contracts are from the registry.
func registered(spec sdk.AgentSpec, compiled *runner.Agent) map[string]string {
	refs := map[string]string{}
	tools := 0
	for _, s := range spec.Services {
		var name string
		if s.Context != nil {
			name = sectionKey(s.Context.Section)
		} else {
			name = compiled.Core.Tools[tools].Name // services are the first tools
			tools++
		}
		if s.Range != "" {
			refs[name] = sdk.SchemaRef(s.Contract.URI, s.Version)
		}
	}
	return refs
}

// Withdraw says which contract versions were removed from the registry, by dataschema in its absolute form. An agent that has one pinned, for
// its new runs or for one that waits, makes no further call with it and takes no answer to one: the model is told
// CodeContractMissing. Runs that are driven at this moment learn of it with their next message.
func (c *Catalog) Withdraw(removed map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = removed
	clear(c.withdrawn)
}

// inForce returns the agent without what was removed. Its caller holds the lock.
func (c *Catalog) inForce(v version) *runner.Agent {
	gone := map[string]*sdk.Error{}
	for tool, ref := range v.registered {
		if c.removed[wire.AbsoluteURI(ref)] {
			gone[tool] = sdk.Errorf(sdk.CodeContractMissing,
				"%s cannot be used any more: %s, which it is called by, was removed from the registry of contracts", tool, ref)
		}
	}
	if len(gone) == 0 {
		return v.Agent
	}
	if a, ok := c.withdrawn[v.Agent]; ok {
		return a
	}
	a := without(v.Agent, gone)
	c.withdrawn[v.Agent] = a
	return a
}

// without returns the agent with tools that do nothing but fail. They run in the worker, so nothing is sent, and the
// failure is recorded as the call's result like any other.
func without(a *runner.Agent, gone map[string]*sdk.Error) *runner.Agent {
	rest := *a
	spec := *a.Core
	spec.Tools = slices.Clone(spec.Tools)
	rest.Core, rest.Inline = &spec, maps.Clone(a.Inline)
	spec.Contexts = slices.Clone(spec.Contexts)
	for i := range spec.Contexts {
		spec.Contexts[i].Gone = gone[sectionKey(spec.Contexts[i].Section)]
	}
	for i := range spec.Tools {
		t := &spec.Tools[i]
		problem, ok := gone[t.Name]
		if !ok {
			continue
		}
		t.Kind, t.Retry = core.CallInline, core.Retry{}
		rest.Inline[t.Name] = sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return nil, problem }}
	}
	rest.Permissions = unasked{a.Permissions, gone}
	rest.CheckAnswer = func(call core.Call, ev wire.Event, who string) (runner.Answer, *sdk.Error) {
		name := call.Tool
		if call.Kind == core.CallContext {
			name = sectionKey(call.Section())
		}
		problem, ok := gone[name]
		answer, refusal := a.CheckAnswer(call, ev, who)
		switch {
		case !ok:
		case call.Kind == core.CallService || call.Kind == core.CallContext:
			return runner.Answer{Data: core.FailureData(problem), Error: true}, nil
		case answer.Decision != nil && answer.Decision.Decision == sdk.DecisionAllow:
			return runner.Answer{}, sdk.Errorf(sdk.CodeContractMissing,
				"%s; the call can only be denied, or it is when nobody decides in time", problem.Message)
		}
		return answer, refusal
	}
	return &rest
}

// unasked lets calls that are not made pass without a person's permission.
type unasked struct {
	sdk.PermissionManager
	gone map[string]*sdk.Error
}

func (u unasked) Check(ctx context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	if _, gone := u.gone[c.Tool]; gone {
		return sdk.PermissionRuling{Verdict: sdk.PermissionAllow, Reason: "the call is not made: its contract was removed"}, nil
	}
	return u.PermissionManager.Check(ctx, c)
}
