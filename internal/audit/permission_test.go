package audit_test

import (
	"encoding/json"
	"slices"
	"testing"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// decision is one story of a call that needs permission: what bob sent when, and what became of it in the journal.
type decision struct {
	name     string
	terms    func(*sdk.PermissionTerms)
	sent     func(*sdk.PermissionDecision)
	received int64
	from     string
	entry    func(*core.Entry)
}

// judge tells of a call that was held, of the decision, and of the entry that followed.
func judge(t *testing.T, d decision) []audit.Violation {
	t.Helper()
	s, do := tell(t), steps()
	s.spec.NeedsRulings = true
	human := []sdk.PermissionStage{{Domain: sdk.HumanDomain, TimeoutMillis: hour / 2}}
	s.Policy(func(_, _ string, args json.RawMessage) sdk.PermissionRuling {
		switch string(args) {
		case `{"n":2}`:
			return sdk.PermissionRuling{Verdict: sdk.PermissionDeny}
		case `{"n":3}`:
			return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: sdk.PermissionTerms{
				Stages: []sdk.PermissionStage{{Domain: "finance", TimeoutMillis: hour}},
			}}
		}
		return sdk.PermissionRuling{Verdict: sdk.PermissionAsk, Terms: sdk.PermissionTerms{Stages: human}}
	})
	do[stored](s)
	do[started](s)
	terms := sdk.PermissionTerms{
		Mode: sdk.PermissionHold, Stages: human,
	}
	if d.terms != nil {
		d.terms(&terms)
	}
	reply := s.calling("book")
	reply.Admission.Rule(0, core.Ruling{Verdict: core.VerdictAsk, Terms: terms})
	reply.Admission.Ask(0, json.RawMessage(`{}`))
	s.commit(reply, nil)
	request := s.head.Calls[1].ID
	ref, _ := wire.ParseCallRef(request)
	at := wire.CallAddress{
		Domain: wire.DomainToken(sdk.HumanDomain), Type: wire.NameToken(sdk.TypePermissionRequest), Agent: "desk", Run: key, Call: request,
	}
	counted := sdk.PermissionDecision{Decision: sdk.DecisionAllow, ArgsHash: sdk.ArgsHash([]byte(`{}`))}
	sent := counted
	if d.sent != nil {
		d.sent(&sent)
	}
	data, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	from := ".bob"
	if d.from != "" {
		from = "." + d.from
	}
	ev := wire.Event{ID: "d", Source: "desk", ParentID: request, Data: data}
	s.Input(audit.Message{
		Stream: streamIn, Sequence: 1, Subject: subjects.Reply(at) + from, Received: now + d.received, Event: &ev,
	})
	s.cause = core.Cause{Stream: streamIn, Sequence: 1, EventID: "d"}
	s.commit(core.Answered{
		Ref: ref, Address: at, EventID: "d", Source: "desk", Who: "bob", Received: now, Data: data, Decision: &counted,
	}, d.entry)
	return s.Violations()
}

func TestChecker_AcceptsAPermittedCall(t *testing.T) {
	if found := judge(t, decision{}); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
}

// edits is the story of a decision that has the call made with those arguments.
func edits(name, args string) decision {
	return decision{
		name: name, sent: func(d *sdk.PermissionDecision) { d.Args = json.RawMessage(args) },
		entry: func(e *core.Entry) { e.Edits = []core.Edit{{Call: bookID, Args: json.RawMessage(args)}} },
	}
}

func TestChecker_AcceptsAnEditedCall(t *testing.T) {
	if found := judge(t, edits("", `{"n":1}`)); len(found) > 0 {
		t.Errorf("violations: %v", found)
	}
}

func TestChecker_FindsCallsWithoutPermission(t *testing.T) {
	for _, d := range []decision{
		{name: "no decision", entry: func(e *core.Entry) { e.Decisions = nil }},
		{name: "denied", sent: func(d *sdk.PermissionDecision) { d.Decision = sdk.DecisionDeny }},
		{name: "on other arguments", sent: func(d *sdk.PermissionDecision) { d.ArgsHash = sdk.ArgsHash([]byte(`1`)) }},
		{name: "for more than was decided", entry: func(e *core.Entry) { e.Decisions[0].Scope = sdk.ScopeTool }},
		{name: "late", received: hour},
		{name: "by somebody else", from: "eve"},
		{name: "by whom nobody asked", terms: func(t *sdk.PermissionTerms) { t.Approvers = []string{"bob"} }, from: "eve", entry: func(e *core.Entry) {
			e.Decisions[0].Who = "eve"
		}},
		{name: "by one of two", terms: func(t *sdk.PermissionTerms) { t.Quorum = 2 }, entry: func(e *core.Entry) {
			e.Effects = append(e.Effects, core.Effect{Kind: core.EffectCall, Call: bookID, Type: "shop.book"})
		}},
		{name: "with arguments that nobody gave", entry: func(e *core.Entry) {
			e.Edits = []core.Edit{{Call: bookID, Args: json.RawMessage(`{"n":1}`)}}
		}},
		{name: "without the arguments that were given", sent: func(d *sdk.PermissionDecision) { d.Args = json.RawMessage(`{"n":1}`) }},
		edits("with arguments that the policy denies", `{"n":2}`),
		edits("with arguments that another domain decides on", `{"n":3}`),
		{name: "by a grant of another run", entry: func(e *core.Entry) {
			e.Decisions[0].Request, e.Decisions[0].Grant = "", "c9-0-elsewhere"
		}},
		{name: "of another request", entry: func(e *core.Entry) { e.Decisions[0].Request = "c9-0-elsewhere" }},
	} {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			found := judge(t, d)
			if !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Invariant == "I13" }) {
				t.Errorf("violations %v, want one of I13", found)
			}
		})
	}
}
