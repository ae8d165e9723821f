package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"agentd/internal/broker/embedded"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
	"agentd/sdk/worker"
)

// A run that asks before it pays: it is started, followed up to its question, answered, decided and waited for.
func Example() {
	if err := example(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// asks: Which bill?
	// asks permission: pay {"euros":12}
	// pays {"euros":12}
	// completed: The bill is paid.
}

func example(ctx context.Context) (err error) {
	paid := make(chan string, 1)
	url, stop, err := serve(clerk(paid), sdktest.Script(
		sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})),
		sdktest.Ask(sdktest.Tool("pay", map[string]int{"euros": 12})),
		sdktest.Say("The bill is paid."),
	))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	c, err := client.Connect(ctx, client.Options{URL: url, As: "ann"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	// The same key starts the same run, however often this program is started again.
	run, err := c.Start(ctx, client.Request{Agent: "clerk", Input: map[string]string{"message": "Pay the bill."}, Key: "bill-of-may"})
	if err != nil {
		return err
	}
	for live, err := range c.Follow(ctx, run, wire.Mark{}) {
		if err != nil {
			return err
		}
		if live.Type != wire.MilestoneSuspended {
			continue
		}
		if err := reply(ctx, c, run); err != nil {
			return err
		}
	}
	fmt.Println("pays", <-paid)
	result, err := c.Wait(ctx, run)
	if err != nil {
		return err // a *client.RunError when the run itself failed
	}
	var answer struct{ Response string }
	if err := result.Decode(&answer); err != nil {
		return err
	}
	fmt.Printf("%s: %s\n", result.Reason, answer.Response)
	return nil
}

// reply answers what the run asks a person now.
func reply(ctx context.Context, c *client.Client, run client.Run) error {
	calls, err := c.Asked(ctx, run)
	if err != nil {
		return err
	}
	for _, call := range calls {
		var asked struct {
			Question string
			Tool     string
			Args     json.RawMessage
		}
		if err := json.Unmarshal(call.Asked, &asked); err != nil {
			return err
		}
		switch call.Type {
		case sdk.TypeQuestion:
			fmt.Println("asks:", asked.Question)
			_, err = c.Answer(ctx, run, call.Call, client.Reply{Text: "The one of May."})
		case sdk.TypePermissionRequest:
			fmt.Printf("asks permission: %s %s\n", asked.Tool, asked.Args)
			_, err = c.Decide(ctx, run, call.Call, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// serve runs an agent with a scripted model on a NATS server of its own, in the place of `agentd serve`.
func serve(agent sdk.Agent, model sdk.Provider) (url string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return "", nil, err
	}
	server, err := embedded.Start(embedded.Options{Dir: dir, Listen: true})
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithCancel(context.Background())
	serving, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, worker.Options{
			URL: server.URL(), Agents: []sdk.Agent{agent}, Provision: true, Serving: func() { close(serving) },
			Models: func(sdk.ModelSpec) (sdk.Provider, error) { return model, nil }, Logger: slog.New(slog.DiscardHandler),
		})
	}()
	stop = func() error {
		cancel()
		return errors.Join(<-done, server.Close(), os.RemoveAll(dir))
	}
	select {
	case <-serving:
		return server.URL(), stop, nil
	case err := <-done:
		done <- nil
		return "", nil, errors.Join(err, stop())
	}
}
