package desk_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/desk"
	"agentd/internal/harness"
	"agentd/internal/requests"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestDesk_RefusedDecisionsAreToldAndMayBeRepeated(t *testing.T) {
	t.Parallel()
	h := startNamed(t, sdk.PermissionPolicyTerms{Approvers: []string{"boss", "joe"}, FourEyes: true}, sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d := open(t, h)
	item := untilOpen(t, d, 1)[0]
	if o := decide(t, d, item.ID, "jane", allow); o.State != client.OutcomeRefused || !o.Open || o.Refused != `"jane" may not decide` {
		t.Errorf("the wrong person's outcome is %+v", o)
	}
	if o := decide(t, d, item.ID, "joe", allow); o.State != client.OutcomeRefused || o.Refused != "whoever started the run may not decide" {
		t.Errorf("the initiator's outcome is %+v", o)
	}
	if o := decide(t, d, item.ID, "", allow); o.State != client.OutcomeRefused || !o.Open || !strings.Contains(o.Refused, "names no principal") {
		t.Errorf("the anonymous outcome is %+v", o)
	}
	wantCounted(t, decide(t, d, item.ID, "boss", allow))
	h.Call("bank.pay")
	history, err := d.History(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	var who []string
	for _, e := range history {
		who = append(who, e.Who+": "+e.Refused)
	}
	if diff := cmp.Diff([]string{`jane: "jane" may not decide`, "joe: whoever started the run may not decide", "boss: "}, who); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

func TestDesk_CountsAQuorum(t *testing.T) {
	t.Parallel()
	h := startNamed(t, sdk.PermissionPolicyTerms{Quorum: 2}, sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d := open(t, h)
	item := untilOpen(t, d, 1)[0]
	o := decide(t, d, item.ID, "jane", allow)
	wantCounted(t, o)
	if o.Allowed != 1 || o.Quorum != 2 || !o.Open {
		t.Errorf("after the first the outcome is %+v", o)
	}
	o = decide(t, d, item.ID, "boss", allow)
	wantCounted(t, o)
	if o.Quorum != 0 || o.Open {
		t.Errorf("after the second the outcome is %+v", o)
	}
	h.Call("bank.pay")
}

// A front end finds in the request what a decision may be: what the desk publishes fits, and what cannot count does not.
func TestDesk_TheRequestHasTheSchemaOfTheAnswer(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool}}), sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	detail, err := d.Detail(t.Context(), untilOpen(t, d, 1)[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := schema.Compile(detail.Request.Answer)
	if err != nil {
		t.Fatalf("%s: %v", detail.Request.Answer, err)
	}
	hash := detail.Request.ArgsHash
	for decision, fits := range map[string]bool{
		`{"decision":"allow","args_sha256":"` + hash + `"}`:                                true,
		`{"decision":"allow","args_sha256":"` + hash + `","scope":"run+tool","uses":2}`:    true,
		`{"decision":"allow","args_sha256":"` + hash + `","args":{"amount":2}}`:            true,
		`{"decision":"allow","args_sha256":"` + hash + `","scope":"principal+agent+tool"}`: false,
		`{"decision":"allow","args_sha256":"` + hash + `","pattern":"true"}`:               false,
		`{"decision":"maybe","args_sha256":"` + hash + `"}`:                                false,
		`{"decision":"allow","args_sha256":"` + strings.Repeat("0", 64) + `"}`:             false,
		`{"decision":"allow"}`: false,
	} {
		if faults := schema.Validate([]byte(decision)); (len(faults) == 0) != fits {
			t.Errorf("%s: %v; want it to fit: %t", decision, faults, fits)
		}
	}
}

// A policy that offers a wider scope does not keep anybody from deciding on the one call.
func TestDesk_DecidesOnOneCallWhateverIsOffered(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{Scopes: []sdk.GrantScope{sdk.ScopeTool}}), sdktest.Ask(pay(1), pay(2), pay(3)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	items := untilOpen(t, d, 3)
	wantCounted(t, decide(t, d, items[0].ID, "", sdk.PermissionDecision{Decision: sdk.DecisionDeny}))
	wantCounted(t, decide(t, d, items[1].ID, "", allow))
	wantCounted(t, decide(t, d, items[2].ID, "", sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool}))
}

// A request that nobody decides on in time goes to another domain, under an id that begins with its own. Whoever has the former one before
// them has not seen the latter.
func TestDesk_DecidesOnTheRequestThatIsNamed(t *testing.T) {
	t.Parallel()
	terms := sdk.PermissionPolicyTerms{TimeoutMillis: 50, Escalate: []sdk.PermissionStage{{Domain: "the.boss", TimeoutMillis: 3_600_000}}}
	h := start(t, payer(terms), sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d, err := desk.Open(t.Context(), desk.Options{Conn: h.Conn(), Domains: []string{"*"}, Patience: harness.Patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	h.Run("payer", map[string]string{})
	later := until(t, d, "what the boss is asked", func(items []requests.Item) bool {
		return slices.ContainsFunc(items, func(i requests.Item) bool { return i.Domain == "the.boss" })
	})[0]
	former, _ := wire.ParseCallRef(later.ID)
	if o, err := d.Decide(t.Context(), former.ID, "", allow); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		t.Errorf("a decision on %s comes to %+v, %v; want %s alone open", former.ID, o, err, later.ID)
	}
	wantCounted(t, decide(t, d, later.ID, "", allow))
}

// With decisions taken together, an allowed call does not go out at once: whoever allowed it is told what it waits for.
func TestDesk_TellsThatAnAllowedCallWaitsForItsRound(t *testing.T) {
	t.Parallel()
	spec := payer(sdk.PermissionPolicyTerms{})
	spec.Decisions = sdk.DecisionsBatch
	h := start(t, spec, sdktest.Ask(pay(1), pay(2)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	items := untilOpen(t, d, 2)
	o := decide(t, d, items[0].ID, "", allow)
	wantCounted(t, o)
	if !o.Queued || o.Undecided != 1 {
		t.Errorf("after the first decision the outcome is %+v", o)
	}
	h.NoCall("bank.pay")
	if o = decide(t, d, items[1].ID, "", allow); o.Queued || o.Undecided != 0 {
		t.Errorf("after the last decision the outcome is %+v", o)
	}
	h.Call("bank.pay")
	h.Call("bank.pay")
}

// A worker tells a long history in several answers.
func TestDesk_ReadsTheHistoryOfALongRun(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(1)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{"text": strings.Repeat("x", 300<<10)})
	item := untilOpen(t, d, 1)[0]
	wantCounted(t, decide(t, d, item.ID, "jane", allow))
	history, err := d.History(t.Context(), item)
	if err != nil || len(history) != 1 || history[0].Who != "jane" {
		t.Errorf("the history is %+v, %v; want jane's decision", history, err)
	}
}

func TestDesk_EditedArgumentsAreCheckedBeforeTheyAreSent(t *testing.T) {
	t.Parallel()
	h := start(t, payer(sdk.PermissionPolicyTerms{}), sdktest.Ask(pay(9)), sdktest.Say("paid"))
	d := open(t, h)
	h.Run("payer", map[string]string{})
	item := untilOpen(t, d, 1)[0]
	for _, c := range []struct {
		name, want string
		code       sdk.Code
		p          sdk.PermissionDecision
	}{
		{"schema", "$.amount: expected number", sdk.CodeContractViolation, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(`{"amount":"9"}`)}},
		{"denied", "only an approval", sdk.CodeDecisionRefused, sdk.PermissionDecision{Decision: sdk.DecisionDeny, Args: json.RawMessage(`{"amount":9}`)}},
		{"scope", "was not offered", sdk.CodeDecisionRefused, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool}},
		{"hash", "other arguments", sdk.CodeDecisionRefused, sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: sdk.ArgsHash(nil)}},
		{"ask", "needs a question", sdk.CodeDecisionRefused, sdk.PermissionDecision{Decision: sdk.DecisionAsk}},
		{"none", "is not a decision", sdk.CodeDecisionRefused, sdk.PermissionDecision{Decision: "yes"}},
		{"uses", "wider than the call", sdk.CodeDecisionRefused, sdk.PermissionDecision{Decision: sdk.DecisionAllow, Uses: 2}},
	} {
		_, err := d.Decide(t.Context(), item.ID, "", c.p)
		if !errors.Is(err, &sdk.Error{Code: c.code}) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v; want %s with %q", c.name, err, c.code, c.want)
		}
	}
	wantCounted(t, decide(t, d, item.ID, "", sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: json.RawMessage(`{"amount": 4}`)}))
	if got := string(h.Call("bank.pay").Event.Data); got != `{"amount":4}` {
		t.Errorf("the call is made with %s", got)
	}
	until(t, d, "the decision is read", func(open []requests.Item) bool { return len(open) == 0 || len(open[0].Sent) > 0 })
	if got := d.List(); len(got) > 0 && len(got[0].Sent) != 1 {
		t.Errorf("%d decisions were sent; want the last one alone", len(got[0].Sent))
	}
}
