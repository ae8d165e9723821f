package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
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
			text := strings.ToUpper(in.Text)
			fmt.Println("shouts", text)
			return json.Marshal(map[string]string{"text": text})
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

	o := worker.FromEnvironment()
	o.Agents, o.Provision = []sdk.Agent{herald}, true
	o.Logger = slog.New(slog.DiscardHandler)
	o.Models = func(sdk.ModelSpec) (sdk.Provider, error) {
		return sdktest.Script(
			sdktest.Ask(sdktest.Tool("shout", map[string]string{"text": "land in sight"})),
			sdktest.Say("The people know."),
		), nil
	}
	if err := tell(o, "herald", map[string]string{"news": "There is land in sight."}); err != nil {
		fmt.Println(err)
	}
	// Output:
	// shouts LAND IN SIGHT
	// completed: The people know.
}

// tell runs the worker on a server of its own until a run has ended. A program of its own calls worker.Run(ctx, o), with a context
// that ends when it is told to stop.
func tell(o worker.Options, agent string, input any) (err error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := embedded.Start(embedded.Options{Dir: dir, Listen: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	ctx, stop := context.WithCancel(context.Background())
	serving, done := make(chan struct{}), make(chan error, 1)
	o.URL, o.Serving = server.URL(), func() { close(serving) }
	go func() { done <- worker.Run(ctx, o) }()
	select {
	case <-serving:
		err = ask(ctx, o.URL, agent, input)
		stop()
		return errors.Join(err, <-done)
	case err := <-done:
		stop()
		return err
	}
}

// ask starts a run and prints how it ended.
func ask(ctx context.Context, url, agent string, input any) (err error) {
	c, err := client.Connect(ctx, client.Options{URL: url})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	run, err := c.Start(ctx, client.Request{Agent: agent, Input: input})
	if err != nil {
		return err
	}
	result, err := c.Wait(ctx, run)
	if err != nil {
		return err
	}
	var answer struct{ Response string }
	err = result.Decode(&answer)
	fmt.Printf("%s: %s\n", result.Reason, answer.Response)
	return err
}
