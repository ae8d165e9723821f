package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// A run whose model fails after a person has answered goes on when it is retried: nobody is asked again, and each generation has its end.
func TestClient_RetriesARunThatFailed(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 1))},
		Model: sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			switch asked.Add(1) {
			case 1:
				return sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})), nil
			case 2:
				return sdk.ModelReply{}, sdk.Errorf(sdk.CodeModel, "the request is wrong")
			}
			if last := req.Messages[len(req.Messages)-1].Content[0]; last.Text != `{"answer":"The one of May."}` {
				t.Errorf("the model is shown %s in the end", last.Text)
			}
			return sdktest.Say("The bill is paid."), nil
		}),
	})
	c := connect(t, h)
	run, err := c.Start(t.Context(), request("bill-9"))
	must(t, err)
	question := until(t, c, run, sdk.TypeQuestion)
	if _, _, err := c.Retry(t.Context(), run); !errors.Is(err, &sdk.Error{Code: sdk.CodeRetryRefused}) {
		t.Errorf("a run that has not ended is retried: %v", err)
	}
	_, err = c.Answer(t.Context(), run, question.Call, client.Reply{Text: "The one of May."})
	must(t, err)
	failed := func() {
		t.Helper()
		if _, err := c.Wait(t.Context(), run); !errors.Is(err, &sdk.Error{Code: sdk.CodeModel}) {
			t.Fatalf("the first generation ended with %v", err)
		}
	}
	failed()

	generation, taken, err := c.Retry(t.Context(), run)
	must(t, err)
	if !taken || generation.Init == run.Init || generation.Name != run.Name {
		t.Errorf("the generation is %+v, taken: %t", generation, taken)
	}
	result, err := c.Wait(t.Context(), generation)
	must(t, err)
	if string(result.Data) != `{"response":"The bill is paid."}` || result.Reason != wire.ReasonCompleted {
		t.Errorf("it ended with %s (%s)", result.Data, result.Reason)
	}
	failed() // its end stays what it was
	var types []string
	for l, err := range c.Follow(t.Context(), run, wire.Mark{}) {
		must(t, err)
		if l.Type == wire.MilestoneFinished || l.Type == wire.MilestoneRetried || l.Type == wire.MilestoneCall {
			types = append(types, l.Type)
		}
	}
	want := []string{wire.MilestoneCall, wire.MilestoneFinished, wire.MilestoneRetried, wire.MilestoneFinished}
	if len(types) != 4 || types[0] != want[0] || types[1] != want[1] || types[2] != want[2] || types[3] != want[3] {
		t.Errorf("whoever follows the run is told %v, want %v", types, want)
	}
	if _, _, err := c.Retry(t.Context(), run); !errors.Is(err, &sdk.Error{Code: sdk.CodeRetryRefused}) {
		t.Errorf("a run that completed is retried: %v", err)
	}
	if asked.Load() != 3 {
		t.Errorf("the model was asked %d times, want 3", asked.Load())
	}
	h.NoDeadLetter()
}

// One call of a run is cancelled by its place: the model is told, and the run goes on.
func TestClient_CancelsACall(t *testing.T) {
	t.Parallel()
	h := sdktest.Start(t, sdktest.Options{
		Agents: []sdk.Agent{clerk(make(chan string, 1))},
		Model: sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if len(req.Messages) == 1 {
				return sdktest.Ask(sdktest.Tool("ask_question", map[string]string{"question": "Which bill?"})), nil
			}
			return sdktest.Say(req.Messages[len(req.Messages)-1].Content[0].Text), nil
		}),
	})
	c := connect(t, h)
	run, err := c.Start(t.Context(), request("bill-10"))
	must(t, err)
	until(t, c, run, sdk.TypeQuestion)
	if _, err := c.CancelCall(t.Context(), run, "c7-0", ""); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("a call that was never made is cancelled: %v", err)
	}
	if cancelled, err := c.CancelCall(t.Context(), run, "c1-0", "not now"); err != nil || !cancelled {
		t.Errorf("the call is cancelled: %t, %v", cancelled, err)
	}
	result, err := c.Wait(t.Context(), run)
	must(t, err)
	const want = `{"response":"{\"error\":{\"code\":\"cancelled\",\"message\":\"ask_question was cancelled: not now; whether it took effect is unknown\"}}"}`
	if string(result.Data) != want {
		t.Errorf("it ended with %s, want %s", result.Data, want)
	}
	h.NoDeadLetter()
}
