package pipeline

import (
	"context"
	"encoding/json"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestRetry_ServiceIsAskedAgainUntilItAnswers(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Services[0].Retry = &sdk.Retry{Attempts: 3, BackoffMillis: 1}
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three")))
	r := h.Run("desk", hello())
	busy := wire.NewProblem(&sdk.Error{Code: sdk.CodeUnavailable, Message: "busy", Retryable: true})

	first := h.Call("calc.add")
	first.Fail(busy)
	second := h.Call("calc.add")
	h.Restart() // the next attempt is the timer's, not this worker's
	second.Fail(busy)
	third := h.Call("calc.add")
	third.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")

	for i, call := range []*harness.Call{first, second, third} {
		ref, ok := wire.ParseCallRef(call.Event.ID)
		if want, _ := wire.ParseCallRef(first.Event.ID); !ok || ref.ID != want.ID || ref.Attempt != i+1 {
			t.Errorf("attempt %d has event id %s, the first has %s", i+1, call.Event.ID, first.Event.ID)
		}
		if string(call.Event.Data) != string(first.Event.Data) {
			t.Errorf("attempt %d carries %s, the first %s", i+1, call.Event.Data, first.Event.Data)
		}
	}
	h.NoCall("calc.add")
}

func TestRetry_FirstAnswerToAnyAttemptCounts(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Services[0].TimeoutMillis = 200
	spec.Services[0].Retry = &sdk.Retry{Attempts: sdk.MaxAttempts, BackoffMillis: 1} // some are left when the answer is read
	model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("three"))
	h := start(t, spec, model)
	r := h.Run("desk", hello())
	slow := h.Call("calc.add")
	again := h.Call("calc.add")
	slow.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "three")
	again.Answer("calc.added", sum(99))
	if got := h.Messages(r)[2].Content[0].Text; got != `{"sum":3}` {
		t.Errorf("the model was told %s, want the first answer", got)
	}
	if n := len(model.Requests()); n != 2 {
		t.Errorf("the model was asked %d times, want 2", n)
	}
}

func TestRetry_LastErrorIsTheResult(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Services[0].Retry = &sdk.Retry{Attempts: 2, BackoffMillis: 1}
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("gave up")))
	r := h.Run("desk", hello())
	for range 2 {
		h.Call("calc.add").Fail(wire.NewProblem(&sdk.Error{Code: sdk.CodeUnavailable, Message: "busy", Retryable: true}))
	}
	wantResponse(t, h.Done(r), "gave up")
	if result := h.Messages(r)[2].Content[0]; !result.IsError || !containsCode(result.Text, sdk.CodeUnavailable) {
		t.Errorf("the model was told %s, want %s", result.Text, sdk.CodeUnavailable)
	}
}

// A rolling restart hands a run on any number of times; only deaths make it poison.
func TestDrain_DoesNotCountTowardsPoison(t *testing.T) {
	t.Parallel()
	asked := make(chan chan struct{})
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{
			Spec: desk(),
			Tools: []sdk.Tool{{
				Definition: sdk.ToolDefinition{Name: "look"},
				Run: func(ctx context.Context, _ sdk.ToolCall) (json.RawMessage, error) {
					finish := make(chan struct{})
					select {
					case asked <- finish:
						<-finish
						return json.RawMessage(`{}`), nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				},
			}},
		}},
		Model: sdktest.ModelFunc(func(context.Context, sdk.ModelRequest) (sdk.ModelReply, error) {
			return sdktest.Ask(sdktest.Tool("look", map[string]any{})), nil
		}),
	})
	r := h.Run("desk", hello())
	finish := <-asked
	for range core.MaxDeaths + 2 {
		restarted := make(chan struct{})
		go func() {
			defer close(restarted)
			h.Restart()
		}()
		for draining := true; draining; {
			close(finish)
			select {
			case finish = <-asked: // it had not begun to drain, or the new worker is at it
			case <-restarted:
				finish, draining = <-asked, false
			}
		}
	}
	if d := h.State(r).Driver; d == nil || d.Takeovers != 0 {
		t.Errorf("after %d restarts the driver is %+v, want no takeover", core.MaxDeaths+2, d)
	}
	h.Cancel(r, "")
	close(finish)
	wantProblem(t, h.Done(r), "desk", sdk.CodeCancelled)
}
