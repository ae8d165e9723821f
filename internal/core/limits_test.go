package core_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// begun is a run that its driver works on.
func begun(t *testing.T, spec *core.Spec) *rig {
	t.Helper()
	r := newRig(spec)
	mustStep(t, r, r.deliver("init-1", started("trip", "Hello")))
	return r
}

func mustStep(t *testing.T, r *rig, in core.Input) *core.Entry {
	t.Helper()
	_, e, err := r.step(in)
	if err != nil {
		t.Fatalf("%T: %v", in.Event, err)
	}
	return e
}

// refusals are the codes of the results that an entry holds.
func refusals(e *core.Entry) map[sdk.Code]int {
	codes := map[sdk.Code]int{}
	for _, r := range e.Results {
		for _, code := range []sdk.Code{sdk.CodeTooLarge, sdk.CodeUnknownTool, sdk.CodeContractViolation} {
			if r.Kind == core.ResultRefused && strings.Contains(string(r.Data), `"code":"`+string(code)+`"`) {
				codes[code]++
			}
		}
	}
	return codes
}

func TestRound_IsBounded(t *testing.T) {
	t.Parallel()
	for asked, want := range map[int]struct{ made, refused, dropped int }{
		core.MaxRound: {core.MaxRound, 0, 0}, core.MaxRound + 1: {core.MaxRound, 1, 0},
		2 * core.MaxRound: {core.MaxRound, core.MaxRound, 0}, 1000: {core.MaxRound, core.MaxRound, 128},
	} {
		spec := newSpec(service("find", minute))
		r := begun(t, spec)
		var calls []sdk.ToolRequest
		for i := range asked {
			calls = append(calls, sdk.ToolRequest{Name: "find", Arguments: fmt.Sprintf(`{"n":%d}`, i)})
		}
		e := mustStep(t, r, r.drive(r.replied("", calls...)))
		made := 0
		for _, f := range e.Effects {
			if f.Kind == core.EffectCall {
				made++
			}
		}
		if refused := refusals(e)[sdk.CodeTooLarge]; made != want.made || refused != want.refused || len(e.Dropped) != want.dropped {
			t.Errorf("of %d calls %d are made, %d refused, %d dropped; want %+v", asked, made, refused, len(e.Dropped), want)
		}
		if r.state.Status != core.StatusWaiting {
			t.Errorf("after %d calls the run is %s", asked, r.state.Status)
		}
	}
}

func TestCalls_AreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", core.MaxArguments)
	for what, test := range map[string]struct {
		request sdk.ToolRequest
		code    sdk.Code
	}{
		"arguments of an unknown tool": {sdk.ToolRequest{Name: long, Arguments: long}, sdk.CodeUnknownTool},
		"arguments":                    {sdk.ToolRequest{Name: "note", Arguments: `{"a":"` + long + `"}`}, sdk.CodeTooLarge},
	} {
		spec := newSpec(inline("note", false))
		r := begun(t, spec)
		e := mustStep(t, r, r.drive(r.replied("", test.request)))
		if codes := refusals(e); codes[test.code] != 1 {
			t.Errorf("%s: refused with %v, want %s", what, codes, test.code)
		}
		if size := len(r.lines[len(r.lines)-1]); size > 16<<10 {
			t.Errorf("%s: the entry has %d bytes", what, size)
		}
		if r.state.Status != core.StatusRunning {
			t.Errorf("%s: the run is %s", what, r.state.Status)
		}
	}
}

func TestEnds_AreBounded(t *testing.T) {
	t.Parallel()
	spec := newSpec()
	long := strings.Repeat("x", 2<<20)

	r := begun(t, spec)
	e := mustStep(t, r, r.drive(r.replied(`{"text":"`+long[:wire.MaxData]+`"}`)))
	if e.Terminal == nil || e.Terminal.Type != wire.ErrorType(spec.Type) || !strings.Contains(string(e.Terminal.Data), `"too_large"`) {
		t.Errorf("an output that no event can hold ends the run with %.200s", encode(t, e.Terminal))
	}

	r = begun(t, spec)
	e = mustStep(t, r, r.drive(core.Ended{Ending: core.Ending{Reason: core.ReasonError, Code: sdk.CodeModel, Message: long}}))
	if size := len(e.Terminal.Data); size > 16<<10 {
		t.Errorf("an error's text makes a terminal event of %d bytes", size)
	}

	r = begun(t, spec)
	mustStep(t, r, r.deliver("cancel-1", core.CancelAsked{Message: long}))
	if size := len(r.lines[len(r.lines)-1]); size > 16<<10 || !strings.Contains(r.state.Cancel.Message, "xxx…") {
		t.Errorf("a reason to cancel makes an entry of %d bytes", size)
	}
}

func TestTurn_IsBounded(t *testing.T) {
	t.Parallel()
	spec := newSpec()
	spec.Converse = true
	r := begun(t, spec)
	e := mustStep(t, r, r.drive(r.replied(strings.Repeat("x", core.MaxArguments))))
	if r.state.Status != core.StatusRunning || len(e.Effects) != 0 || len(e.Messages) != 2 || r.state.Round != 0 {
		t.Errorf("a turn that is too long leads to %s with effects %v", r.state.Status, e.Effects)
	}
	mustStep(t, r, r.drive(r.replied("Hello!")))
	if r.state.Status != core.StatusWaiting {
		t.Errorf("after a shorter turn the run is %s", r.state.Status)
	}
}

func TestCheckReply(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("x", core.MaxReply/2)
	reply := sdk.ModelReply{Text: half, Calls: []sdk.ToolRequest{{Arguments: half}}}
	if err := core.CheckReply(&reply); err != nil {
		t.Errorf("a reply of the largest size: %v", err)
	}
	reply.Calls[0].Name = "a"
	if err := core.CheckReply(&reply); !errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}) {
		t.Errorf("a larger reply: %v", err)
	}
}

func TestCheckHistory(t *testing.T) {
	t.Parallel()
	quarter := strings.Repeat("x", core.MaxHistory/4)
	s := core.State{System: quarter, History: []core.Remembered{{Message: sdk.Message{Content: []sdk.Content{
		{Kind: sdk.ContentText, Text: quarter},
		{Kind: sdk.ContentToolUse, Args: []byte(quarter)},
		{Kind: sdk.ContentMedia, Media: &sdk.Media{Data: quarter}},
	}}}}}
	if err := core.CheckHistory(&s); err != nil {
		t.Errorf("a conversation of the largest size: %v", err)
	}
	s.System += "x"
	if err := core.CheckHistory(&s); !errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}) {
		t.Errorf("a larger conversation: %v", err)
	}
}

// TestDecisions_AreBounded: what a person decides stays with the run, and so in every entry.
func TestDecisions_AreBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", core.MaxArguments+1)
	for what, test := range map[string]struct {
		decision sdk.PermissionDecision
		refused  string
	}{
		"reason":  {sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeTool, Reason: long}, ""},
		"pattern": {sdk.PermissionDecision{Decision: sdk.DecisionAllow, Scope: sdk.ScopeToolPattern, Pattern: long}, "the pattern has"},
		"args":    {sdk.PermissionDecision{Decision: sdk.DecisionAllow, Args: []byte(`{"a":"` + long + `"}`)}, "the edited arguments have"},
	} {
		spec := newSpec(inline("book", false))
		spec.NeedsRulings = true
		r := begun(t, spec)
		reply := r.replied("", sdk.ToolRequest{Name: "book", Arguments: "{}"})
		reply.Admission.Rule(0, core.Ruling{Verdict: core.VerdictAsk, Terms: sdk.PermissionTerms{
			Mode: sdk.PermissionHold, Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool, sdk.ScopeToolPattern},
			Stages: []sdk.PermissionStage{{Domain: "human.interaction", TimeoutMillis: minute}},
		}})
		reply.Admission.Ask(0, []byte("{}"))
		mustStep(t, r, r.drive(reply))
		request := r.state.Calls[1]
		test.decision.ArgsHash = request.Permission.ArgsHash
		answer := r.answer(r.effect(r.state.Opened, request.ID), 0, "{}")
		answer.Decision, answer.Received = &test.decision, r.now
		answer.Rulings = []core.DecisionRulings{{Request: request.ID, Edit: core.AdmitEdit(spec, &request, &test.decision, nil)}}
		e := mustStep(t, r, r.deliver("decision-1", answer))
		if size := len(r.lines[len(r.lines)-1]); size > 32<<10 {
			t.Errorf("%s: the entry has %d bytes", what, size)
		}
		if got := e.Decisions[0].Refused; !strings.HasPrefix(got, test.refused) || (got == "") != (test.refused == "") {
			t.Errorf("%s: refused with %q, want %q", what, got, test.refused)
		}
		if test.refused == "" && (len(r.state.Grants) != 1 || len(r.state.Grants[0].Reason) > 512) {
			t.Errorf("%s: grants %+.200v", what, r.state.Grants)
		}
	}
}

// A provider that says that it used less than nothing gives a run back neither tokens nor units.
func TestUsage_IsNeverGivenBack(t *testing.T) {
	t.Parallel()
	r := begun(t, newSpec(service("find", minute)))
	ev := r.replied("", sdk.ToolRequest{Name: "find", Arguments: `{}`})
	ev.Reply.Usage = sdk.Usage{Prompt: -20, Completion: -5, CacheRead: -10, CacheWrite: -10}
	ev.Reply.Units = -1_500_000
	ev.Admission = r.plan(ev.Reply)
	if e := mustStep(t, r, r.drive(ev)); e.Head.Usage != (sdk.Usage{}) || e.Head.Units != 0 {
		t.Errorf("the run has used %+v, %d units", e.Head.Usage, e.Head.Units)
	}
}

// Costs end at the largest number, whatever a provider says.
func TestUnits_EndAtTheLargestNumber(t *testing.T) {
	r := begun(t, newSpec(inline("add", false)))
	for range 2 {
		ev := r.replied("", sdk.ToolRequest{Name: "add", Arguments: `{}`})
		ev.Reply.Units = math.MaxInt64 - 1
		e := mustStep(t, r, r.drive(ev))
		mustStep(t, r, r.drive(core.Returned{Results: []core.Result{{Call: e.Head.Calls[0].ID, Kind: core.ResultInline, Data: []byte(`{}`)}}}))
	}
	if r.state.Units != math.MaxInt64 {
		t.Errorf("the run has cost %d units, want %d", r.state.Units, int64(math.MaxInt64))
	}
}
