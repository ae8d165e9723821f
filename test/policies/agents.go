package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentd/internal/llm/texttools"
	"agentd/sdk"
)

// agent is the desk, whom clients start, or the clerk, whom the desk calls.
type agent struct {
	name  string
	tools []string
	// versions are its policies, one after the other, and since when each counts.
	versions []version
	// hooks judge calls before they are made.
	hooks []hook
	spec  sdk.AgentSpec
}

type version struct {
	since int64
	policy
}

// hook blocks, suspends or answers calls of a tool.
type hook struct {
	tool    string
	when    condition
	verdict sdk.GateVerdict
}

const arguments = `{"type":"object","properties":{"sum":{"type":"number"},"to":{"type":"string"}}}`

// labels are what is said of tools.
var labels = map[string]string{"pay": "destructive", "send": "destructive", "bank_move": "open_world"}

func (w *world) drawAgents() []*agent {
	desk := &agent{name: "desk", tools: []string{"pay", "book", "note", "bank_move", "clerk"}}
	clerk := &agent{name: "clerk", tools: []string{"pay", "send", "bank_move"}}
	for _, a := range []*agent{desk, clerk} {
		a.spec = sdk.AgentSpec{
			Name: a.name, Version: "1.0.0", Contract: contract(a.name, sdk.ToolLabels{}), Model: sdk.ModelSpec{Provider: "p", Name: a.name},
			Order: pick(w.draw, sdk.CallsParallel, sdk.CallsParallel, sdk.CallsSequential), Limits: sdk.Limits{Interactions: 8},
			Decisions: pick(w.draw, sdk.DecisionsImmediate, sdk.DecisionsBatch),
		}
		for _, tool := range a.tools {
			service := sdk.ServiceTool{Contract: contract("shop."+tool, sdk.ToolLabels{Destructive: labels[tool] == "destructive"}), Version: "1.0.0", As: tool}
			switch tool {
			case "clerk":
				service.Contract, service.Agent = contract("clerk", sdk.ToolLabels{}), true
			case "note", "bank_move":
				continue
			}
			a.spec.Services = append(a.spec.Services, service)
		}
		a.versions = []version{{0, w.policy(a.tools)}}
		for range w.IntN(3) {
			a.hooks = append(a.hooks, hook{pick(w.draw, a.tools...), w.condition(), pick(w.draw, sdk.GateBlock, sdk.GateSuspend, sdk.GateSuspend, sdk.GateResult)})
		}
	}
	return []*agent{desk, clerk}
}

func contract(contractType string, labels sdk.ToolLabels) sdk.Contract {
	return sdk.Contract{
		URI: "#/" + strings.ReplaceAll(contractType, ".", "/"), Type: contractType, Labels: labels,
		Versions: map[string]sdk.ContractVersion{"1.0.0": {
			Accepts: json.RawMessage(arguments), Emits: map[string]json.RawMessage{contractType + ".done": json.RawMessage(`{"type":"object"}`)},
		}},
	}
}

// load gives the worker the agents as they are.
func (w *world) load() {
	var agents []sdk.Agent
	for _, a := range w.agents {
		spec := a.spec
		w.trace("agent %s %s %s with hooks %+v under %+v", a.name, spec.Order, spec.Decisions, a.hooks, a.versions[len(a.versions)-1].policy)
		spec.Permissions = a.versions[len(a.versions)-1].spec()
		made := sdk.Agent{Spec: spec, Toolsets: []sdk.Toolset{&bank{w, a}}}
		if a.name == "desk" {
			made.Tools = []sdk.Tool{{
				Definition: sdk.ToolDefinition{Name: "note", Parameters: json.RawMessage(arguments)}, Run: w.inline(a, "note"),
			}}
		}
		if len(a.hooks) > 0 {
			made.Hooks.Phases = []sdk.Hook{{Name: "judge", BeforeToolExecute: a.judge}}
		}
		agents = append(agents, made)
	}
	if err := w.catalog.Set(agents); err != nil {
		w.violate("load agents: %v", err)
	}
}

// reload gives the agents other policies, while runs go on.
func (w *world) reload() {
	for _, a := range w.agents {
		a.versions = append(a.versions, version{w.now, w.policy(a.tools)})
	}
	w.load()
}

func (w *world) agent(name string) *agent {
	return w.agents[slices.IndexFunc(w.agents, func(a *agent) bool { return a.name == name })]
}

// judge implements a hook: what it suspends it lets pass when people have allowed it.
func (a *agent) judge(_ context.Context, attempt sdk.ToolAttempt) (sdk.Gate, error) {
	var args map[string]any
	if err := json.Unmarshal(attempt.Args, &args); err != nil {
		return sdk.Gate{}, err
	}
	switch verdict := a.gate(attempt.Tool, args); {
	case verdict == sdk.GateResult:
		return sdk.Gate{Verdict: verdict, Result: json.RawMessage(`{"kept":true}`)}, nil
	case verdict == sdk.GateSuspend && attempt.Resumed:
		return sdk.Gate{}, nil
	default:
		return sdk.Gate{Verdict: verdict, Reason: "the hook says so"}, nil
	}
}

// gate is the verdict of the first of the agent's hooks that is about the call.
func (a *agent) gate(tool string, args map[string]any) sdk.GateVerdict {
	for _, h := range a.hooks {
		if yes, known := h.when.holds(args); h.tool == tool && yes && known {
			return h.verdict
		}
	}
	return sdk.GateAllow
}

// bank is a toolset, as an MCP server is.
type bank struct {
	*world
	of *agent
}

// Name implements sdk.Toolset, as do the methods that follow.
func (*bank) Name() string { return "bank" }

func (b *bank) Tools(context.Context) ([]sdk.Tool, error) {
	return []sdk.Tool{{
		Definition: sdk.ToolDefinition{Name: "move", Parameters: json.RawMessage(arguments)}, Labels: sdk.ToolLabels{OpenWorld: true}, AtMostOnce: true,
		Run: b.inline(b.of, "bank_move"),
	}}, nil
}

func (*bank) Close() error { return nil }

// inline is the body of a tool that runs in the worker.
func (w *world) inline(a *agent, tool string) func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
	return func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) {
		w.check(a.name, c.Run, c.ID, tool, c.Args)
		return json.RawMessage(`{}`), nil
	}
}

// provider is a model that calls tools at random, in its text or natively, and says in the end that it is done.
func (w *world) provider(spec sdk.ModelSpec) (sdk.Provider, error) {
	a := w.agent(spec.Name)
	m := model{w, a, w.one(3)}
	if m.inText {
		return texttools.Wrap(m, sdk.ToolCallsText), nil
	}
	return m, nil
}

type model struct {
	*world
	of     *agent
	inText bool
}

// Generate implements sdk.Provider.
func (m model) Generate(_ context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	if m.turns[req.Run]++; m.turns[req.Run] == 1 {
		m.pinned[req.Run] = len(m.of.versions) - 1
	}
	most := 5
	if m.of.name == "clerk" {
		most = 2
	}
	if m.turns[req.Run] > most {
		return sdk.ModelReply{Text: "done"}, nil
	}
	var reply sdk.ModelReply
	for range 1 + m.IntN(3) {
		tool, args := pick(m.draw, m.of.tools...), m.args()
		m.trace("model of %s calls %s(%s)", req.Run, tool, args)
		if !m.inText {
			reply.Calls = append(reply.Calls, sdk.ToolRequest{Name: tool, Arguments: args})
			continue
		}
		server, name, _ := strings.Cut(tool, "_")
		if name == "" {
			server, name = texttools.Local, tool
		}
		reply.Text += fmt.Sprintf(`<tool>{"server_name": %q, "tool_name": %q, "arguments": %s}</tool>`, server, name, args)
		m.tally.add("calls in text")
	}
	return reply, nil
}

// args draws arguments; either may be missing.
func (d draw) args() string {
	args := map[string]any{"sum": 10 * d.IntN(10), "to": pick(d, "a", "b", "c")}
	if d.one(5) {
		delete(args, pick(d, slices.Sorted(maps.Keys(args))...))
	}
	data, err := json.Marshal(args)
	if err != nil {
		panic(fmt.Sprintf("policies: arguments: %v", err))
	}
	return string(data)
}
