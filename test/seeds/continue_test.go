package seeds_test

import (
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// continuesWithAny is row T18: a round with any result that is not suspended goes back to the loop's top, where the agent wants that; the
// calls that are open stay so, and their results come later, once each. A text while calls are open is not the end. Other agents wait.
func continuesWithAny(t *testing.T) {
	script := func() *sdktest.Model {
		return sdktest.Script(
			sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_buy", n(2)), sdktest.Tool("pay", n(3))),
			sdktest.Ask(sdktest.Tool("note", n(4)), sdktest.Tool("shop_buy", n(2))),
			sdktest.Say("I wait for the shop"), sdktest.Say("paid, so I wait for the shop"), sdktest.Say("done"))
	}
	agent := func(policy sdk.ContinuePolicy) sdk.Agent {
		a := gated(asks(sdk.PermissionHold, "pay"), service("shop.find"), service("shop.buy"))
		a.Spec.Continue = policy
		a.Tools = []sdk.Tool{echo("note"), echo("pay")}
		return a
	}

	model := script()
	h := start(t, model, agent(sdk.ContinueAny))
	r := h.Run("desk", message("hello"))
	h.Suspended(r, 4)
	equal(t, "model calls while all calls of the round are suspended", len(model.Requests()), 1)
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	h.Until(r, "the model has said that it waits", func(s core.State) bool { return s.Turns == 3 && s.Status == core.StatusWaiting })
	equal(t, "what the model sees of the round", shownOf(model.Requests()[1]), []string{
		"shop_find succeeded", "shop_buy pending", "pay pending",
	})
	equal(t, "the same call is not made again", shownOf(model.Requests()[2])[3:], []string{"note succeeded", "shop_buy failed"})
	h.Restart()

	decide(request(t, h), allow)
	h.Until(r, "the call that was allowed is told", func(s core.State) bool { return s.Turns == 4 && s.Status == core.StatusWaiting })
	buy := h.Call("shop.buy")
	buy.Answer("shop.buy.done", value("bought"))
	buy.Answer("shop.buy.done", value("bought"))
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.buy")
	shown := shownOf(model.Requests()[4])
	equal(t, "results that came late are told once, as they came", shown, []string{
		"shop_find succeeded", "shop_buy pending", "pay pending", "note succeeded", "shop_buy failed", "pay told: {\"n\":3}", "shop_buy told: {\"value\":\"bought\"}",
	})
	equal(t, "the run ends with nothing open", len(h.State(r).Calls), 0)
	ends := h.Parts(r)
	equal(t, "entries", kinds(ends), []string{
		"started", "replied", "answered", "replied", "returned", "replied", "answered", "returned", "reviewed", "replied", "answered", "reviewed", "replied",
	})
	equal(t, "layout", ends[1].V, 6)

	model = script()
	h = start(t, model, agent(sdk.ContinueAll))
	r = h.Run("desk", message("hello"))
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	h.Until(r, "the answer is in", func(s core.State) bool { return s.Status == core.StatusWaiting && s.Calls[0].Closed() })
	equal(t, "model calls while any call is open", len(model.Requests()), 1)
}

// shownOf is what a model is shown of its calls, in order.
func shownOf(req sdk.ModelRequest) []string {
	var shown []string
	for _, m := range req.Messages {
		for _, c := range m.Content {
			switch {
			case c.Kind == sdk.ContentToolResult && c.Pending:
				shown = append(shown, c.Tool+" pending")
			case c.Kind == sdk.ContentToolResult && c.IsError:
				shown = append(shown, c.Tool+" failed")
			case c.Kind == sdk.ContentToolResult:
				shown = append(shown, c.Tool+" succeeded")
			case c.Pending:
				shown = append(shown, c.Tool+" told: "+c.Text)
			}
		}
	}
	return shown
}
