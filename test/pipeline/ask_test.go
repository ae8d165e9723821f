package pipeline

import (
	"context"
	"encoding/json"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/contracts"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// A tool that asks suspends the run. The answer lets the same call go on at another worker, with what the tool kept.
func TestAsk_ToolGoesOnWithTheAnswerAtAnotherWorker(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var calls []sdk.ToolCall
	order := sdk.Tool{
		Definition: sdk.ToolDefinition{Name: "order"}, AtMostOnce: true,
		Run: func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, c)
			if c.Answer == nil {
				return nil, sdk.AskPerson(sdk.Question{Question: "Which size?", Schema: []byte(`{"type":"object"}`)}, []byte(`{"cart":7}`))
			}
			return c.Answer.Data, nil
		},
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk(), Tools: []sdk.Tool{order}}},
		Model:  sdktest.Script(sdktest.Ask(sdktest.Tool("order", map[string]int{"n": 1})), sdktest.Say("ordered")),
	})
	r := h.Run("desk", hello())
	question := h.Call(sdk.TypeQuestion)
	want := map[string]any{"question": "Which size?", "schema": map[string]any{"type": "object"}}
	if diff := cmp.Diff(want, question.Data()); diff != "" || question.Event.Domain != sdk.HumanDomain {
		t.Errorf("the question, in domain %q, -want +got:\n%s", question.Event.Domain, diff)
	}
	h.Restart()
	question.Answer(contracts.TypeQuestionAnswered, map[string]any{"answer": "XL"})
	wantResponse(t, h.Done(r), "ordered")
	sound(t, h.Conn(), natsStore(h.Conn()))
	mu.Lock()
	defer mu.Unlock()
	if len(calls) != 2 || calls[0].ID != calls[1].ID {
		t.Fatalf("the tool was called with %+v, want the same call twice", calls)
	}
	if diff := cmp.Diff(&sdk.ToolAnswer{State: []byte(`{"cart":7}`), Data: []byte(`{"answer":"XL"}`)}, calls[1].Answer); diff != "" {
		t.Errorf("the tool was handed -want +got:\n%s", diff)
	}
}
