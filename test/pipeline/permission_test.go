package pipeline

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/signature"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// asking is the policy that asks for the tools, under terms.
func asking(terms sdk.PermissionPolicyTerms, tools ...string) *sdk.PermissionPolicy {
	return &sdk.PermissionPolicy{
		Rules: []sdk.PermissionRule{{Name: "ask", Tools: tools, Verdict: sdk.PermissionAsk, Reason: "it costs money"}}, Terms: terms,
	}
}

func decide(c *harness.Call, d sdk.PermissionDecision) {
	d.ArgsHash, _ = c.Data()["args_sha256"].(string)
	c.Answer(sdk.TypePermissionDecided, d)
}

// Two parallel calls need permission; the requests are answered in the other order, by different people, one with a denial.
func TestPermission_ParallelRequestsAreDecidedInAnyOrder(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{}, "calc_*")
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2), add(3, 4)), sdktest.Say("done")))
	r := h.Run("desk", hello())
	requests := map[float64]*harness.Call{}
	for range 2 {
		c := h.Call(sdk.TypePermissionRequest)
		args, _ := c.Data()["args"].(map[string]any)
		requests[args["a"].(float64)] = c
	}
	h.NoCall("calc.add")
	h.Restart()
	decide(requests[3], sdk.PermissionDecision{Decision: sdk.DecisionDeny, Reason: "too much"})
	decide(requests[1], sdk.PermissionDecision{Decision: sdk.DecisionAllow})
	call := h.Call("calc.add")
	if string(call.Event.Data) != `{"a":1,"b":2}` {
		t.Errorf("the call carries %s", call.Event.Data)
	}
	call.Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
	h.NoCall("calc.add")
	messages := h.Messages(r)
	if got := messages[2].Content[0].Text; got != `{"sum":3}` {
		t.Errorf("the allowed call's result is %s", got)
	}
	if denied := messages[3].Content[0]; !denied.IsError || !containsCode(denied.Text, sdk.CodePermissionDenied) {
		t.Errorf("the denied call's result is %s", denied.Text)
	}
}

// An error of whoever is asked ends the run: so nobody may report one who may not decide.
func TestPermission_NobodyElseEndsTheRunWithAnError(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{Approvers: []string{"anna"}}, "calc_add")
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")), Identity: true,
	})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	request := h.Call(sdk.TypePermissionRequest)
	broken := request.Response(wire.ErrorType(sdk.TypePermissionRequest), wire.Problem{ErrorName: "broken", ErrorMessage: "cannot decide"})
	broken.ID = "error-1"
	h.PublishAs("bob", request, broken)
	h.Until(r, "the refusal", func(s core.State) bool { return len(s.Calls) == 2 && s.Calls[1].Permission.Refusals == 1 })
	hash, _ := request.Data()["args_sha256"].(string)
	h.PublishAs("anna", request, request.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: hash}))
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

func TestPermission_ExpiryEscalatesThenDenies(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{
		TimeoutMillis: 50, Escalate: []sdk.PermissionStage{{Domain: "the.boss", TimeoutMillis: 50}},
	}, "calc_add")
	h := start(t, spec, sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("gave up")))
	r := h.Run("desk", hello())
	first := h.Call(sdk.TypePermissionRequest)
	second := h.Call(sdk.TypePermissionRequest)
	if first.Event.Domain != sdk.HumanDomain || second.Event.Domain != "the.boss" || second.Data()["stage"] != 1.0 {
		t.Errorf("asked %s, then %s at stage %v", first.Event.Domain, second.Event.Domain, second.Data()["stage"])
	}
	wantResponse(t, h.Done(r), "gave up")
	sound(t, h.Conn(), natsStore(h.Conn()))
	h.NoCall("calc.add")
}

// A run may put tools under permission that its agent's policy, or an agent without one, allows.
func TestPermission_RequiredByTheRun(t *testing.T) {
	t.Parallel()
	h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")))
	ev := h.Init("desk", hello())
	ev.Extensions = map[string]any{wire.RequirePermission: "calc_*"}
	r := h.Send("desk", ev)
	decide(h.Call(sdk.TypePermissionRequest), sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
	h.NoCall("calc.add")
}

// What a run puts under permission must be readable: a pattern that is not would ask for nothing.
func TestPermission_AnInitEventWithAMalformedPatternIsRefused(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]any{"pattern": "calc_sub, [calc_add", "no text": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := start(t, desk(), sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")))
			ev := h.Init("desk", hello())
			ev.Extensions = map[string]any{wire.RequirePermission: value}
			r := h.Send("desk", ev)
			terminal := h.Done(r)
			wantProblem(t, terminal, "desk", sdk.CodeInvalidEvent)
			if !strings.Contains(string(terminal.Data), "the attribute requirepermission") {
				t.Errorf("the client is told %s", terminal.Data)
			}
			h.NoCall("calc.add")
		})
	}
}

// The same of a hook that puts tools under permission.
func TestPermission_AHookWithAMalformedPatternEndsTheRun(t *testing.T) {
	t.Parallel()
	hook := func(context.Context, sdk.ContextInput) (sdk.Context, error) {
		return sdk.Context{Require: []string{"[calc_add"}}, nil
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk(), Hooks: sdk.Hooks{Context: hook}}},
		Model:  sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	wantProblem(t, h.Done(h.Run("desk", hello())), "desk", sdk.CodeConfig)
	h.NoCall("calc.add")
}

// Two must allow a call with signed decisions. Somebody who may decide, and has no key, publishes the decision of another once
// more under the own name, unchanged: it counts no second time. Nor may anybody but its owner publish what a bound key signed.
func TestPermission_ASignatureCountsOnce(t *testing.T) {
	t.Parallel()
	signer := func(seed string) (*signature.Signer, ed25519.PublicKey) {
		key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte(seed), ed25519.SeedSize))
		public, _ := key.Public().(ed25519.PublicKey)
		return signature.NewSigner(key), public
	}
	annas, anna := signer("a")
	carls, carl := signer("c")
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{Quorum: 2, Signed: true, Approvers: []string{"anna", "bob", "carl"}}, "calc_add")
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")), Identity: true,
		Keys: map[string][]sdk.DecisionKey{sdk.HumanDomain: {{Public: anna}, {Public: carl, Principal: "carl"}}},
	})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	request := h.Call(sdk.TypePermissionRequest)
	hash, _ := request.Data()["args_sha256"].(string)
	signed := func(by *signature.Signer, id string) wire.Event {
		ev := request.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: hash})
		ev.ID, ev.DataContentType = id, wire.ContentTypeJSON
		ev, err := by.Sign(ev)
		if err != nil {
			t.Fatal(err)
		}
		return ev
	}
	annaAllows, carlAllows := signed(annas, "anna-1"), signed(carls, "carl-1")
	h.PublishAs("anna", request, annaAllows)
	h.Until(r, "the first approval", func(s core.State) bool { return len(s.Calls) == 2 && len(s.Calls[1].Permission.Allowed) == 1 })
	h.PublishAs("bob", request, annaAllows)
	h.Until(r, "the refusal", func(s core.State) bool { return s.Calls[1].Permission.Refusals == 1 })
	h.PublishAs("bob", request, carlAllows)
	h.Until(r, "the refusal of a key that is another's", func(s core.State) bool { return s.Calls[1].Permission.Refusals == 2 })
	h.NoCall("calc.add")
	h.PublishAs("carl", request, carlAllows)
	h.Call("calc.add").Answer("calc.added", sum(3))
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
	var counted, refused []string
	for _, e := range h.Journal(r) {
		for _, d := range e.Decisions {
			if d.Refused != "" {
				refused = append(refused, d.Refused)
			} else {
				counted = append(counted, d.Who+" "+d.Key)
			}
		}
	}
	if diff := cmp.Diff([]string{"anna " + signature.Fingerprint(anna), "carl " + signature.Fingerprint(carl)}, counted); diff != "" {
		t.Errorf("what counted: -want +got\n%s", diff)
	}
	if len(refused) != 2 || !strings.Contains(refused[1], `signed with the key of "carl", and was published by "bob"`) {
		t.Errorf("what was refused: %q", refused)
	}
}
