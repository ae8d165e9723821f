package pipeline

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// edit allows the call of a request with other arguments.
func edit(c *harness.Call, args string) wire.Event {
	hash, _ := c.Data()["args_sha256"].(string)
	ev := c.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{
		Decision: sdk.DecisionAllow, ArgsHash: hash, Args: json.RawMessage(args),
	})
	ev.ID += "-edit"
	return ev
}

// refusals are what the journal says of decisions that did not count.
func refusals(h *harness.Harness, r harness.Run) []string {
	var refused []string
	for _, e := range h.Journal(r) {
		for _, d := range e.Decisions {
			if d.Refused != "" {
				refused = append(refused, d.Refused)
			}
		}
	}
	return refused
}

// editRefused sends an edit of the one open request as bob, sees that it is refused with those words and that nothing is
// called, and ends the run with a denial.
func editRefused(t *testing.T, h *harness.Harness, r harness.Run, request *harness.Call, args string, words ...string) {
	t.Helper()
	h.PublishAs("bob", request, edit(request, args))
	h.Until(r, "the refusal", func(s core.State) bool {
		return s.Status == core.StatusDone || len(s.Calls) == 2 && s.Calls[1].Permission.Refusals == 1
	})
	h.NoCall("calc.add")
	refused := refusals(h, r)
	if len(refused) != 1 {
		t.Fatalf("refused: %q, want one decision", refused)
	}
	for _, word := range words {
		if !strings.Contains(refused[0], word) {
			t.Errorf("refused with %q, which does not say %q", refused[0], word)
		}
	}
	hash, _ := request.Data()["args_sha256"].(string)
	deny := request.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{Decision: sdk.DecisionDeny, ArgsHash: hash})
	h.PublishAs("bob", request, deny)
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// Bob may allow small sums, and edits one into a call that the policy denies, or asks others about than bob alone.
func TestEdit_ThePolicyRulesOnTheEditedArguments(t *testing.T) {
	t.Parallel()
	public, _ := ed25519.NewKeyFromSeed([]byte(strings.Repeat("f", ed25519.SeedSize))).Public().(ed25519.PublicKey)
	large := func(terms sdk.PermissionPolicyTerms) sdk.PermissionRule {
		return sdk.PermissionRule{
			Name: "large", Tools: []string{"calc_add"}, When: "args.a >= 1000.0", Verdict: sdk.PermissionAsk, Terms: &terms,
		}
	}
	for name, test := range map[string]struct {
		rule  sdk.PermissionRule
		words []string
	}{
		"denied": {sdk.PermissionRule{
			Name: "never", When: "args.a >= 1000.0", Verdict: sdk.PermissionDeny, Reason: "that is too much",
		}, []string{"never", "that is too much"}},
		"domain":    {large(sdk.PermissionPolicyTerms{Domain: "finance"}), []string{"large", "decided in the domain finance"}},
		"quorum":    {large(sdk.PermissionPolicyTerms{Quorum: 2}), []string{"large", "2 people must allow it"}},
		"approvers": {large(sdk.PermissionPolicyTerms{Approvers: []string{"carl"}}), []string{"large", "only these may decide: carl"}},
		"signature": {large(sdk.PermissionPolicyTerms{Signed: true}), []string{"large", "it must be signed"}},
		"several": {
			large(sdk.PermissionPolicyTerms{Domain: "finance", Quorum: 2, Signed: true}),
			[]string{"domain finance", "2 people", "must be signed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := desk()
			spec.Permissions = &sdk.PermissionPolicy{Rules: []sdk.PermissionRule{
				test.rule, {Name: "small", Tools: []string{"calc_add"}, Verdict: sdk.PermissionAsk},
			}}
			h := harness.Start(t, harness.Options{
				Agents: []sdk.Agent{{Spec: spec}}, Identity: true, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
				Keys: map[string][]sdk.DecisionKey{sdk.HumanDomain: {{Public: public}}, "finance": {{Public: public}}},
			})
			r := h.SendAs("shop", "desk", h.Init("desk", hello()))
			editRefused(t, h, r, h.Call(sdk.TypePermissionRequest), `{"a":5000000,"b":1}`, test.words...)
		})
	}
}

// Whoever started a run may decide on its small sums, and not on large ones, also by an edit.
func TestEdit_FourEyesHoldForTheEditedArguments(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = heavier(sdk.PermissionPolicyTerms{}, sdk.PermissionPolicyTerms{FourEyes: true})
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Identity: true, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	r := h.SendAs("bob", "desk", h.Init("desk", hello()))
	editRefused(t, h, r, h.Call(sdk.TypePermissionRequest), `{"a":1000,"b":1}`, "large", "whoever started the run may not decide")
}

// unsure is a manager that asks about small sums, and breaks down over large ones.
type unsure struct{ sdk.PermissionManager }

func (unsure) Check(_ context.Context, c sdk.PermissionCheck) (sdk.PermissionRuling, error) {
	if strings.Contains(string(c.Args), "1000") {
		return sdk.PermissionRuling{}, errors.New("the directory is away")
	}
	return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: sdk.PermissionTerms{
		Mode: sdk.PermissionHold, Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: 3_600_000}},
	}}, nil
}

func (unsure) Reserve(context.Context, sdk.PermissionCheck) (string, error) { return "", nil }

func (unsure) Request(_ context.Context, _ sdk.PermissionCheck, r sdk.PermissionRequest) (sdk.PermissionRequest, error) {
	return r, nil
}

func (unsure) Cleanup(context.Context, string) error { return nil }

func TestEdit_IsRefusedWhereThePolicyCannotBeAsked(t *testing.T) {
	t.Parallel()
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: desk(), Hooks: sdk.Hooks{Permissions: unsure{}}}}, Identity: true,
		Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	editRefused(t, h, r, h.Call(sdk.TypePermissionRequest), `{"a":1000,"b":1}`, "the policy could not be asked")
}

// What somebody has denied for the rest of the run cannot be made by an edit of another call.
func TestEdit_IsRefusedWhereAnEarlierDecisionDenies(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeToolPattern}}, "calc_add")
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Identity: true,
		Model: sdktest.Script(sdktest.Ask(add(1000, 2)), sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	request := h.Call(sdk.TypePermissionRequest)
	hash, _ := request.Data()["args_sha256"].(string)
	h.PublishAs("bob", request, request.Response(sdk.TypePermissionDecided, sdk.PermissionDecision{
		Decision: sdk.DecisionDeny, ArgsHash: hash, Scope: sdk.ScopeToolPattern, Pattern: "args.a >= 1000.0", Reason: "never so much",
	}))
	editRefused(t, h, r, h.Call(sdk.TypePermissionRequest), `{"a":1000,"b":1}`, "denied before", "never so much")
}

// An edit under the terms of its request is made, also by whoever is asked when nobody else has decided in time.
func TestEdit_WithinTheTermsIsMade(t *testing.T) {
	t.Parallel()
	spec := desk()
	escalated := sdk.PermissionPolicyTerms{
		TimeoutMillis: 50, Escalate: []sdk.PermissionStage{{Domain: "the.boss", TimeoutMillis: 3_600_000}},
	}
	spec.Permissions = heavier(escalated, sdk.PermissionPolicyTerms{Domain: "the.boss"})
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec}}, Identity: true, Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	h.Call(sdk.TypePermissionRequest)
	request := h.Call(sdk.TypePermissionRequest)
	if request.Event.Domain != "the.boss" {
		t.Fatalf("asked %s", request.Event.Domain)
	}
	h.PublishAs("boss", request, edit(request, `{"a":7,"b":2}`))
	call := h.Call("calc.add")
	if string(call.Event.Data) != `{"a":7,"b":2}` {
		t.Errorf("the call carries %s", call.Event.Data)
	}
	call.Answer("calc.added", sum(9))
	wantResponse(t, h.Done(r), "done")
	sound(t, h.Conn(), natsStore(h.Conn()))
}

// Hooks judge a call as it is made: with the approver's arguments.
func TestEdit_HooksJudgeTheEditedArguments(t *testing.T) {
	t.Parallel()
	spec := desk()
	spec.Permissions = asking(sdk.PermissionPolicyTerms{}, "calc_add")
	limit := sdk.Hook{Name: "limit", BeforeToolExecute: func(_ context.Context, a sdk.ToolAttempt) (sdk.Gate, error) {
		if strings.Contains(string(a.Args), "1000") {
			return sdk.Gate{Verdict: sdk.GateBlock, Reason: "beyond the limit"}, nil
		}
		return sdk.Gate{}, nil
	}}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec, Hooks: sdk.Hooks{Phases: []sdk.Hook{limit}}}}, Identity: true,
		Model: sdktest.Script(sdktest.Ask(add(1, 2)), sdktest.Say("done")),
	})
	r := h.SendAs("shop", "desk", h.Init("desk", hello()))
	request := h.Call(sdk.TypePermissionRequest)
	h.PublishAs("bob", request, edit(request, `{"a":1000,"b":1}`))
	wantResponse(t, h.Done(r), "done")
	h.NoCall("calc.add")
	sound(t, h.Conn(), natsStore(h.Conn()))
	if result := h.Messages(r)[2].Content[0]; !result.IsError || !strings.Contains(result.Text, "beyond the limit") {
		t.Errorf("the call's result is %s", result.Text)
	}
}
