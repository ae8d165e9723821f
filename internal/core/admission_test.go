package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"agentd/internal/core"
	"agentd/sdk"
)

var (
	callBook   = sdk.ToolRequest{Name: "book", Arguments: `{"n":1}`}
	callCharge = sdk.ToolRequest{Name: "charge", Arguments: `{"n":1}`}
	holding    = sdk.PermissionTerms{
		Mode: sdk.PermissionHold, Stages: []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: minute}},
	}
)

// TestReplied_NeedsThePlanThatWasMadeForIt: a plan for anything else would open calls that nobody ruled on.
func TestReplied_NeedsThePlanThatWasMadeForIt(t *testing.T) {
	t.Parallel()
	begin := func(run string) *rig {
		r := newRig(newSpec(service("book", minute), inline("charge", false)))
		mustStep(t, r, r.deliver("init-1", started(run, "hello")))
		return r
	}
	for what, plan := range map[string]func(*rig) *core.Admission{
		"none":          nil,
		"another reply": func(r *rig) *core.Admission { return r.replied("", callCharge).Admission },
		"fewer calls":   func(r *rig) *core.Admission { return r.replied("", callBook).Admission },
		"another run":   func(*rig) *core.Admission { return begin("order 8").replied("", callBook, callCharge).Admission },
		"another use of tokens": func(r *rig) *core.Admission {
			reply := r.replied("", callBook, callCharge).Reply
			reply.Usage.Prompt++
			return r.plan(reply)
		},
		"an earlier turn": func(r *rig) *core.Admission {
			plan := r.replied("", callBook, callCharge).Admission
			mustStep(t, r, r.drive(r.replied("no JSON")))
			return plan
		},
		"an earlier round": func(r *rig) *core.Admission {
			plan := r.replied("", callBook, callCharge).Admission
			mustStep(t, r, r.drive(r.replied("", callCharge)))
			mustStep(t, r, r.drive(core.Returned{Results: []core.Result{{Call: r.state.Calls[0].ID, Kind: core.ResultInline, Data: []byte(`{}`)}}}))
			return plan
		},
	} {
		r := begin("order 7")
		var made *core.Admission
		if plan != nil {
			made = plan(r)
		}
		rev := r.state.Rev
		ev := r.replied("", callBook, callCharge)
		own := ev.Admission
		ev.Admission = made
		if _, _, err := r.step(r.drive(ev)); !errors.Is(err, core.ErrIllegal) {
			t.Errorf("with the plan of %s: %v, want %v", what, err, core.ErrIllegal)
		}
		ev.Admission = own
		if e := mustStep(t, r, r.drive(ev)); e.Rev != rev+1 || len(e.Head.Calls) != 2 {
			t.Errorf("after the plan of %s its own opens %d calls in entry %d", what, len(e.Head.Calls), e.Rev)
		}
	}
}

// TestPlan_DeniesWhatNothingAllows: whatever whoever drives the run leaves out, a call is made only when something allows it.
func TestPlan_DeniesWhatNothingAllows(t *testing.T) {
	t.Parallel()
	nobody := holding
	nobody.Stages = nil
	for what, test := range map[string]struct {
		rule func(*core.Admission)
		want string
	}{
		"no ruling":          {func(*core.Admission) {}, "nothing ruled on the call"},
		"an unknown verdict": {func(p *core.Admission) { p.Rule(0, core.Ruling{Verdict: "perhaps"}) }, "nothing ruled on the call"},
		"asked, but no request": {
			func(p *core.Admission) { p.Rule(0, core.Ruling{Verdict: core.VerdictAsk, Terms: holding}) }, "there is nobody to ask",
		},
		"an empty request": {func(p *core.Admission) {
			p.Rule(0, core.Ruling{Verdict: core.VerdictAsk, Terms: holding})
			p.Ask(0, nil)
		}, "there is nobody to ask"},
		"terms without a stage": {func(p *core.Admission) {
			p.Rule(0, core.Ruling{Verdict: core.VerdictAsk, Terms: nobody})
			p.Ask(0, []byte(`{}`))
		}, "there is nobody to ask"},
		"denied": {func(p *core.Admission) { p.Rule(0, core.Ruling{Verdict: core.VerdictDeny, Reason: "never"}) }, "never"},
	} {
		spec := newSpec(service("book", minute))
		spec.NeedsRulings = true
		r := begun(t, spec)
		ev := r.replied("", callBook)
		test.rule(ev.Admission)
		if ev.Admission.Calls[0].Waits() {
			t.Errorf("%s: the plan says that the call waits", what)
		}
		e := mustStep(t, r, r.drive(ev))
		if len(e.Results) != 1 || e.Results[0].Kind != core.ResultDenied || !strings.Contains(string(e.Results[0].Data), test.want) {
			t.Errorf("%s: results %s, want one that is denied: %s", what, encode(t, e.Results), test.want)
		}
		if len(e.Effects) > 0 || len(e.Requests) > 0 {
			t.Errorf("%s: effects %s and requests %s", what, encode(t, e.Effects), encode(t, e.Requests))
		}
	}
}

// granted is a run whose call of book somebody has allowed, with a grant for the tool that has the terms, the id of the request, and a
// ruling that asks.
func granted(t *testing.T, grant sdk.PermissionDecision) (r *rig, request string, asks core.Ruling) {
	t.Helper()
	spec := newSpec(service("book", minute))
	spec.NeedsRulings = true
	r = begun(t, spec)
	terms := holding
	terms.Scopes = []sdk.GrantScope{sdk.ScopeTool}
	asks = core.Ruling{Verdict: core.VerdictAsk, Terms: terms}
	ev := r.replied("", callBook)
	if !ev.Admission.Rule(0, asks) {
		t.Fatal("a call that no grant covers need not be asked for")
	}
	ev.Admission.Ask(0, []byte(`{}`))
	mustStep(t, r, r.drive(ev))
	asked := r.state.Calls[1]
	grant.Decision, grant.Scope, grant.ArgsHash = sdk.DecisionAllow, sdk.ScopeTool, asked.Permission.ArgsHash
	allowed := r.answer(r.effect(r.state.Opened, asked.ID), 0, `{}`)
	allowed.Decision, allowed.Received = &grant, r.now
	mustStep(t, r, r.deliver("decision-1", allowed))
	mustStep(t, r, r.drive(core.Returned{Passed: []string{r.state.Calls[0].ID}}))
	mustStep(t, r, r.deliver("answer-1", r.answer(r.effect(r.state.Rev, r.state.Calls[0].ID), 0, `{}`)))
	return r, asked.ID, asks
}

// TestPlan_TakesGrantsCallByCall: a grant for one more use covers the first of two calls of a reply, and the second is asked for.
func TestPlan_TakesGrantsCallByCall(t *testing.T) {
	t.Parallel()
	r, request, asks := granted(t, sdk.PermissionDecision{Uses: 1})

	ev := r.replied("", callBook, callBook)
	if ev.Admission.Rule(0, asks) || !ev.Admission.Rule(1, asks) {
		t.Error("want the first call covered, and the second asked for")
	}
	ev.Admission.Ask(1, []byte(`{}`))
	if len(r.state.Grants) != 1 {
		t.Errorf("planning has changed the grants of the run: %+v", r.state.Grants)
	}
	e := mustStep(t, r, r.drive(ev))
	if len(e.Decisions) != 1 || e.Decisions[0].Call != e.Head.Calls[0].ID || e.Decisions[0].Grant != request || len(e.Head.Grants) != 0 {
		t.Errorf("decisions %+v, and grants that are left %+v", e.Decisions, e.Head.Grants)
	}
	if e.Head.Calls[0].Held != "" || e.Head.Calls[1].Held == "" {
		t.Errorf("calls %+v", e.Head.Calls)
	}
}

// The state of a run has the grant that allowed a call, as it was before the call took its last use, for as long as the call is open.
func TestState_HasTheGrantOfACall(t *testing.T) {
	t.Parallel()
	r, request, asks := granted(t, sdk.PermissionDecision{Uses: 1})
	ev := r.replied("", callBook)
	ev.Admission.Rule(0, asks)
	e := mustStep(t, r, r.drive(ev))
	call := e.Head.Calls[0].ID
	want := core.Grant{
		Request: request, Tool: "book", Scope: sdk.ScopeTool, Domains: []string{sdk.HumanDomain}, Uses: 1,
	}
	if got := r.state.GrantOf(call); got == nil || !cmp.Equal(*got, want, cmpopts.EquateEmpty()) {
		t.Errorf("the grant of the call is %+v, want %+v", got, want)
	}
	folded, _, err := r.written()
	if got := folded.GrantOf(call); err != nil || got == nil || !cmp.Equal(*got, want, cmpopts.EquateEmpty()) {
		t.Errorf("by the journal the grant of the call is %+v, want %+v (%v)", got, want, err)
	}
	mustStep(t, r, r.deliver("answer-2", r.answer(r.effect(e.Rev, call), 0, `{}`)))
	if got := r.state.Granted; len(got) > 0 {
		t.Errorf("the state keeps %+v when the call has its result", got)
	}
}

// TestPlan_DeniesWhatExpiredMeanwhile: hooks and policies of other calls may take longer than a grant lasts.
func TestPlan_DeniesWhatExpiredMeanwhile(t *testing.T) {
	t.Parallel()
	r, _, asks := granted(t, sdk.PermissionDecision{ExpiresMillis: epoch + minute})

	ev := r.replied("", callBook)
	if ev.Admission.Rule(0, asks) {
		t.Fatal("the grant does not cover the call")
	}
	r.now += minute
	e := mustStep(t, r, r.drive(ev))
	if len(e.Decisions) != 0 || len(e.Results) != 1 || e.Results[0].Kind != core.ResultDenied {
		t.Errorf("decisions %+v, results %+v; want the call denied", e.Decisions, e.Results)
	}
}

// TestPlan_AsksAgainWhenAGrantHasExpired: it covers calls until then, and none from then on.
func TestPlan_AsksAgainWhenAGrantHasExpired(t *testing.T) {
	t.Parallel()
	r, _, asks := granted(t, sdk.PermissionDecision{ExpiresMillis: epoch + minute})
	r.now = epoch + minute - 1
	if ev := r.replied("", callBook); ev.Admission.Rule(0, asks) {
		t.Error("the grant does not cover a call in its last millisecond")
	}
	r.now++
	ev := r.replied("", callBook)
	if !ev.Admission.Rule(0, asks) {
		t.Fatal("a grant covers a call after it has expired")
	}
	ev.Admission.Ask(0, []byte(`{}`))
	e := mustStep(t, r, r.drive(ev))
	if len(e.Requests) != 1 || len(e.Decisions) != 0 || e.Head.Calls[0].Held == "" {
		t.Errorf("requests %s, decisions %+v, calls %+v; want the call asked for", encode(t, e.Requests), e.Decisions, e.Head.Calls)
	}
}

// TestDecision_NeedsThePlanOfItsEdit: a plan for another call, or other arguments, would have a call made that nobody ruled on.
func TestDecision_NeedsThePlanOfItsEdit(t *testing.T) {
	t.Parallel()
	spec := newSpec(service("book", minute), service("charge", minute))
	spec.NeedsRulings = true
	r := begun(t, spec)
	ev := r.replied("", callBook, callCharge)
	for i := range ev.Admission.Calls {
		ev.Admission.Rule(i, core.Ruling{Verdict: core.VerdictAsk, Terms: holding})
		ev.Admission.Ask(i, []byte(`{}`))
	}
	mustStep(t, r, r.drive(ev))
	book, charge := r.state.Calls[2], r.state.Calls[3]
	decision := &sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: book.Permission.ArgsHash, Args: []byte(`{"n": 2}`)}
	decide := func(event string, plan *core.EditAdmission) core.Input {
		if plan != nil {
			plan.Rule(core.Ruling{Verdict: core.VerdictAllow})
		}
		answer := r.answer(r.effect(r.state.Opened, book.ID), 0, `{}`)
		answer.Decision, answer.Received, answer.EventID = decision, r.now, event
		answer.Rulings = []core.DecisionRulings{{Request: book.ID, Edit: plan}}
		return r.deliver(event, answer)
	}
	for what, plan := range map[string]*core.EditAdmission{
		"none":            nil,
		"another call":    core.AdmitEdit(spec, &charge, decision, nil),
		"other arguments": core.AdmitEdit(spec, &book, &sdk.PermissionDecision{Args: []byte(`{"n": 3}`)}, nil),
	} {
		if _, _, err := r.step(decide(what, plan)); !errors.Is(err, core.ErrIllegal) {
			t.Errorf("with the plan of %s: %v, want %v", what, err, core.ErrIllegal)
		}
	}
	e := mustStep(t, r, decide("own", core.AdmitEdit(spec, &book, decision, nil)))
	if len(e.Edits) != 1 || string(e.Edits[0].Args) != `{"n":2}` {
		t.Errorf("edits %s", encode(t, e.Edits))
	}
}

// Whoever asks under wider terms alone, as a permission manager in Go may, is answered with a decision on the one call all the same: nobody could
// deny it else without denying others.
func TestDecision_OnTheOneCallCountsWhateverIsOffered(t *testing.T) {
	t.Parallel()
	for decision, want := range map[sdk.Decision]core.CallStatus{
		sdk.DecisionAllow: core.CallResuming, sdk.DecisionDeny: core.CallFailed, sdk.DecisionAsk: core.CallFailed, sdk.DecisionResult: core.CallSucceeded,
	} {
		spec := newSpec(service("book", minute), service("lookup", minute))
		spec.NeedsRulings = true
		r := begun(t, spec)
		terms := holding
		terms.Scopes, terms.Results = []sdk.GrantScope{sdk.ScopeTool}, true
		ev := r.replied("", callBook, sdk.ToolRequest{Name: "lookup", Arguments: `{}`})
		ev.Admission.Rule(0, core.Ruling{Verdict: core.VerdictAsk, Terms: terms})
		ev.Admission.Ask(0, []byte(`{}`))
		ev.Admission.Rule(1, core.Ruling{Verdict: core.VerdictAllow})
		mustStep(t, r, r.drive(ev))
		call, asked := r.state.Calls[0], r.state.Calls[2]
		decided := r.answer(r.effect(r.state.Opened, asked.ID), 0, `{}`)
		decided.Received = r.now
		decided.Decision = &sdk.PermissionDecision{Decision: decision, Scope: sdk.ScopeCall, ArgsHash: asked.Permission.ArgsHash}
		if decision == sdk.DecisionResult {
			decided.Decision.Result = []byte(`{}`)
		}
		e := mustStep(t, r, r.deliver("decision", decided))
		if e.Decisions[0].Refused != "" || r.state.Call(call.ID).Status != want || len(r.state.Grants) != 0 {
			t.Errorf("%s is refused with %q, the call is %s, and granted is %+v; want %s", decision, e.Decisions[0].Refused, r.state.Call(call.ID).Status, r.state.Grants, want)
		}
	}
}
