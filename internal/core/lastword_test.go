package core_test

import (
	"errors"
	"math"
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
)

// carrying is a run whose model has made calls of lookup and book, of which lookup has its result: it goes on while book is open.
func carrying(t *testing.T, spec *core.Spec) (r *rig, book core.Effect) {
	t.Helper()
	spec.Tools = append(spec.Tools, service("lookup", minute), service("book", 30*minute))
	spec.Continues = true
	r = begun(t, spec)
	e := mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "lookup", Arguments: `{}`}, sdk.ToolRequest{Name: "book", Arguments: `{}`})))
	effects := map[string]core.Effect{}
	for _, c := range e.Head.Calls {
		effects[c.Tool] = r.effect(e.Rev, c.ID)
	}
	mustStep(t, r, r.deliver("found", r.answer(effects["lookup"], 0, `{"found":1}`)))
	return r, effects["book"]
}

// untilDone lets the driver do what is next, as long as no model is asked, and returns how the run ended; empty is that it goes on.
func untilDone(t *testing.T, r *rig) string {
	t.Helper()
	for {
		switch next := r.next().(type) {
		case core.Review:
			mustStep(t, r, r.drive(r.reviewed()))
		case core.BuildOutput:
			mustStep(t, r, r.drive(core.Built{Output: *output(r.state.StopText())}))
		case core.End:
			mustStep(t, r, r.drive(core.Ended{Ending: next.Ending}))
		default:
			if r.state.Status != core.StatusDone {
				return ""
			}
			return r.state.Termination()
		}
	}
}

// The last text of a run is its answer when every call has its result, unless something is against it, as where no call is open.
func TestLastWord_MeetsRequirementsWhileCallsAreOpen(t *testing.T) {
	t.Parallel()
	required := func(most int) []core.Objection {
		return []core.Objection{{Judge: "sources", Found: "none", Nudge: "Name them.", Required: true, Most: most}}
	}
	for name, c := range map[string]struct {
		turns      int
		budget     int64
		final      bool
		text       string
		objections []core.Objection
		// want is how the run ends once the open call has its result, at the latest.
		want string
	}{
		"the last call":                           {2, 0, false, said, nil, "completed:answer"},
		"a summary":                               {5, 0, true, said, nil, "completed:answer"},
		"the last tokens":                         {5, 50, false, said, nil, "completed:answer"},
		"a requirement":                           {2, 0, false, said, required(0), "error:sources"},
		"a requirement, of a summary":             {2, 0, true, said, required(0), "error:sources"},
		"a requirement that may send it back":     {2, 0, false, said, required(1), "quota:interactions"},
		"a judge":                                 {2, 0, false, said, []core.Objection{{Judge: "vague", Most: 3}}, "completed:answer"},
		"what is no output":                       {2, 0, false, "Yes.", nil, "quota:interactions"},
		"a text with model calls and tokens left": {3, 51, false, said, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec()
			spec.MaxTurns, spec.MaxTokens = c.turns, c.budget
			r, book := carrying(t, spec)
			ev := r.replied(c.text)
			ev.Final, ev.Objections = c.final, c.objections
			mustStep(t, r, r.drive(ev))
			got := untilDone(t, r)
			if got == "completed:answer" {
				t.Fatalf("the run is done while a call is open: %+v", r.state.Head)
			}
			if got == "" {
				mustStep(t, r, r.deliver("booked", r.answer(book, 0, `{"booked":1}`)))
				got = untilDone(t, r)
			}
			if got != c.want {
				t.Errorf("the run ends with %q, want %q", got, c.want)
			}
		})
	}
}

// Services are asked about the last text too, while calls are open.
func TestLastWord_IsShownToServicesWhileCallsAreOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ verdict, want string }{
		"accepted":     {`{"accepted":true}`, "completed:answer"},
		"not accepted": {`{"accepted":false,"feedback":"Two are missing."}`, "error:legal"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec()
			spec.MaxTurns = 2
			spec.Contexts = []core.ContextProvider{{
				Section: "answer:legal", Gate: &core.AnswerGate{Name: "legal"}, Required: true, Service: service("review", minute),
			}}
			r, book := carrying(t, spec)
			ev := r.replied(said)
			ev.Question = []byte(`{"output":{}}`)
			e := mustStep(t, r, r.drive(ev))
			if len(e.Inquiries) != 1 {
				t.Fatalf("%d services are asked, want 1; the run is %+v", len(e.Inquiries), e.Head)
			}
			mustStep(t, r, r.deliver("verdict", r.answer(r.effect(e.Rev, e.Inquiries[0].ID), 0, c.verdict)))
			got := untilDone(t, r)
			if got == "" {
				mustStep(t, r, r.deliver("booked", r.answer(book, 0, `{"booked":1}`)))
				got = untilDone(t, r)
			}
			if got != c.want {
				t.Errorf("the run ends with %q, want %q", got, c.want)
			}
		})
	}
}

// A text that is accepted after reminders is not answered with one that no model call would read.
func TestNoToolCall_RemindsNobodyWhoIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		turns  int
		budget int64
		accept bool
		want   string
	}{
		"the last call":              {1, 0, true, "completed:answer"},
		"the last tokens":            {5, 25, true, "completed:answer"},
		"another call is left":       {2, 26, true, ""},
		"a text is not to be taken":  {1, 0, false, "quota:interactions"},
		"nor that of the last token": {5, 25, false, "quota:tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec()
			spec.MaxTurns, spec.MaxTokens = c.turns, c.budget
			spec.NoToolCall = core.NoToolCall{Remind: true, Accept: c.accept, Limit: 3}
			r := begun(t, spec)
			mustStep(t, r, r.drive(r.replied(said)))
			if got := untilDone(t, r); got != c.want {
				t.Errorf("the run ends with %q, want %q", got, c.want)
			}
		})
	}
}

// A message that comes while the model makes its last call comes too late to change the answer. One that comes after it is refused.
func TestSteered_ComesTooLateForTheLastCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		turns  int
		budget int64
		carry  bool
		remind bool
		want   string
	}{
		"the last call":                         {turns: 1, want: "completed:answer"},
		"the last tokens":                       {turns: 5, budget: 25, want: "completed:answer"},
		"a call is left":                        {turns: 2, want: ""},
		"the last call, and a call is open":     {turns: 2, carry: true, want: "completed:answer"},
		"the last tokens, and a call is open":   {turns: 5, budget: 50, carry: true, want: "completed:answer"},
		"the last call, which must call a tool": {turns: 1, remind: true, want: "quota:interactions"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec()
			spec.MaxTurns, spec.MaxTokens = c.turns, c.budget
			spec.NoToolCall.Remind, spec.NoToolCall.Limit = c.remind, 3
			var r *rig
			var book core.Effect
			if c.carry {
				r, book = carrying(t, spec)
			} else {
				r = begun(t, spec)
			}
			reply := r.drive(r.replied(said))
			mustStep(t, r, r.deliver("early", steered("Not so fast.")))
			reply.Rev = r.state.Rev + 1
			mustStep(t, r, reply)
			if c.want != "" {
				_, _, err := r.step(r.deliver("late", steered("Stop.")))
				if !errors.Is(err, &sdk.Error{Code: sdk.CodeMessageRefused}) {
					t.Errorf("a message after the last call: %v, want it refused", err)
				}
			}
			got := untilDone(t, r)
			if got == "" && c.carry {
				mustStep(t, r, r.deliver("booked", r.answer(book, 0, `{"booked":1}`)))
				got = untilDone(t, r)
			}
			if got != c.want {
				t.Errorf("the run ends with %q, want %q", got, c.want)
			}
			heard := 0
			for _, m := range r.state.History {
				if m.PlainText() == "Not so fast." {
					heard++
				}
			}
			if heard != 1 {
				t.Errorf("the message is in the conversation %d times", heard)
			}
		})
	}
}

// What others say that they have used counts, and no sum of it lifts a budget.
func TestTokens_UsedByOthersLiftNoBudget(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		agent bool
		used  int64
		// counts is what of three answers counts, and left what the run may still use: it has used 25 of 1000 itself.
		counts, left int64
	}{
		"of a service":            {false, 100, 300, 675},
		"of an agent":             {true, 100, 300, 675},
		"more than there can be":  {true, math.MaxInt64/2 + 1, math.MaxInt64, 1000 - math.MaxInt64},
		"less than nothing":       {true, -100, 0, 975},
		"of an agent, the utmost": {true, math.MaxInt64, math.MaxInt64, 1000 - math.MaxInt64},
	} {
		t.Run(name, func(t *testing.T) {
			find := service("find", minute)
			find.Agent = c.agent
			spec := newSpec(find)
			spec.MaxTokens = 1000
			r := begun(t, spec)
			call := sdk.ToolRequest{Name: "find", Arguments: `{}`}
			e := mustStep(t, r, r.drive(r.replied("", call, call, call)))
			for _, open := range e.Head.Calls {
				ev := r.answer(r.effect(e.Rev, open.ID), 0, `{}`)
				ev.Tokens = c.used
				mustStep(t, r, r.deliver(open.ID, ev))
			}
			if got := r.state.Delegated; got != c.counts {
				t.Errorf("%d tokens of others count, want %d", got, c.counts)
			}
			if got := r.state.TokensLeft(); got != c.left {
				t.Errorf("%d tokens are left, want %d", got, c.left)
			}
		})
	}
}
