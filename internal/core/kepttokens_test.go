package core_test

import (
	"errors"
	"fmt"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// keeping is a run that goes on while calls are open, whose model has made two of its calls with 50 of 100 tokens, and which keeps 37 for an
// agent that it has called.
func keeping(t *testing.T) (r *rig, clerk core.Effect) {
	t.Helper()
	spec := newSpec(service("clerk", 30*minute), service("lookup", minute), service("book", minute), inline("add", false))
	spec.Tools[0].Agent, spec.Continues, spec.MaxTokens = true, true, 100
	r = begun(t, spec)
	e := mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "clerk", Arguments: `{}`}, sdk.ToolRequest{Name: "lookup", Arguments: `{}`})))
	if got := e.Head.Calls[0].Reserved; got != 37 {
		t.Fatalf("%d tokens are kept for the agent, want 37: half of the 75 that are left", got)
	}
	clerk = r.effect(e.Rev, e.Head.Calls[0].ID)
	mustStep(t, r, r.deliver("found", r.answer(r.effect(e.Rev, e.Head.Calls[1].ID), 0, `{}`)))
	r.round(t, "add")
	return r, clerk
}

// round has the model call tools, of which the first one returns.
func (r *rig) round(t *testing.T, tools ...string) {
	t.Helper()
	var calls []sdk.ToolRequest
	for _, name := range tools {
		calls = append(calls, sdk.ToolRequest{Name: name, Arguments: fmt.Sprintf(`{"n":%d}`, r.state.Turns)})
	}
	e := mustStep(t, r, r.drive(r.replied("", calls...)))
	first := e.Head.Calls[0]
	if first.Kind == core.CallInline {
		mustStep(t, r, r.drive(core.Returned{Results: []core.Result{{Call: first.ID, Kind: core.ResultInline, Data: []byte(`{}`)}}}))
		return
	}
	mustStep(t, r, r.deliver(first.ID, r.answer(r.effect(e.Rev, first.ID), 0, `{}`)))
}

// A run whose last tokens are kept for an agent that it has called waits for it, and goes on with what that has not used.
func TestTokens_KeptForAgentsComeBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		round []string
		said  bool
		used  int64
		want  string
	}{
		"an inline tool returns":             {[]string{"add"}, false, 10, ""},
		"a service answers":                  {[]string{"lookup"}, false, 10, ""},
		"one of two services answers":        {[]string{"lookup", "book"}, false, 10, ""},
		"a person speaks meanwhile":          {[]string{"add"}, true, 10, ""},
		"the agent uses all":                 {[]string{"add"}, false, 37, "quota:tokens"},
		"the agent uses all, in an open one": {[]string{"lookup", "book"}, false, 37, "quota:tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, clerk := keeping(t)
			r.round(t, c.round...)
			if c.said {
				mustStep(t, r, r.deliver("message", steered("Hurry.")))
			}
			if got := untilDone(t, r); got != "" || r.state.Status != core.StatusWaiting || r.state.Call(clerk.Call).Closed() {
				t.Fatalf("the run is %s %s, want it to wait for the agent: %+v", r.state.Status, got, r.state.Head)
			}
			ev := r.answer(clerk, 0, `{}`)
			ev.Tokens = c.used
			mustStep(t, r, r.deliver("done", ev))
			if got := untilDone(t, r); got != c.want {
				t.Errorf("the run ends with %q, want %q", got, c.want)
			}
			if _, asks := r.next().(core.CallModel); asks != (c.want == "") {
				t.Errorf("next is %T with %d tokens left", r.next(), r.state.TokensLeft())
			}
			if said := r.state.History[len(r.state.History)-2].PlainText() == "Hurry."; said != c.said {
				t.Errorf("the model is told what was said: %t, want %t", said, c.said)
			}
		})
	}
}

// An agent that asks a run whose last tokens are kept for it is told so, and the run waits on.
func TestTokens_KeptForAgentsAnswerNoQuestion(t *testing.T) {
	t.Parallel()
	r, clerk := keeping(t)
	r.spec.Answers = true
	r.round(t, "add")
	question := core.Steered{
		Note: core.Note{ID: "n1", Text: "Which one?"}, Question: &core.Question{Call: clerk.Call, Run: "trip/" + clerk.Call, At: wire.CallAddress{Call: clerk.Call}},
	}
	if _, _, err := r.step(r.deliver("question", question)); !errors.Is(err, &sdk.Error{Code: sdk.CodeMessageRefused}) {
		t.Errorf("the question of an agent that has all tokens: %v, want it refused", err)
	}
	if r.state.Status != core.StatusWaiting {
		t.Errorf("the run is %s", r.state.Status)
	}
}

// An agent that asks its caller something finds it with tokens to answer.
func TestTokens_AreLeftToAnswerAnAgent(t *testing.T) {
	t.Parallel()
	spec := newSpec(service("clerk", 30*minute), inline(sdk.ToolAnswerChild, false))
	spec.Tools[0].Agent, spec.Answers, spec.MaxTokens = true, true, 100
	r := begun(t, spec)
	e := mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "clerk", Arguments: `{}`})))
	call := e.Head.Calls[0].ID
	mustStep(t, r, r.deliver("question", core.Steered{
		Note: core.Note{ID: "n1", Text: "Which one?"}, Question: &core.Question{Call: call, Run: "trip/" + call, At: wire.CallAddress{Call: call}},
	}))
	if got := untilDone(t, r); got != "" {
		t.Fatalf("the run ends with %q when an agent asks it something", got)
	}
	if _, asks := r.next().(core.CallModel); !asks || r.state.TokensLeft() != 38 {
		t.Errorf("next is %T with %d tokens left, want the model to be called with 38", r.next(), r.state.TokensLeft())
	}
}

// So it does whatever used the last tokens that are not kept: a reply that is no round, or a summary of the conversation.
func TestTokens_KeptForAgentsComeBackAfterEveryModelCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		set func(*core.Spec)
		ev  func(*rig) core.Event
	}{
		"a call that cannot be read": {func(*core.Spec) {}, func(r *rig) core.Event {
			ev := r.replied("lookup(")
			ev.Reply.Fault = &sdk.ReplyFault{Class: "parse_error", Message: "The call has no end."}
			return ev
		}},
		"a text that is answered with a reminder": {
			func(spec *core.Spec) { spec.Converse, spec.NoToolCall = true, core.NoToolCall{Remind: true, Limit: 3} },
			func(r *rig) core.Event { return r.replied("Well.") },
		},
		"a summary": {func(*core.Spec) {}, func(*rig) core.Event {
			return core.Compacted{Summary: core.Summary{Messages: 1, Lined: 1}, Reply: sdk.ModelReply{Usage: sdk.Usage{Prompt: 20}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, clerk := keeping(t)
			c.set(r.spec)
			if got := untilDone(t, r); got != "" {
				t.Fatalf("the run ends with %q while it has tokens left", got)
			}
			mustStep(t, r, r.drive(c.ev(r)))
			if got := untilDone(t, r); got != "" || r.state.Status != core.StatusWaiting || r.state.TokensLeft() > 0 {
				t.Fatalf("the run is %s %s with %d tokens left, want it to wait for the agent", r.state.Status, got, r.state.TokensLeft())
			}
			ev := r.answer(clerk, 0, `{}`)
			ev.Tokens = 10
			mustStep(t, r, r.deliver("done", ev))
			if got := untilDone(t, r); got != "" {
				t.Errorf("the run ends with %q when the agent has left tokens", got)
			}
			if _, asks := r.next().(core.CallModel); !asks {
				t.Errorf("next is %T with %d tokens left", r.next(), r.state.TokensLeft())
			}
		})
	}
}

// A run that owes an agent an answer, and has no tokens to give it, waits for the others. Where there is none, nobody would go on.
func TestTokens_KeptForOthersThanWhoAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		used int64
		want string
	}{
		"another agent leaves tokens": {10, ""},
		"it uses all":                 {58, "quota:tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := newSpec(service("clerk", 30*minute), service("lookup", 30*minute), inline("add", false), inline(sdk.ToolAnswerChild, false))
			spec.Tools[0].Agent, spec.Tools[1].Agent, spec.Continues, spec.Answers, spec.MaxTokens = true, true, true, true, 200
			r := begun(t, spec)
			e := mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "clerk", Arguments: `{}`}, sdk.ToolRequest{Name: "lookup", Arguments: `{}`})))
			clerk, lookup := e.Head.Calls[0].ID, r.effect(e.Rev, e.Head.Calls[1].ID)
			mustStep(t, r, r.deliver("question", core.Steered{
				Note: core.Note{ID: "n1", Text: "Which one?"}, Question: &core.Question{Call: clerk, Run: "trip/" + clerk, At: wire.CallAddress{Call: clerk}},
			}))
			for range 3 {
				if got := untilDone(t, r); got != "" {
					t.Fatalf("the run ends with %q, with %d tokens left", got, r.state.TokensLeft())
				}
				r.round(t, "add")
			}
			if got := untilDone(t, r); got != "" || r.state.Status != core.StatusWaiting || r.state.TokensLeft() > 0 {
				t.Fatalf("the run is %s %s with %d tokens left, want it to wait for the other agent", r.state.Status, got, r.state.TokensLeft())
			}
			ev := r.answer(lookup, 0, `{}`)
			ev.Tokens = c.used
			mustStep(t, r, r.deliver("done", ev))
			if got := untilDone(t, r); got != c.want {
				t.Errorf("the run ends with %q, want %q", got, c.want)
			}
		})
	}
}
