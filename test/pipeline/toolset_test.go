package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
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

// What a person has allowed or answered while the toolset is away is done when it is back, and not lost: whether they were asked for one call or
// for several, and whoever was asked before them.
func TestToolset_ThatIsAwayLosesNothingThatWasDecided(t *testing.T) {
	t.Parallel()
	allow := sdk.PermissionDecision{Decision: sdk.DecisionAllow}
	for name, c := range map[string]struct {
		terms   sdk.PermissionPolicyTerms
		decided func(*harness.Harness) (decide func())
		tool    string
		result  string
	}{
		"allowed": {sdk.PermissionPolicyTerms{}, func(h *harness.Harness) func() {
			request := h.Call(sdk.TypePermissionRequest)
			return func() { decide(request, allow) }
		}, "shop_pay", `{"paid":true}`},
		"allowed, with others": {sdk.PermissionPolicyTerms{Batch: true}, func(h *harness.Harness) func() {
			request := h.Call(sdk.TypePermissionRequest)
			return func() { decide(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow, All: true}) }
		}, "shop_pay", `{"paid":true}`},
		"allowed, by the next": {sdk.PermissionPolicyTerms{
			TimeoutMillis: 50, Escalate: []sdk.PermissionStage{{Domain: "the.boss", TimeoutMillis: 3_600_000}},
		}, func(h *harness.Harness) func() {
			h.Call(sdk.TypePermissionRequest)
			request := h.Call(sdk.TypePermissionRequest)
			return func() { decide(request, allow) }
		}, "shop_pay", `{"paid":true}`},
		"answered": {sdk.PermissionPolicyTerms{}, func(h *harness.Harness) func() {
			question := h.Call(sdk.TypeQuestion)
			return func() { question.Answer(sdk.TypeQuestionAnswered, map[string]any{"answer": "XL"}) }
		}, "shop_order", `{"answer":"XL"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set, spec := &shop{}, desk()
			spec.Permissions = asking(c.terms, "shop_pay")
			h := harness.Start(t, harness.Options{
				Agents: []sdk.Agent{{Spec: spec, Toolsets: []sdk.Toolset{set}}},
				Model:  sdktest.Script(sdktest.Ask(sdktest.Tool(c.tool, map[string]int{"n": 1})), sdktest.Say("done")),
			})
			r := h.Run("desk", hello())
			decide := c.decided(h)
			set.away.Store(true)
			h.Restart()
			taken := heldBackOrDone(t, h)
			decide()
			<-taken
			set.away.Store(false)
			wantResponse(t, h.Done(r), "done")
			if got := h.Messages(r)[2].Content[0]; got.IsError || got.Text != c.result {
				t.Errorf("the call's result is %+v, want %s", got, c.result)
			}
			sound(t, h.Conn(), natsStore(h.Conn()))
		})
	}
}

// heldBackOrDone returns what is sent something when a worker gives a message back to the broker, or when a run is done.
func heldBackOrDone(t *testing.T, h *harness.Harness) <-chan *nats.Msg {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(h))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	messages := make(chan *nats.Msg, 64)
	for _, subject := range []string{"$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED.>", h.Conn().Subjects().All(wire.KindDone)} {
		if _, err := nc.ChanSubscribe(subject, messages); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return messages
}

// till is a toolset whose tool pay pays, and which has the tool refund unless that was taken from it.
type till struct {
	changed chan struct{}
	gone    atomic.Bool
	early   atomic.Bool // pay was called while there were no refunds
}

func (*till) Name() string { return "till" }

func (s *till) Changed() <-chan struct{} { return s.changed }

func (s *till) Tools(context.Context) ([]sdk.Tool, error) {
	pay := func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
		if s.gone.Load() {
			s.early.Store(true)
		}
		return json.RawMessage(`{"paid":true}`), nil
	}
	tools := []sdk.Tool{{Definition: sdk.ToolDefinition{Name: "pay"}, Run: pay}}
	if !s.gone.Load() {
		tools = append(tools, sdk.Tool{Definition: sdk.ToolDefinition{Name: "refund"}, Run: pay})
	}
	return tools, nil
}

func (*till) Close() error { return nil }

// What a policy says of a tool that its toolset does not have is not passed over: the agent cannot be loaded, and one that is served
// waits for the toolset to be put right.
func TestToolset_WithoutAToolThatThePolicyNamesKeepsItsAgentBack(t *testing.T) {
	t.Parallel()
	set, spec := &till{changed: make(chan struct{})}, desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{}, "till_refund")
	agents := []sdk.Agent{{Spec: spec, Toolsets: []sdk.Toolset{set}}}
	h := harness.Start(t, harness.Options{
		Agents: agents,
		Model: sdktest.Script(
			sdktest.Ask(sdktest.Tool("till_pay", map[string]int{"n": 1})), sdktest.Ask(sdktest.Tool("till_refund", map[string]int{"n": 1})),
			sdktest.Say("done"),
		),
	})
	set.gone.Store(true)
	set.changed <- struct{}{}
	set.changed <- struct{}{} // the worker has listed its tools before it takes another change
	r := h.Run("desk", hello())
	set.gone.Store(false)
	set.changed <- struct{}{}
	decide(h.Call(sdk.TypePermissionRequest), sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	wantResponse(t, h.Done(r), "done")
	if set.early.Load() {
		t.Error("the agent was served under a policy that names a tool which there is not")
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}
