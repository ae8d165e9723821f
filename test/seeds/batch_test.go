package seeds_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// batched is a desk whose policy asks with one request for the calls of shop.find, note and shop.buy; those of shop.book are asked for in
// another domain.
func batched(terms sdk.PermissionPolicyTerms) sdk.Agent {
	terms.Batch = true
	finance := terms
	finance.Domain = "finance"
	a := desk(service("shop.find"), service("shop.buy"), service("shop.book"))
	a.Tools = []sdk.Tool{echo("note")}
	a.Spec.Permissions = &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{
			{Tools: []string{"shop_find", "note"}, Verdict: sdk.PermissionAsk, Risk: "low"},
			{Tools: []string{"shop_buy"}, Verdict: sdk.PermissionAsk, Reason: "it costs money"},
			{Tools: []string{"shop_book"}, Verdict: sdk.PermissionAsk, Terms: &finance},
		},
		Terms: terms,
	}
	return a
}

// askedFor are the calls that a request asks for, by their tools.
func askedFor(t *testing.T, c *harness.Call) (asked sdk.PermissionRequest, calls map[string]sdk.PermissionCall) {
	t.Helper()
	if err := json.Unmarshal(c.Event.Data, &asked); err != nil {
		t.Fatal(err)
	}
	calls = map[string]sdk.PermissionCall{}
	for _, one := range asked.Calls {
		calls[one.Tool] = one
	}
	return asked, calls
}

// refusals are the reasons for which the journal refuses decisions.
func refusals(s core.State) int {
	n := 0
	for _, c := range s.Calls {
		if c.Permission != nil {
			n += c.Permission.Refusals
		}
	}
	return n
}

// requestForAll is row A34: one request asks for all blocked calls of a round, for those that other people decide on another one. A
// decision names the calls that it is on, with the hash of the arguments of each; the request stays open for the others.
func requestForAll(t *testing.T) {
	h := start(t, sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_book", n(2)), sdktest.Tool("note", n(3)), sdktest.Tool("shop_buy", n(4)),
	), sdktest.Say("done")), batched(sdk.PermissionPolicyTerms{}))
	r := h.Run("desk", message("hello"))
	ask, other := request(t, h), request(t, h)
	if ask.Event.Domain != "human.interaction" {
		ask, other = other, ask
	}
	h.NoCall("agentd.permission.request")
	equal(t, "domains", []string{ask.Event.Domain, other.Event.Domain}, []string{"human.interaction", "finance"})
	equal(t, "version", ask.Event.DataSchema, "agentd:/agentd/permission/request/1.1.0")
	asked, calls := askedFor(t, ask)
	var shown []string
	for _, c := range asked.Calls {
		shown = append(shown, strings.Join([]string{c.Tool, string(c.Args), c.ArgsHash[:8], c.Risk, c.Reason, c.Call[:5]}, " "))
	}
	equal(t, "calls that are asked for", shown, []string{
		`shop_find {"n":1} 2bfd14f4 low  c1-0-`, `note {"n":3} 215ddd55 low  c1-2-`, `shop_buy {"n":4} f3e0792e  it costs money c1-3-`,
	})
	for _, member := range []string{"call", "tool", "args", "reason", "rule", "labels"} {
		if value, there := ask.Data()[member]; there {
			t.Errorf("the request has the %s %v of one call", member, value)
		}
	}

	find, buy := calls["shop_find"], calls["shop_buy"]
	try := func(id string, d sdk.PermissionDecision) {
		t.Helper()
		before := refusals(h.State(r))
		ev := ask.Response("agentd.permission.decided", d)
		ev.ID = id
		h.PublishAgain(ask, ev)
		h.Until(r, "the refusal of "+id, func(s core.State) bool { return refusals(s) == before+1 })
	}
	named := func(call, hash string) []sdk.CallDecision { return []sdk.CallDecision{{Call: call, ArgsHash: hash}} }
	try("nothing named", sdk.PermissionDecision{Decision: "allow", ArgsHash: asked.ArgsHash})
	try("other arguments", sdk.PermissionDecision{Decision: "allow", Calls: named(find.Call, buy.ArgsHash)})
	try("all of others", sdk.PermissionDecision{Decision: "allow", All: true, ArgsHash: find.ArgsHash})
	try("another's call", sdk.PermissionDecision{Decision: "allow", Calls: named("c1-1-aaaaaaaaaaaaaaaaaaaaaaaaaa", find.ArgsHash)})
	try("twice", sdk.PermissionDecision{Decision: "allow", Calls: append(named(find.Call, find.ArgsHash), named(find.Call, find.ArgsHash)...)})
	h.NoCall("shop.find")

	one := ask.Response("agentd.permission.decided", sdk.PermissionDecision{Decision: "allow", Calls: named(find.Call, find.ArgsHash)})
	one.ID = "one"
	h.PublishAgain(ask, one)
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	h.Until(r, "waiting for the others", func(s core.State) bool { return s.Status == "waiting" && s.Calls[0].Closed() })
	equal(t, "voids while calls are open", voids(h.Parts(r)), 0)
	h.Restart()
	rest := ask.Response("agentd.permission.decided", sdk.PermissionDecision{
		Decision: "allow", Reason: "fine", Calls: []sdk.CallDecision{
			{Call: calls["note"].Call, ArgsHash: calls["note"].ArgsHash, Args: json.RawMessage(`{"n":30}`)},
			{Call: buy.Call, ArgsHash: buy.ArgsHash, Decision: "deny", Reason: "too dear"},
		},
	})
	rest.ID = "rest"
	h.PublishAgain(ask, rest)
	_, booking := askedFor(t, other)
	other.Answer("agentd.permission.decided", sdk.PermissionDecision{
		Decision: "deny", Calls: named(booking["shop_book"].Call, booking["shop_book"].ArgsHash), Reason: "not now",
	})
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.buy")
	var told []string
	for _, c := range results(t, h.Messages(r), 4) {
		told = append(told, c.Text)
	}
	equal(t, "results", told, []string{
		`{"value":"found"}`, `{"error":{"code":"permission_denied","message":"shop_book is not allowed: not now"}}`,
		`{"n":30}`, `{"error":{"code":"permission_denied","message":"shop_buy is not allowed: too dear"}}`,
	})
	together := 0
	for _, e := range h.Parts(r) {
		counted := slices.DeleteFunc(slices.Clone(e.Decisions), func(d core.Decision) bool { return d.Refused != "" })
		together = max(together, len(counted))
	}
	equal(t, "decisions that are stored together", together, 2)
	requestGoesOn(t)
}

// voids are how often entries say that nobody waits any more for an answer to a permission request.
func voids(entries []core.Entry) int {
	n := 0
	for _, e := range entries {
		for _, f := range e.Effects {
			if f.Kind == "void" && f.Type == "agentd.permission.request" {
				n++
			}
		}
	}
	return n
}

// requestGoesOn: when nobody has decided in time, one event asks the next domain, and each call needs as many people as one alone.
func requestGoesOn(t *testing.T) {
	a := batched(sdk.PermissionPolicyTerms{
		TimeoutMillis: 50, Escalate: []sdk.PermissionStage{{Domain: "the.boss", TimeoutMillis: 3_600_000}}, Quorum: 2, FourEyes: true,
	})
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{a}, Identity: true, Model: sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_buy", n(2)), sdktest.Tool("note", n(3))), sdktest.Say("done"))})
	r := h.SendAs("anna", "desk", h.Init("desk", message("hello")))
	first, boss := request(t, h), request(t, h)
	equal(t, "where it goes", []string{boss.Event.Domain, boss.Event.ID}, []string{"the.boss", first.Event.ID + "-r2"})
	h.Void("agentd.permission.request")
	asked, calls := askedFor(t, boss)
	equal(t, "calls, and the stage", []int{len(asked.Calls), asked.Stage}, []int{3, 1})
	decides := func(who string, d sdk.PermissionDecision) {
		ev := boss.Response("agentd.permission.decided", d)
		ev.ID = "of-" + who
		h.PublishAs(who, boss, ev)
	}
	all := sdk.PermissionDecision{Decision: "allow", All: true, ArgsHash: asked.ArgsHash}
	decides("anna", all)
	h.Until(r, "anna, who started the run, may not", func(s core.State) bool { return refusals(s) == 3 })
	decides("bob", all)
	h.Until(r, "one of two", func(s core.State) bool { return len(s.Calls) == 6 && len(s.Calls[5].Permission.Allowed) == 1 })
	h.NoCall("shop.find")
	find := calls["shop_find"]
	decides("cleo", sdk.PermissionDecision{Decision: "allow", Calls: []sdk.CallDecision{{Call: find.Call, ArgsHash: find.ArgsHash}}})
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	h.Until(r, "waiting for the others", func(s core.State) bool { return s.Status == "waiting" && s.Calls[0].Closed() })
	decides("dora", all)
	h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "voids, one of each event", voids(h.Parts(r)), 2)
}

// batchOfApprovals is row B10: what a decision allows for the rest of the run is kept for all its tools in one entry, and looked up when
// they are called again: nobody is asked.
func batchOfApprovals(t *testing.T) {
	a := batched(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{"call", "run+tool"}})
	round := sdktest.Ask(sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("shop_buy", n(3)))
	h := start(t, sdktest.Script(round, round, sdktest.Say("done")), a)
	r := h.Run("desk", message("hello"))
	ask := request(t, h)
	asked, _ := askedFor(t, ask)
	ask.Answer("agentd.permission.decided", sdk.PermissionDecision{Decision: "allow", Scope: "run+tool", All: true, ArgsHash: asked.ArgsHash, Uses: 2})
	serve := func() {
		for range 2 {
			h.Call("shop.find").Answer("shop.find.done", value("found"))
		}
		h.Call("shop.buy").Answer("shop.buy.done", value("bought"))
	}
	serve()
	h.Restart()
	serve()
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("agentd.permission.request")
	var kept, left []string
	for _, e := range h.Parts(r) {
		if e.Kind == "answered" && len(e.Decisions) == 3 {
			kept = grantsOf(e)
		}
		if e.Kind == "replied" && e.Head.Round == 2 && len(e.Head.Calls) > 0 {
			left = grantsOf(e)
		}
	}
	equal(t, "what one entry keeps", kept, []string{"shop_find 2", "shop_buy 2"})
	equal(t, "what is left after the second round", left, []string{"shop_buy 1"})

	retried(t)
}

func grantsOf(e core.Entry) []string {
	var grants []string
	for _, g := range e.Head.Grants {
		grants = append(grants, strings.Join([]string{g.Tool, string(rune('0' + g.Uses))}, " "))
	}
	return grants
}

// retried: in the mode retry the model is told of each call of the batch, and what was allowed is not asked for again.
func retried(t *testing.T) {
	a := batched(sdk.PermissionPolicyTerms{Mode: sdk.PermissionRetry})
	ran := make(chan struct{}, 2)
	a.Tools = []sdk.Tool{internal("note", func(context.Context, sdk.ToolCall) ([]byte, error) {
		ran <- struct{}{}
		return []byte(`{}`), nil
	})}
	round := sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(2)))
	model := sdktest.Script(round, round, sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	ask := request(t, h)
	asked, _ := askedFor(t, ask)
	equal(t, "calls", len(asked.Calls), 2)
	ask.Answer("agentd.permission.decided", sdk.PermissionDecision{Decision: "allow", All: true, ArgsHash: asked.ArgsHash})
	<-ran
	h.Call("shop.find").Answer("shop.find.done", value("found"))
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("agentd.permission.request")
	var texts int
	for _, m := range model.Requests()[1].Messages {
		if strings.Contains(m.PlainText(), "You may call the tool now") {
			texts++
		}
	}
	equal(t, "decisions that the model is told", texts, 2)
}
