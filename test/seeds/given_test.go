package seeds_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// threeResumeModes is row T47: a held call is made as it was asked for, or with the arguments of the decision; or the decision is its
// result, and it is not made.
func threeResumeModes(t *testing.T) {
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	a.Spec.Permissions = &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{{Tools: []string{"shop_find", "note"}, Verdict: "ask"}},
		Terms: sdk.PermissionPolicyTerms{Results: true},
	}
	h := start(t, sdktest.Script(sdktest.Ask(
		sdktest.Tool("shop_find", n(1)), sdktest.Tool("shop_find", n(2)), sdktest.Tool("shop_find", n(3)), sdktest.Tool("note", n(4)),
	), sdktest.Say("done")), a)
	r, l := heardRun(t, h)
	asked := requests(t, h, 4)
	for _, c := range asked {
		equal(t, "version and offer", []any{c.Event.DataSchema, c.Data()["results"]}, []any{"agentd:/agentd/permission/request/1.1.0", true})
	}
	serve := func(want string) {
		t.Helper()
		call := h.Call("shop.find")
		equalJSON(t, "arguments", call.Event.Data, want)
		call.Answer("shop.find.done", value("it"))
	}
	decide(asked["1"], allow)
	serve(`{"n": 1}`)
	decide(asked["2"], sdk.PermissionDecision{Decision: "allow", Args: json.RawMessage(`{"n":20}`)})
	serve(`{"n": 20}`)
	h.Restart()
	give := sdk.PermissionDecision{Decision: "result", Result: json.RawMessage(`{ "value": "by hand" }`), ArgsHash: fmt.Sprint(asked["3"].Data()["args_sha256"])}
	h.PublishAs("ann", asked["3"], asked["3"].Response("agentd.permission.decided", give))
	decide(asked["4"], sdk.PermissionDecision{Decision: "result", Result: json.RawMessage(`{"n":0}`)})
	succeeds(t, h, r, `{"response": "done"}`)
	h.NoCall("shop.find")
	var told []string
	for _, c := range results(t, h.Messages(r), 4) {
		told = append(told, fmt.Sprint(c.Text, " ", c.IsError))
	}
	equal(t, "results that the model is told", told, []string{
		`{"value":"it"} false`, `{"value":"it"} false`, `{"value":"by hand"} false`, `{"n":0} false`,
	})
	l.await(t, "run.finished", 1)
	var given []string
	for _, e := range h.Parts(r) {
		for _, result := range e.Results {
			if result.Kind == "given" {
				given = append(given, result.Who+" "+string(result.Data))
			}
		}
	}
	slices.Sort(given)
	equal(t, "who gave which result", given, []string{` {"n":0}`, `ann {"value":"by hand"}`})
	ordered(t, strings.Join(l.heard("permission.decided"), "\n"), `"decision":"result"`, `"who":"ann"`)

	refusedResults(t)
}

// refusedResults are those that nobody was asked for, or that are none.
func refusedResults(t *testing.T) {
	for _, try := range []struct {
		why    string
		terms  sdk.PermissionPolicyTerms
		result string
		scope  sdk.GrantScope
	}{
		{why: "the request does not offer", result: `{"n":0}`},
		{why: "not offer", terms: sdk.PermissionPolicyTerms{Results: true, Mode: "retry"}, result: `{"n":0}`},
		{why: "a result is that of this one call", terms: sdk.PermissionPolicyTerms{
			Results: true, Scopes: []sdk.GrantScope{"call", "run+tool"},
		}, result: `{"n":0}`, scope: "run+tool"},
		{why: "the result cannot be read", terms: sdk.PermissionPolicyTerms{Results: true}},
	} {
		a := desk()
		a.Tools = []sdk.Tool{echo("note")}
		a.Spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{{Verdict: "ask"}}, Terms: try.terms}
		h := start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("note", n(1))), sdktest.Say("done")), a)
		r := h.Run("desk", message("hello"))
		c := request(t, h)
		d := sdk.PermissionDecision{Decision: "result", Scope: try.scope}
		if try.result != "" {
			d.Result = json.RawMessage(try.result)
		}
		decide(c, d)
		if !try.terms.Results || try.terms.Mode == "retry" { // such requests are of version 1.0.0, which knows no such decision
			equal(t, "dead letter", h.DeadLetter().Reason, "contract_violation")
			equal(t, "version", c.Event.DataSchema, "agentd:/agentd/permission/request/1.0.0")
			continue
		}
		var reason string
		h.Until(r, "refused", func(core.State) bool {
			for _, e := range h.Parts(r) {
				for _, d := range e.Decisions {
					reason = d.Refused
				}
			}
			return reason != ""
		})
		ordered(t, reason, try.why)
	}
}
