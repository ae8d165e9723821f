package worker_test

import (
	"context"
	"encoding/json"
	"log"
	"os/signal"
	"strings"
	"syscall"

	"agentd/sdk"
	"agentd/sdk/worker"
)

// An agent with a tool and a context builder in Go.
func Example() {
	shout := sdk.Tool{
		Definition: sdk.ToolDefinition{
			Name: "shout", Description: "Writes a text in capitals.",
			Parameters: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
		},
		Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			var in struct {
				Text string `json:"text"`
			}
			if err := json.Unmarshal(call.Args, &in); err != nil {
				return nil, err
			}
			return json.Marshal(map[string]string{"text": strings.ToUpper(in.Text)})
		},
	}
	herald := sdk.Agent{
		Spec: sdk.AgentSpec{
			Name: "herald", Version: "1.0.0", Model: sdk.ModelSpec{Provider: "openai", Name: "gpt-4o-mini"},
			Contract: sdk.Contract{URI: "#/herald", Type: "herald", Versions: map[string]sdk.ContractVersion{"1.0.0": {
				Accepts: json.RawMessage(`{"type":"object","properties":{"news":{"type":"string"}},"required":["news"]}`),
				Emits: map[string]json.RawMessage{
					"herald.done": json.RawMessage(`{"type":"object","properties":{"response":{"type":"string"}},"required":["response"]}`),
				},
			}}},
		},
		Tools: []sdk.Tool{shout},
		Hooks: sdk.Hooks{Context: func(_ context.Context, in sdk.ContextInput) (sdk.Context, error) {
			var news struct {
				News string `json:"news"`
			}
			if err := json.Unmarshal(in.Input, &news); err != nil {
				return sdk.Context{}, err
			}
			return sdk.Context{
				System:   "You are a herald. Shout what matters.",
				Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Tell the people: "+news.News)},
			}, nil
		}},
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	o := worker.FromEnvironment()
	o.Agents, o.Provision = []sdk.Agent{herald}, true
	if err := worker.Run(ctx, o); err != nil {
		log.Println(err)
	}
}
