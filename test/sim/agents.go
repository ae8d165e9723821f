package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The agents: desk is started by clients, clerk is a service that desk calls, and clerks call each other.
const (
	deskAgent  = "desk"
	clerkAgent = "clerk"
)

// minute in milliseconds.
const minute = 60_000

// serves says which agent answers calls of a type.
func serves(typeToken string) (string, bool) { return clerkAgent, typeToken == clerkToken }

var clerkToken = wire.NameToken(serviceType(clerkAgent))

func serviceType(tool string) string { return "shop." + tool }

// catalog is what one worker knows of agents.
type catalog struct {
	*simulation
	worker *worker
}

// Current implements runner.Catalog.
func (c catalog) Current(agent string) (*runner.Agent, bool) {
	versions, ok := c.agents[agent]
	if !ok {
		return nil, false
	}
	return versions[c.worker.version], true
}

// Version implements runner.Catalog. A version that is not the current one is compiled of its stored spec.
func (c catalog) Version(ctx context.Context, agent, digest string) (*runner.Agent, error) {
	versions := c.agents[agent]
	if current := versions[c.worker.version]; current.Core.Digest == digest {
		return current, nil
	}
	data, err := c.store.Spec(ctx, digest)
	if err != nil {
		return nil, err
	}
	for _, a := range versions {
		if string(a.SpecJSON) == string(data) && !c.worker.incomplete {
			return a, nil
		}
	}
	return nil, sdk.Errorf(sdk.CodeUnknownAgent, "no agent %s as of %s", agent, digest)
}

// compile makes both versions of every agent. What an agent can do differs from history to history, and so does how
// much: many small histories find more than a few large ones.
func (s *simulation) compile() {
	s.agents = map[string][]*runner.Agent{}
	delegates := s.pick(3) == 0
	s.plain = s.pick(4) == 0
	s.hooked = !s.plain && s.pick(6) == 0
	for version := range 2 {
		var tools []core.Tool
		if delegates {
			tools = append(tools, s.service(clerkAgent, ""))
		}
		for _, t := range []core.Tool{
			s.service("book", ""), s.service("pay", "bank"), s.service("ask", ""),
			s.inline("add", false), s.inline("charge", true), s.inline("finish", false),
		} {
			if s.plain && t.Kind == core.CallService || !s.plain && s.pick(2) == 0 {
				tools = append(tools, t)
			}
		}
		s.agents[deskAgent] = append(s.agents[deskAgent], s.agent(deskAgent, version, s.pick(3) == 0, tools))
		tools = []core.Tool{s.service("book", ""), s.inline("charge", true)}
		if s.pick(4) == 0 {
			tools = append(tools, s.service(clerkAgent, ""))
		}
		s.agents[clerkAgent] = append(s.agents[clerkAgent], s.agent(clerkAgent, version, s.pick(6) == 0, tools))
	}
}

// service is a tool over the broker, in several domains when one is named.
func (s *simulation) service(name, domain string) core.Tool {
	t := core.Tool{
		Name: name, Kind: core.CallService, Type: serviceType(name), Schema: "#/" + name + "/1.0.0",
		Agent: name == clerkAgent, Priority: s.pick(8) / 7, Timeout: int64(1+s.pick(5)) * minute, Validate: validate, ParentSubject: name == clerkAgent,
	}
	if s.pick(2) == 0 {
		t.Retry = core.Retry{Attempts: 1 + s.pick(3), Pause: int64(1 + s.pick(minute)), Longest: minute}
	}
	if t.Agent && s.pick(2) == 0 {
		t.Tokens = int64(1 + s.pick(8))
	}
	if domain != "" {
		t.Domains = []string{domain, "back.up"}
	}
	return t
}

func (s *simulation) inline(name string, atMostOnce bool) core.Tool {
	return core.Tool{Name: name, Kind: core.CallInline, AtMostOnce: atMostOnce, Validate: validate}
}

// validate accepts objects without a member "bad".
func validate(arguments string) (json.RawMessage, []sdk.Fault) {
	canonical, err := wire.Canonicalize([]byte(arguments))
	if err != nil {
		return nil, []sdk.Fault{{Path: "$", Expected: "JSON"}}
	}
	if canonical[0] != '{' || strings.Contains(string(canonical), `"bad"`) {
		return nil, []sdk.Fault{{Path: "$", Expected: "an object without bad"}}
	}
	return canonical, nil
}

// correct gives some agents guards of calls, and tools that change nothing.
func (s *simulation) correct(spec *core.Spec) {
	if s.pick(3) > 0 {
		return
	}
	spec.Guards = sdk.Guards{Errors: s.pick(3), Failures: s.pick(3), Duplicates: s.pick(3)}
	for i := range spec.Tools {
		spec.Tools[i].ReadOnly, spec.Tools[i].Changing = s.pick(2) == 0, s.pick(4) == 0
	}
}

// compensate has some agents say how the calls of their tools are undone.
func (s *simulation) compensate(spec *core.Spec) {
	if s.pick(2) == 0 || len(spec.Tools) == 0 {
		return
	}
	spec.Undo = map[string]core.UndoTool{}
	for _, t := range spec.Tools {
		spec.Undo[t.Name] = core.UndoTool{
			Tool: spec.Tools[s.pick(len(spec.Tools))].Name,
			Args: func(_ string, _, args, result json.RawMessage) (json.RawMessage, error) {
				return fmt.Appendf(nil, `{"of":%s,"was":%s}`, args, result), nil
			},
		}
	}
}

// spec is what is stored of a version of an agent.
type spec struct {
	json   []byte
	digest string
}

var specs = map[string][2]spec{deskAgent: specsOf(deskAgent), clerkAgent: specsOf(clerkAgent)}

func specsOf(agent string) (all [2]spec) {
	for version := range all {
		data := fmt.Appendf(nil, `{"agent":%q,"version":%d}`, agent, version)
		all[version] = spec{data, core.Digest(data)}
	}
	return all
}

func (s *simulation) agent(name string, version int, converse bool, tools []core.Tool) *runner.Agent {
	contract := serviceType(name)
	own := specs[name][version]
	spec := &core.Spec{
		Name: name, Digest: own.digest, Type: contract, OutputType: contract + ".done",
		Schema: "#/" + name + "/1.0.0", ErrorSchema: "#/error/1.0.0", TurnSchema: "#/turn/1.0.0",
		QuestionSchema: "#/question/1.0.0",
		Converse:       converse, StopOn: []string{"finish"}, MaxTurns: 1 + min(s.pick(3), s.pick(4)+s.pick(2)),
		RunDeadline: int64(5+s.pick(60)) * minute, TurnTimeout: int64(2+s.pick(20)) * minute,
		StaleAfter: silence + 2*ackWait, Tools: tools,
	}
	s.bound(spec)
	s.correct(spec)
	m := &model{models: s.models, width: 1 + s.pick(3)}
	a := &runner.Agent{
		Core: spec, SpecJSON: own.json, Model: m, ModelKey: "model-" + name, Parks: []sdk.Code{sdk.CodeUnavailable, sdk.CodeRateLimited, sdk.CodeConfig},
		ModelTimeout: silence / 2 * time.Millisecond,
		Inline:       map[string]sdk.Tool{}, History: s.pick(4) == 0,
		CheckInput: checkInput, CheckAnswer: checkAnswer, BuildOutput: buildOutput, BuildContext: buildContext,
	}
	a.BuildPrompt = s.prompts(spec)
	a.Estimate = func(messages []sdk.Message) int { return len(messages) }
	a.Remember = func(summary, next string) string { return summary + next }
	if s.pick(2) == 0 {
		a.Summarizer = a.Model
	}
	if s.pick(5) == 0 {
		spec.StopOn = append(spec.StopOn, "book")
	}
	for _, t := range tools {
		m.tools = append(m.tools, t.Name)
		if t.Kind == core.CallInline {
			a.Inline[t.Name] = sdk.Tool{Timeout: silence / 2 * time.Millisecond, Run: s.tool(name, t)}
		}
	}
	s.compensate(spec)
	if s.plain {
		return a
	}
	s.guard(a)
	s.hooks.hook(a)
	s.judges.judge(a)
	s.choosing(a)
	s.planning(a)
	return a
}

// tool returns the body of an agent's inline tool.
func (s *simulation) tool(agent string, t core.Tool) func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
	return func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
		if err := s.enter(ctx, atTool); err != nil {
			return nil, err
		}
		s.models.executed(call, t.AtMostOnce)
		s.gatedCall(agent, call.ID)
		if err := s.ask(call); err != nil {
			return nil, err
		}
		s.running.at = atInTool
		if err := s.work(ctx); err != nil {
			return nil, err
		}
		if s.strikes(toolFails) {
			switch s.pick(3) {
			case 0:
				panic("boom")
			case 1:
				return nil, sdk.Errorf(sdk.CodeTool, "no luck")
			}
			return json.RawMessage(`{"v":`), nil
		}
		return json.RawMessage(`{ "v": 1 }`), nil
	}
}

func buildContext(context.Context, sdk.ContextInput) (sdk.Context, error) {
	return sdk.Context{System: "be brief"}, nil
}

func checkInput(ev wire.Event) (json.RawMessage, *sdk.Error) {
	if strings.Contains(string(ev.Data), `"bad"`) {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the input is bad")
	}
	return ev.Data, nil
}

// checkAnswer refuses a person's answer without a message; a service's is an error when its type says so.
func checkAnswer(call core.Call, ev wire.Event, _ string) (runner.Answer, *sdk.Error) {
	isError := ev.Type == wire.ErrorType(call.Type)
	if call.Kind == core.CallPermission && !isError {
		var d sdk.PermissionDecision
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			return runner.Answer{}, sdk.Errorf(sdk.CodeContractViolation, "a decision is an object")
		}
		return runner.Answer{Data: ev.Data, Decision: &d}, nil
	}
	if call.Kind == core.CallQuestion && !isError && strings.Contains(string(ev.Data), `""`) {
		return runner.Answer{}, sdk.Errorf(sdk.CodeContractViolation, "an answer is not empty")
	}
	if call.Kind == core.CallTurn && !isError {
		var answer core.TurnAnswer
		if err := json.Unmarshal(ev.Data, &answer); err != nil || answer.Message == "" {
			return runner.Answer{}, sdk.Errorf(sdk.CodeContractViolation, "an answer has a message")
		}
	}
	retryable := isError && strings.Contains(string(ev.Data), "later")
	return runner.Answer{Data: ev.Data, Error: isError, Retryable: retryable}, nil
}

func buildOutput(_ context.Context, in sdk.OutputInput) (json.RawMessage, string, error) {
	if strings.Contains(in.Text, "bad") {
		return nil, "the answer is bad", nil
	}
	data, err := core.EncodeJSON(map[string]string{"response": in.Text})
	return data, "", err
}
