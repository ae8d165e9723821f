package core_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
)

const said = `{"response":"Two of three are not done."}`

// answering is a run that has not called its model yet, of which the agent may do so often.
func answering(t *testing.T, spec *core.Spec, turns int) *rig {
	t.Helper()
	spec.MaxTurns = turns
	r := newRig(spec)
	if _, _, err := r.step(r.deliver("init", started("order 7", "Do three things."))); err != nil {
		t.Fatal(err)
	}
	return r
}

// A text that a judge objects to is sent back only to a model that can give another one: one that is called once more, and is offered tools
// where that is what it is told to use. A requirement lets no output pass that does not satisfy it, unless it is optional.
func TestAnswers_AreSentBackOnlyWhereThatCanMendThem(t *testing.T) {
	for name, c := range map[string]struct {
		turns     int
		budget    int64
		final     bool
		objection core.Objection
		ends      string
		judged    core.Judged
	}{
		"a judge":                       {2, 0, false, core.Objection{WantsCalls: true}, "", core.Judged{Times: 1}},
		"a judge, of a final answer":    {2, 0, true, core.Objection{WantsCalls: true}, "completed:answer", core.Judged{Times: 1, Accepted: true}},
		"a judge, in the last call":     {1, 0, false, core.Objection{}, "completed:answer", core.Judged{Times: 1, Accepted: true}},
		"a judge, without tokens":       {2, 25, false, core.Objection{}, "completed:answer", core.Judged{Times: 1, Accepted: true}},
		"optional, of a final answer":   {2, 0, true, core.Objection{}, "", core.Judged{Times: 1}},
		"a requirement, in the last":    {1, 0, true, core.Objection{Required: true}, "quota:interactions", core.Judged{Times: 1}},
		"a requirement, once too often": {2, 0, false, core.Objection{Required: true, Most: -1}, "error:vague", core.Judged{Times: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := newSpec()
			spec.MaxTokens = c.budget
			r := answering(t, spec, c.turns)
			c.objection.Judge, c.objection.Found, c.objection.Nudge = "vague", "not done", "Do it."
			c.objection.Most++
			ev := r.replied(said)
			ev.Final, ev.Objections = c.final, []core.Objection{c.objection}
			if _, _, err := r.step(r.drive(ev)); err != nil {
				t.Fatal(err)
			}
			c.judged.Judge, c.judged.Found = "vague", "not done"
			if diff := cmp.Diff(&c.judged, r.entries[1].Judged); diff != "" {
				t.Errorf("told, -want +got:\n%s", diff)
			}
			if end, ends := r.next().(core.End); ends {
				if _, _, err := r.step(r.drive(core.Ended{Ending: end.Ending})); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.state.Termination(); got != c.ends {
				t.Errorf("the run ends with %q, want %q", got, c.ends)
			}
		})
	}
}

// An output that an optional service does not accept is the answer all the same when the model is not called any more.
func TestAnswers_OptionalServicesDoNotEndARun(t *testing.T) {
	for turns, want := range map[int]string{1: "completed:answer", 2: ""} {
		spec := newSpec()
		spec.Contexts = []core.ContextProvider{{
			Section: "answer:legal", Gate: &core.AnswerGate{Name: "legal", Most: 3, Optional: true}, Service: service("review", minute),
		}}
		r := answering(t, spec, turns)
		ev := r.replied(said)
		ev.Question = []byte(`{"output":{}}`)
		_, e, err := r.step(r.drive(ev))
		if err != nil {
			t.Fatal(err)
		}
		answer := r.answer(r.effect(e.Rev, e.Head.Calls[0].ID), 0, `{"accepted":false,"feedback":"Two are missing."}`)
		if _, _, err = r.step(r.deliver("answer", answer)); err != nil {
			t.Fatal(err)
		}
		if _, built := r.next().(core.BuildOutput); built {
			if _, _, err := r.step(r.drive(core.Built{Output: *output(r.state.StopText())})); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.state.Termination(); got != want {
			t.Errorf("of %d calls: the run ends with %q, want %q; next is %T", turns, got, want, r.next())
		}
	}
}
