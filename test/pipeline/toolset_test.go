package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"agentd/internal/contracts"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// shop is a toolset that can be away. Its tool order asks a person, pay does not.
type shop struct{ away atomic.Bool }

func (*shop) Name() string { return "shop" }

func (s *shop) Tools(context.Context) ([]sdk.Tool, error) {
	if s.away.Load() {
		return nil, errors.New("connection refused")
	}
	order := func(_ context.Context, c sdk.ToolCall) (json.RawMessage, error) {
		if c.Answer == nil {
			return nil, sdk.AskPerson(sdk.Question{Question: "Which size?"}, nil)
		}
		return c.Answer.Data, nil
	}
	pay := func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
		return json.RawMessage(`{"paid":true}`), nil
	}
	return []sdk.Tool{
		{Definition: sdk.ToolDefinition{Name: "order"}, Run: order}, {Definition: sdk.ToolDefinition{Name: "pay"}, Run: pay},
	}, nil
}

func (*shop) Close() error { return nil }

// What a person has allowed or answered while the toolset is away is done when it is back, and not lost.
func TestToolset_ThatIsAwayLosesNothingThatWasDecided(t *testing.T) {
	t.Parallel()
	for name, decided := range map[string]func(*harness.Harness) (decide func(), result string){
		"allowed": func(h *harness.Harness) (func(), string) {
			request := h.Call(sdk.TypePermissionRequest)
			return func() { decide(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow}) }, `{"paid":true}`
		},
		"answered": func(h *harness.Harness) (func(), string) {
			question := h.Call(sdk.TypeQuestion)
			return func() { question.Answer(contracts.TypeQuestionAnswered, map[string]any{"answer": "XL"}) }, `{"answer":"XL"}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, spec := &shop{}, desk()
			spec.Permissions = asking(sdk.PermissionPolicyTerms{}, "shop_pay")
			tool := map[string]string{"allowed": "shop_pay", "answered": "shop_order"}[name]
			h := harness.Start(t, harness.Options{
				Agents: []sdk.Agent{{Spec: spec, Toolsets: []sdk.Toolset{set}}},
				Model:  sdktest.Script(sdktest.Ask(sdktest.Tool(tool, map[string]int{"n": 1})), sdktest.Say("done")),
			})
			r := h.Run("desk", hello())
			decide, result := decided(h)
			set.away.Store(true)
			h.Restart()
			decide()
			set.away.Store(false) // the worker asks it again after a second
			wantResponse(t, h.Done(r), "done")
			if got := h.Messages(r)[2].Content[0]; got.IsError || got.Text != result {
				t.Errorf("the call's result is %+v, want %s", got, result)
			}
			sound(t, h.Conn(), natsStore(h.Conn()))
		})
	}
}
