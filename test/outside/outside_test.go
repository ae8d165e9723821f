// Package outside is a module of its own, as a user's program is: it may import nothing of agentd but its public packages.
package outside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/service"
	"agentd/sdk/wire"
)

// noFortunes is a hook in Go for the deployed agent: it blocks payments above 1,000 euros.
func noFortunes(a *sdk.Agent) {
	a.Hooks.Phases = append(a.Hooks.Phases, sdk.Hook{
		Name: "no_fortunes",
		BeforeToolExecute: func(_ context.Context, c sdk.ToolAttempt) (sdk.Gate, error) {
			if c.Tool != "pay_bill" {
				return sdk.Gate{}, nil
			}
			var bill struct {
				Euros int `json:"euros"`
			}
			if err := json.Unmarshal(c.Args, &bill); err != nil || bill.Euros > 1000 {
				return sdk.Gate{Verdict: sdk.GateBlock, Reason: "that is a fortune"}, err
			}
			return sdk.Gate{}, nil
		},
	})
}

// start runs the agent of agentd.yaml with the hook and a scripted model, and serves its contract, until the test ends.
func start(t *testing.T, replies ...sdk.ModelReply) *sdktest.Harness {
	t.Helper()
	h := sdktest.Start(t, sdktest.Options{
		File: "agentd.yaml", Extend: map[string]func(*sdk.Agent){"clerk": noFortunes}, Model: sdktest.Script(replies...),
	})
	bills, err := service.FromFile("contracts/bills.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type payment struct {
		Euros int `json:"euros"`
	}
	type receipt struct {
		Receipt string `json:"receipt"`
	}
	service.Handle(bills, func(_ context.Context, _ service.Call, p payment) (receipt, error) {
		return receipt{Receipt: fmt.Sprintf("R-%d", p.Euros)}, nil
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{InProcess: h}.Run(ctx, bills) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

func TestClerk_PaysWhatWasAllowed(t *testing.T) {
	h := start(t,
		sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})),
		sdktest.Ask(sdktest.Tool("pay_bill", map[string]int{"euros": 12}), sdktest.Tool("pay_bill", map[string]int{"euros": 5000})),
		sdktest.Say("Paid."),
	)
	c := h.Client("ann")
	run, err := c.Start(t.Context(), client.Request{Agent: "clerk", Input: map[string]string{"message": "Pay the bills."}, Key: "bills-of-may"})
	if err != nil {
		t.Fatal(err)
	}
	h.Answer(run, client.Reply{Text: "The one of May."})
	h.Approve(run, "pay_bill", "ann")
	var told []string
	for live, err := range c.Follow(t.Context(), run, wire.Mark{}) {
		if err != nil {
			t.Fatal(err)
		}
		if live.Type == wire.MilestoneResult {
			told = append(told, string(live.Data))
		}
	}
	if len(told) != 3 {
		t.Errorf("it was told %d results: %s", len(told), told)
	}
	var answer struct {
		Response string `json:"response"`
	}
	if err := h.Wait(run).Decode(&answer); err != nil || answer.Response != "Paid." {
		t.Errorf("it answered %q, %v", answer.Response, err)
	}
	results := map[string]bool{}
	for _, m := range h.Messages(run) {
		for _, part := range m.Content {
			if part.Kind == sdk.ContentToolResult && part.Tool == "pay_bill" {
				results[part.Text] = part.IsError
			}
		}
	}
	want := map[string]bool{`{"receipt":"R-12"}`: false, `{"error":{"code":"blocked","message":"that is a fortune"}}`: true}
	if !maps.Equal(results, want) {
		t.Errorf("the calls' results are %v", results)
	}
	h.NoDeadLetter()
}

func TestClerk_IsCancelled(t *testing.T) {
	h := start(t, sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})))
	c := h.Client("ann")
	run := h.Run("clerk", map[string]string{"message": "Pay the bills."})
	h.Until(run, "waiting", func(s wire.RunStatus) bool { return s.Status == wire.StatusWaiting })
	if err := c.Cancel(t.Context(), run, "never mind"); err != nil {
		t.Fatal(err)
	}
	if failed := h.WaitFailed(run); failed.Reason != wire.ReasonCancelled || !errors.Is(failed, &sdk.Error{Code: sdk.CodeCancelled}) {
		t.Errorf("it ended with %v", failed)
	}
}
