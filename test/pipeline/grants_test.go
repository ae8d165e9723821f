package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentd/internal/broker/buckets"
	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// heavier asks for small sums under the terms, and for large ones under those of the other.
func heavier(small, large sdk.PermissionPolicyTerms) *sdk.PermissionPolicy {
	return &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{
			{Name: "large", Tools: []string{"calc_add"}, When: "args.a >= 1000.0", Verdict: sdk.PermissionAsk, Terms: &large},
			{Name: "small", Tools: []string{"calc_add"}, Verdict: sdk.PermissionAsk, Terms: &small},
		},
	}
}

// first is the first argument that a request shows.
func first(c *harness.Call) float64 {
	args, _ := c.Data()["args"].(map[string]any)
	a, _ := args["a"].(float64)
	return a
}

// Somebody allows all further calls of a tool on a request under light terms. A call that another rule asks for, under terms
// that this does not satisfy, is asked for all the same.
func TestGrant_CoversNoCallUnderHeavierTerms(t *testing.T) {
	t.Parallel()
	for scope, terms := range map[sdk.GrantScope]map[string]sdk.PermissionPolicyTerms{
		sdk.ScopeTool: {
			"scope":     {Scopes: []sdk.GrantScope{sdk.ScopeCall}},
			"quorum":    {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}, Quorum: 2},
			"approvers": {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}, Approvers: []string{"the-boss"}},
			"four eyes": {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}, FourEyes: true},
			"domain":    {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}, Domain: "finance"},
		},
		sdk.ScopePrincipal: {
			"scope":  {Scopes: []sdk.GrantScope{sdk.ScopeCall}},
			"quorum": {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopePrincipal}, Quorum: 2},
			"domain": {Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopePrincipal}, Domain: "finance"},
		},
	} {
		for what, large := range terms {
			t.Run(fmt.Sprint(scope, " ", what), func(t *testing.T) {
				t.Parallel()
				spec := desk()
				spec.Permissions = heavier(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, scope}}, large)
				h := harness.Start(t, harness.Options{
					Agents: []sdk.Agent{{Spec: spec}}, Identity: true,
					Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Ask(add(2, 3)), sdktest.Ask(add(1000, 1)), sdktest.Say("done")),
				})
				r := h.SendAs("anna", "desk", h.Init("desk", hello()))
				request := h.Call(sdk.TypePermissionRequest)
				d := sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: scope}
				d.ArgsHash, _ = request.Data()["args_sha256"].(string)
				h.PublishAs("anna", request, request.Response(sdk.TypePermissionDecided, d))
				h.Call("calc.add").Answer("calc.added", sum(3))
				h.Call("calc.add").Answer("calc.added", sum(5)) // covered
				request = h.Call(sdk.TypePermissionRequest)
				if first(request) != 1000 {
					t.Errorf("asked for %s", request.Event.Data)
				}
				h.NoCall("calc.add")
				d = sdk.PermissionDecision{Decision: sdk.DecisionDeny, ArgsHash: request.Data()["args_sha256"].(string)}
				h.PublishAs("the-boss", request, request.Response(sdk.TypePermissionDecided, d))
				wantResponse(t, h.Done(r), "done")
				sound(t, h.Conn(), natsStore(h.Conn()))
			})
		}
	}
}

// Somebody allows all further calls of a tool while another domain is asked about one of them: it is not theirs to release.
func TestGrant_ReleasesNoCallThatAnotherDomainDecides(t *testing.T) {
	t.Parallel()
	for _, scope := range []sdk.GrantScope{sdk.ScopeTool, sdk.ScopePrincipal} {
		t.Run(string(scope), func(t *testing.T) {
			t.Parallel()
			scopes := []sdk.GrantScope{sdk.ScopeCall, scope}
			spec := desk()
			spec.Permissions = heavier(sdk.PermissionPolicyTerms{Scopes: scopes}, sdk.PermissionPolicyTerms{Scopes: scopes, Domain: "finance"})
			h := harness.Start(t, harness.Options{
				Agents: []sdk.Agent{{Spec: spec}}, Identity: true,
				Model: sdktest.Script(sdktest.Ask(add(1, 2), add(1000, 1)), sdktest.Say("done")),
			})
			r := h.SendAs("shop", "desk", h.Init("desk", hello()))
			requests := map[float64]*harness.Call{}
			for range 2 {
				c := h.Call(sdk.TypePermissionRequest)
				requests[first(c)] = c
			}
			small, large := requests[1], requests[1000]
			if large.Event.Domain != "finance" {
				t.Fatalf("asked %s about the large sum", large.Event.Domain)
			}
			d := sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: scope, ArgsHash: small.Data()["args_sha256"].(string)}
			h.PublishAs("anna", small, small.Response(sdk.TypePermissionDecided, d))
			call := h.Call("calc.add")
			if string(call.Event.Data) != `{"a":1,"b":2}` {
				t.Errorf("the call carries %s", call.Event.Data)
			}
			call.Answer("calc.added", sum(3))
			h.NoCall("calc.add")
			d = sdk.PermissionDecision{Decision: sdk.DecisionDeny, ArgsHash: large.Data()["args_sha256"].(string)}
			h.PublishAs("fred", large, large.Response(sdk.TypePermissionDecided, d))
			wantResponse(t, h.Done(r), "done")
			h.NoCall("calc.add")
			sound(t, h.Conn(), natsStore(h.Conn()))
		})
	}
}

// What people deny for the rest of a run is not made either where it was allowed before, and waits for its turn.
func TestGrant_IsNoneForACallThatWasDeniedWhileItWaitedForItsTurn(t *testing.T) {
	t.Parallel()
	for _, allowed := range []sdk.PermissionDecision{{Scope: sdk.ScopeToolPattern, Pattern: "args.a == 1.0"}, {Scope: sdk.ScopePrincipal}} {
		t.Run(string(allowed.Scope), func(t *testing.T) {
			t.Parallel()
			spec := desk()
			spec.Order = sdk.CallsSequential
			scopes := []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool, allowed.Scope}
			spec.Permissions = heavier(sdk.PermissionPolicyTerms{Scopes: scopes}, sdk.PermissionPolicyTerms{Scopes: scopes, Approvers: []string{"fred"}})
			model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Ask(add(1, 3), add(1000, 1), add(1, 4)), sdktest.Say("done"))
			h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Identity: true, Model: model})
			r := h.SendAs("shop", "desk", h.Init("desk", hello()))
			request := h.Call(sdk.TypePermissionRequest)
			d := allowed
			d.Decision, d.ArgsHash = sdk.DecisionAllow, request.Data()["args_sha256"].(string)
			h.PublishAs("anna", request, request.Response(sdk.TypePermissionDecided, d))
			h.Call("calc.add").Answer("calc.added", sum(3))
			made := h.Call("calc.add")
			request = h.Call(sdk.TypePermissionRequest)
			d = sdk.PermissionDecision{Decision: sdk.DecisionDeny, Scope: sdk.ScopeTool, Reason: "no more of these", ArgsHash: request.Data()["args_sha256"].(string)}
			h.PublishAs("fred", request, request.Response(sdk.TypePermissionDecided, d))
			h.Until(r, "the denial is there", func(s core.State) bool {
				return slices.ContainsFunc(s.Grants, func(g core.Grant) bool { return g.Deny })
			})
			made.Answer("calc.added", sum(4))
			wantResponse(t, h.Done(r), "done")
			h.NoCall("calc.add")
			requests := model.Requests()
			if last := fmt.Sprint(requests[len(requests)-1].Messages); strings.Count(last, "no more of these") != 2 {
				t.Errorf("the model is told %s", last)
			}
			sound(t, h.Conn(), natsStore(h.Conn()))
		})
	}
}

// A model cannot write arguments over which the pattern of a denial says nothing: the doubt goes against the call, and not against the denial.
func TestGrant_ADenialCoversWhatItsPatternCannotJudge(t *testing.T) {
	t.Parallel()
	scopes := []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool, sdk.ScopeToolPattern}
	spec := desk()
	spec.Permissions = heavier(sdk.PermissionPolicyTerms{Scopes: scopes}, sdk.PermissionPolicyTerms{Scopes: scopes, Approvers: []string{"fred"}})
	adding := func(b int, names ...string) sdk.ToolRequest {
		return sdktest.Tool("calc_add", map[string]any{"a": 1, "b": b, "names": names})
	}
	model := sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Ask(add(1000, 1)), sdktest.Ask(
		add(1, 3), adding(4, "mallory"), adding(5, append(slices.Repeat([]string{"x"}, 30_000), "mallory")...), adding(6, "bob"),
	), sdktest.Say("done"))
	h := harness.Start(t, harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Identity: true, Model: model})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	said := func(who string, d sdk.PermissionDecision) {
		t.Helper()
		request := h.Call(sdk.TypePermissionRequest)
		d.ArgsHash, _ = request.Data()["args_sha256"].(string)
		h.PublishAs(who, request, request.Response(sdk.TypePermissionDecided, d))
	}
	said("anna", sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool})
	h.Call("calc.add").Answer("calc.added", sum(3))
	said("fred", sdk.PermissionDecision{
		Decision: sdk.DecisionDeny, Scope: sdk.ScopeToolPattern, Pattern: `args.names.exists(n, n == "mallory")`, Reason: "nothing for mallory",
	})
	call := h.Call("calc.add")
	if want := `{"a":1,"b":6,"names":["bob"]}`; string(call.Event.Data) != want {
		t.Errorf("the call carries %.80s, want %s", call.Event.Data, want)
	}
	call.Answer("calc.added", sum(7))
	wantResponse(t, h.Done(r), "done")
	h.NoCall("calc.add")
	requests := model.Requests()
	if last := fmt.Sprint(requests[len(requests)-1].Messages); strings.Count(last, "nothing for mallory") != 4 { // with the call that was denied itself
		t.Errorf("the model is told %d times that it is denied", strings.Count(last, "nothing for mallory"))
	}
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// What people deny for the rest of a run is not made where the policy would not have asked either: not later, and not after its turn has come.
func TestGrant_ADenialHoldsForWhatThePolicyAllows(t *testing.T) {
	t.Parallel()
	for order, want := range map[sdk.CallOrder]int{sdk.CallsParallel: 1, sdk.CallsSequential: 2} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			spec := desk()
			spec.Order = order
			spec.Permissions = &sdk.PermissionPolicy{
				Terms: sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}},
				Rules: []sdk.PermissionRule{{Tools: []string{"calc_add"}, When: "args.a >= 1000.0", Verdict: sdk.PermissionAsk}},
			}
			model := sdktest.Script(sdktest.Ask(add(1, 2), add(1000, 1), add(1, 3)), sdktest.Ask(add(1, 4)), sdktest.Say("done"))
			h := start(t, spec, model)
			r := h.Run("desk", hello())
			request := h.Call(sdk.TypePermissionRequest)
			calls := []*harness.Call{h.Call("calc.add")}
			if order == sdk.CallsParallel {
				calls = append(calls, h.Call("calc.add"))
			}
			decide(request, sdk.PermissionDecision{Decision: sdk.DecisionDeny, Scope: sdk.ScopeTool, Reason: "no more of these"})
			h.Until(r, "the denial is there", func(s core.State) bool { return len(s.Grants) == 1 })
			for _, call := range calls {
				call.Answer("calc.added", sum(3))
			}
			wantResponse(t, h.Done(r), "done")
			h.NoCall("calc.add")
			requests := model.Requests()
			last := fmt.Sprint(requests[len(requests)-1].Messages)
			if n := strings.Count(last, "no more of these"); n != want+1 { // with the call that was denied itself
				t.Errorf("the model is told %d times that it is denied, want %d: %s", n, want+1, last)
			}
			sound(t, h.Conn(), natsStore(h.Conn()))
		})
	}
}

// What a domain allowed to which a request was escalated covers calls whose request would take the same way.
func TestGrant_OfALaterStageCoversWhatIsEscalatedTheSameWay(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{
		Mode: sdk.PermissionRetry, TimeoutMillis: 50, Escalate: []sdk.PermissionStage{{Domain: "the.boss", TimeoutMillis: 3_600_000}},
	}, "calc_add")
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Ask(add(1, 2)), sdktest.Say("done")))
	r := h.Run("desk", hello())
	h.Call(sdk.TypePermissionRequest)
	request := h.Call(sdk.TypePermissionRequest)
	if request.Event.Domain != "the.boss" {
		t.Fatalf("asked %s", request.Event.Domain)
	}
	decide(request, sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// A grant that an older version stored says nothing of the domain that decided: it covers nothing.
func TestGrant_WithoutItsDomainsCoversNothing(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopePrincipal}}, "calc_add")
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Identity: true, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	old := sdk.GrantRecord{
		ID: "c1-0-old", Agent: "desk", Principal: "shop", Tool: "calc_add", Scope: sdk.ScopePrincipal, By: []string{"anna"}, At: 1, Run: "old",
	}
	if err := buckets.GrantsOf(h.Conn()).Record(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	request := h.Call(sdk.TypePermissionRequest)
	h.NoCall("calc.add")
	d := sdk.PermissionDecision{Decision: sdk.DecisionDeny, ArgsHash: request.Data()["args_sha256"].(string)}
	h.PublishAs("anna", request, request.Response(sdk.TypePermissionDecided, d))
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// Calls that are held beside the one that somebody allows for more are uses of what they allow: a bound holds for them too.
func TestGrant_LetsNoMoreHeldCallsGoThanItHasUses(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}}, "calc_add")
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 1), add(2, 1), add(3, 1)), sdktest.Ask(add(4, 1)), sdktest.Say("done")))
	r := h.Run("desk", hello())
	requests := map[float64]*harness.Call{}
	for range 3 {
		c := h.Call(sdk.TypePermissionRequest)
		requests[first(c)] = c
	}
	decide(requests[1], sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool, Uses: 1})
	for range 2 { // its own call, and the one use
		call := h.Call("calc.add")
		var data struct{ A float64 }
		if err := json.Unmarshal(call.Event.Data, &data); err != nil || data.A > 2 {
			t.Errorf("the call carries %s: %v", call.Event.Data, err)
		}
		call.Answer("calc.added", sum(2))
	}
	h.Until(r, "both answers", func(s core.State) bool {
		open := 0
		for _, c := range s.Calls {
			if !c.Closed() {
				open++
			}
		}
		return s.Status == core.StatusWaiting && open == 2 // the third call, and its request
	})
	h.NoCall("calc.add")
	decide(requests[3], sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	decide(h.Call(sdk.TypePermissionRequest), sdk.PermissionDecision{Decision: sdk.DecisionDeny}) // nothing is left of the grant
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
}
