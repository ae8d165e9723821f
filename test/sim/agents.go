package sim

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
)

// The agents: desk is started by clients, child is a service that desk calls.
const (
	deskAgent  = "desk"
	childAgent = "child"
)

// minute in milliseconds.
const minute = 60_000

// catalog is the agents that all workers have.
type catalog struct {
	*simulation
	agents map[string]*runner.Agent
}

func newCatalog(s *simulation) *catalog {
	c := &catalog{simulation: s, agents: map[string]*runner.Agent{}}
	c.agents[deskAgent] = c.agent(deskAgent, s.chance(0.4), []core.Tool{
		c.service("book", "", 0), c.service("pay", "bank", 1), c.service("ask", "", 0), c.service(childAgent, "", 0),
		c.inline("add", false), c.inline("charge", true), c.inline("finish", false),
	})
	c.agents[childAgent] = c.agent(childAgent, s.chance(0.2), []core.Tool{c.service("book", "", 0), c.inline("charge", true)})
	return c
}

// Current implements runner.Catalog.
func (c *catalog) Current(agent string) (*runner.Agent, bool) {
	a, ok := c.agents[agent]
	return a, ok
}

// Version implements runner.Catalog.
func (c *catalog) Version(ctx context.Context, agent, digest string) (*runner.Agent, error) {
	if err := c.store.reach(ctx, "spec"); err != nil {
		return nil, err
	}
	a, ok := c.agents[agent]
	if !ok || a.Core.Digest != digest {
		return nil, sdk.Errorf(sdk.CodeUnknownAgent, "no agent %s as of %s", agent, digest)
	}
	return a, nil
}

// serves says which agent answers calls of a type.
func (c *catalog) serves(typeToken string) (string, bool) {
	return childAgent, typeToken == sdk.NameToken(serviceType(childAgent))
}

func serviceType(tool string) string { return "shop." + tool }

// service is a tool over the broker, in several domains when one is named.
func (c *catalog) service(name, domain string, priority int) core.Tool {
	t := core.Tool{
		Name: name, Kind: core.CallService, Type: serviceType(name), Schema: "#/" + name + "/1.0.0",
		Priority: c.pick(priority + 1), Timeout: int64(1+c.pick(5)) * minute,
		Validate: validate, ParentSubject: name == childAgent,
	}
	if c.chance(0.5) {
		t.Retry = core.Retry{Attempts: 1 + c.pick(3), Pause: int64(1 + c.pick(minute)), Longest: minute}
	}
	if domain != "" {
		t.Domains = []string{domain, "back.up"}
	}
	return t
}

func (c *catalog) inline(name string, atMostOnce bool) core.Tool {
	return core.Tool{Name: name, Kind: core.CallInline, AtMostOnce: atMostOnce, Validate: validate}
}

// validate accepts objects without a member "bad".
func validate(arguments string) (json.RawMessage, []sdk.Fault) {
	canonical, err := sdk.Canonicalize([]byte(arguments))
	if err != nil {
		return nil, []sdk.Fault{{Path: "$", Expected: "JSON"}}
	}
	if canonical[0] != '{' || strings.Contains(string(canonical), `"bad"`) {
		return nil, []sdk.Fault{{Path: "$", Expected: "an object without bad"}}
	}
	return canonical, nil
}

func (c *catalog) agent(name string, converse bool, tools []core.Tool) *runner.Agent {
	contract := serviceType(name)
	spec := &core.Spec{
		Name: name, Digest: core.Digest([]byte(name)), Type: contract, OutputType: contract + ".done",
		Schema: "#/" + name + "/1.0.0", ErrorSchema: "#/error/1.0.0", TurnSchema: "#/turn/1.0.0",
		Converse: converse, StopOn: []string{"finish"}, MaxInteractions: 2 + c.pick(4),
		RunDeadline: int64(5+c.pick(60)) * minute, TurnTimeout: int64(2+c.pick(20)) * minute,
		StaleAfter: silence + 2*ackWait, Tools: tools,
	}
	a := &runner.Agent{
		Core: spec, SpecJSON: []byte(`{}`), Model: &model{c.models}, ModelTimeout: time.Hour, Inline: map[string]sdk.Tool{},
		History: c.chance(0.3), CheckInput: checkInput, CheckAnswer: checkAnswer, BuildOutput: buildOutput,
		BuildContext: func(context.Context, sdk.ContextInput) (sdk.Context, error) {
			return sdk.Context{System: "be brief"}, nil
		},
	}
	if c.chance(0.2) {
		spec.StopOn = append(spec.StopOn, "book")
	}
	for _, t := range tools {
		if t.Kind == core.CallInline {
			a.Inline[t.Name] = sdk.Tool{Timeout: time.Hour, Run: c.tool(t)}
		}
	}
	return a
}

// tool returns the body of an inline tool.
func (c *catalog) tool(t core.Tool) func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
	return func(ctx context.Context, call sdk.ToolCall) (json.RawMessage, error) {
		if err := c.enter(ctx, "tool"); err != nil {
			return nil, err
		}
		c.models.executed(sdk.NewRunKey(call.Run), call.ID, t.AtMostOnce)
		if err := c.work(ctx); err != nil {
			return nil, err
		}
		switch {
		case c.chance(c.mix.broken / 3):
			panic("boom")
		case c.chance(c.mix.broken / 3):
			return nil, sdk.Errorf(sdk.CodeTool, "no luck")
		case c.chance(c.mix.broken / 3):
			return json.RawMessage(`{"v":`), nil
		}
		return json.RawMessage(`{ "v": 1 }`), nil
	}
}

// work takes some time, now and then more than a lease or than a worker may be silent.
func (c *catalog) work(ctx context.Context) error {
	d := time.Duration(c.pick(3000)) * time.Millisecond
	switch {
	case c.chance(c.mix.hang):
		d = 2 * silence * time.Millisecond
	case c.chance(c.mix.slow):
		d = 2 * ackWait * time.Millisecond
	}
	return c.running.worker.Sleep(ctx, d)
}

func checkInput(ev sdk.Event) (json.RawMessage, *sdk.Error) {
	if strings.Contains(string(ev.Data), `"bad"`) {
		return nil, sdk.Errorf(sdk.CodeContractViolation, "the input is bad")
	}
	return ev.Data, nil
}

// checkAnswer refuses a person's answer without a message; a service's is an error when its type says so.
func checkAnswer(call core.Call, ev sdk.Event) (runner.Answer, *sdk.Error) {
	isError := ev.Type == sdk.ErrorType(call.Type)
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
