package seeds_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// allGates is row F56: hooks judge calls before they are made, and again when people have allowed them.
func allGates(t *testing.T) {
	t.Run("made", hookGates)
	t.Run("held", heldGates)
}

// heldGates lets people allow calls of services that hooks judge differently by then: the strictest still counts, and nothing
// that is blocked is sent.
func heldGates(t *testing.T) {
	a := desk(service("shop.buy"))
	var closed atomic.Bool
	a.Hooks.Phases = []sdk.Hook{{Name: "guard", BeforeToolExecute: func(_ context.Context, c sdk.ToolAttempt) (sdk.Gate, error) {
		switch {
		case !c.Resumed:
			return sdk.Gate{Verdict: sdk.GateSuspend, Reason: "dear"}, nil
		case closed.Load():
			return sdk.Gate{Verdict: sdk.GateBlock, Reason: "closed by now"}, nil
		}
		return sdk.Gate{}, nil
	}}}
	model := sdktest.Script(sdktest.Ask(sdktest.Tool("shop_buy", n(1)), sdktest.Tool("shop_buy", n(2))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	first, second := request(t, h), request(t, h)
	decide(first, allow)
	made := h.Call("shop.buy")
	closed.Store(true)
	h.Restart()
	decide(second, allow)
	made.Answer(done("shop.buy"), value("bought"))
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.buy")
	var bought, blocked int
	for _, told := range results(t, h.Messages(r), 2) {
		switch {
		case !told.IsError:
			bought++
		case problem(t, told).Code == sdk.CodeBlocked && strings.Contains(told.Text, "closed by now"):
			blocked++
		}
	}
	equal(t, "bought and blocked", []int{bought, blocked}, []int{1, 1})
}
