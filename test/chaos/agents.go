package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"agentd/internal/toolbox"
	"agentd/sdk"
)

// The agents: clients start desk, hasty and planner, child is a service that desk calls.
const (
	deskAgent    = "desk"
	hastyAgent   = "hasty"
	childAgent   = "child"
	plannerAgent = "planner"
)

// The models that plan and that choose a call for a step, of planner; its own writes the answer.
const (
	planModel  = "planner.plan"
	routeModel = "planner.route"
)

// The services by their contract's type.
const (
	quoteType = "shop.quote" // in two domains, of which the first answer counts
	bookType  = "shop.book"  // fails now and then in a way that passes: it is tried again
	idleType  = "shop.idle"  // nobody ever answers; times out soon
	longType  = "shop.long"  // nobody ever answers; somebody cancels
	payType   = "shop.pay"   // needs a person's permission
	childType = "shop.child"
)

// The tools as the model knows them.
const (
	quoteTool, bookTool, idleTool, longTool = "shop_quote", "shop_book", "shop_idle", "shop_long"
	childTool                               = "shop_child"
	addTool, chargeTool                     = "add", "charge"
	payTool, transferTool                   = "shop_pay", "transfer" // both need permission
	burnTool                                = "burn"                 // ends the worker
)

var quoteDomains = []string{"north", "south"}

// longestRun bounds every run but those of hasty. No run comes near it unless something is wrong.
const longestRun = 10 * time.Minute

func contract(contractType string) sdk.Contract {
	return sdk.Contract{URI: "#/chaos/" + contractType, Type: contractType, Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(`{"type":"object"}`),
		Emits:   map[string]json.RawMessage{contractType + ".done": json.RawMessage(`{"type":"object"}`)},
	}}}
}

func agentContract(contractType string) sdk.Contract {
	c := contract(contractType)
	version := c.Versions["1.0.0"]
	version.Emits[contractType+".done"] = json.RawMessage(
		`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`)
	return c
}

func service(contractType string, timeout time.Duration) sdk.ServiceTool {
	return sdk.ServiceTool{Contract: contract(contractType), Version: "1.0.0", TimeoutMillis: timeout.Milliseconds()}
}

// specs are the agents as data. What is added to the workload is added here, to scenarios and, if it needs answers, to
// services.
func specs() []sdk.AgentSpec {
	quote := service(quoteType, 4*time.Second)
	quote.Domains = quoteDomains
	book := service(bookType, 4*time.Second)
	book.Retry = &sdk.Retry{Attempts: 4, BackoffMillis: 100}
	child := sdk.ServiceTool{Contract: agentContract(childType), Version: "1.0.0", TimeoutMillis: longestRun.Milliseconds()}
	common := func(name, contractType string, deadline time.Duration, services ...sdk.ServiceTool) sdk.AgentSpec {
		return sdk.AgentSpec{
			Name: name, Version: "1.0.0", Contract: agentContract(contractType), Services: services,
			Model: sdk.ModelSpec{Provider: "chaos", Name: name},
			Limits: sdk.Limits{
				Interactions: 12, DeadlineMillis: deadline.Milliseconds(), ModelTimeoutMillis: time.Minute.Milliseconds(),
			},
		}
	}
	long := service(longType, longestRun)
	desk := common(deskAgent, "shop.desk", longestRun, quote, book, child, long, service(idleType, 700*time.Millisecond),
		service(payType, 4*time.Second))
	desk.Permissions = policy()
	desk.Builtin = []string{toolbox.AskQuestion}
	planner := common(plannerAgent, "shop.planner", longestRun, quote, book, service(idleType, 700*time.Millisecond), service(payType, 4*time.Second))
	planner.Limits.Interactions = 40
	planner.Permissions, planner.Mode = policy(), sdk.ModePlan
	planner.Plan = &sdk.PlanSpec{
		Planner: &sdk.ModelSpec{Provider: "chaos", Name: planModel}, Router: &sdk.ModelSpec{Provider: "chaos", Name: routeModel}, Review: new(terms()),
	}
	return []sdk.AgentSpec{
		desk, planner, common(hastyAgent, "shop.hasty", 2500*time.Millisecond, long), common(childAgent, childType, longestRun, quote, book),
	}
}

// agents are the specs with their tools, for a worker whose failpoint is a.
func agents(a *armed) []sdk.Agent {
	var all []sdk.Agent
	for _, s := range specs() {
		all = append(all, sdk.Agent{Spec: s, Tools: []sdk.Tool{
			tool(a, addTool, 2*time.Millisecond), once(a, chargeTool, 5*time.Millisecond),
			once(a, transferTool, 5*time.Millisecond), burn(a),
		}})
	}
	return all
}

// prompt is what the driver's model is asked, and reply what it says. Latency is for the worker to spend, after the driver
// has counted the call.
type prompt struct {
	Run     string `json:"run"`
	Agent   string `json:"agent"`
	Turn    int    `json:"turn"`
	Message string `json:"message"`
}

type reply struct {
	Text    string            `json:"text"`
	Calls   []sdk.ToolRequest `json:"calls"`
	Latency time.Duration     `json:"latency"`
}

// model asks the driver.
type model struct {
	*armed
	url, agent string
}

// Generate implements sdk.Provider.
func (m model) Generate(ctx context.Context, req sdk.ModelRequest, _ func(sdk.Delta)) (sdk.ModelReply, error) {
	question, err := json.Marshal(prompt{
		Run: req.Run, Agent: m.agent, Turn: req.Interactions.Current, Message: req.Messages[0].PlainText(),
	})
	if err != nil {
		return sdk.ModelReply{}, err
	}
	answer, err := m.ask(ctx, question)
	if err != nil {
		return sdk.ModelReply{}, err
	}
	m.pass(ctx, atInModel)
	select {
	case <-time.After(answer.Latency):
	case <-ctx.Done():
		return sdk.ModelReply{}, ctx.Err()
	}
	m.pass(ctx, atModelDone)
	return sdk.ModelReply{Text: answer.Text, Calls: answer.Calls, Usage: sdk.Usage{Prompt: 1, Completion: 1}}, nil
}

func (m model) ask(ctx context.Context, question []byte) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(question))
	if err != nil {
		return reply{}, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{}, sdk.Errorf(sdk.CodeUnavailable, "the model cannot be reached").WithCause(err)
	}
	defer func() { _ = response.Body.Close() }() // it was read to its end, or the connection is not used again
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusTooManyRequests:
		return reply{}, &sdk.Error{Code: sdk.CodeRateLimited, Message: "the model wants less", Retryable: true, RetryAfter: time.Second}
	case http.StatusUnauthorized:
		return reply{}, sdk.Errorf(sdk.CodeConfig, "the model does not know the key")
	default:
		return reply{}, fmt.Errorf("the model answers %s", response.Status)
	}
	var answer reply
	return answer, json.NewDecoder(response.Body).Decode(&answer)
}
