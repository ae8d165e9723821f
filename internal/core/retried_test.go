package core_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func retriedBy(id string) core.Retried {
	return core.Retried{Operation: core.Operation{ID: id, Source: "operator", Who: "ann"}}
}

// must lets an input happen.
func (r *rig) must(t *testing.T, in core.Input) (core.Change, *core.Entry) {
	t.Helper()
	change, entry, err := r.step(in)
	if err != nil {
		t.Fatalf("%T: %v", in.Event, err)
	}
	return change, entry
}

// endedByDeadline is a run that ended by its deadline with an answered call and two that wait: a service's, in two domains, and a question.
func endedByDeadline(t *testing.T) *rig {
	t.Helper()
	r := newRig(newSpec(service("lookup", minute), service("book", 5*minute, "airline", "back.up"), inline("add", false), inline("charge", true)))
	r.must(t, r.deliver("init-1", started("order 7", "hello")))
	r.must(t, r.drive(r.replied("", sdk.ToolRequest{Name: "lookup", Arguments: `{"n":1}`}, sdk.ToolRequest{Name: "book", Arguments: `{"n":2}`},
		sdk.ToolRequest{Name: "add", Arguments: `{}`}, sdk.ToolRequest{Name: "charge", Arguments: `{}`})))
	var begin []string
	calls := r.state.Calls
	begin = append(begin, calls[3].ID)
	r.must(t, r.drive(core.Began{Calls: begin}))
	answer := r.answer(r.effect(2, calls[0].ID), 0, `{"found":1}`)
	r.must(t, r.deliver(answer.EventID, answer))
	r.must(t, r.drive(core.Returned{Asks: []core.Ask{{Call: calls[2].ID, Data: []byte(`{"question":"sure?"}`)}}}))
	r.now = r.state.Deadline
	r.must(t, r.drive(core.Ended{Ending: core.Ending{Reason: core.ReasonDeadline, Code: sdk.CodeDeadline, Message: "late", Detail: "run"}}))
	return r
}

// TestRetried_TakesUpWhereTheRunEnded: what has a result keeps it, what the end gave up is asked for again under the same key, and a
// tool of which nobody knows whether it ran is not run again.
func TestRetried_TakesUpWhereTheRunEnded(t *testing.T) {
	t.Parallel()
	r := endedByDeadline(t)
	ended := r.state.Head
	if len(r.state.History) != 6 { // the task, the reply, four results
		t.Fatalf("the history of the run that ended has %d messages", len(r.state.History))
	}
	r.now += minute
	change, entry := r.must(t, r.deliver("retry-1", retriedBy("retry-1")))
	h := &r.state.Head
	lookup, book, add, charge, question := h.Calls[0], h.Calls[1], h.Calls[2], h.Calls[3], h.Calls[4]
	if h.Status != core.StatusWaiting || h.V != 3 || h.Deadline != r.now+60*minute || h.Reason != "" || !entry.Reopens {
		t.Errorf("the head is %+v", h)
	}
	if len(r.state.History) != 2 {
		t.Errorf("the history has %d messages, want those before the end", len(r.state.History))
	}
	if lookup.Status != core.CallSucceeded || charge.Status != core.CallFailed || add.Status != core.CallSuspended {
		t.Errorf("the calls are %+v", h.Calls)
	}
	if book.Due != r.now+5*minute || question.Due != r.now+30*minute || h.Timer != book.Due {
		t.Errorf("book is due at %d, the question at %d, the timer fires at %d", book.Due, question.Due, h.Timer)
	}
	want := []core.Effect{
		{
			Kind: core.EffectCall, Call: book.ID, Attempt: 2, Repeated: 1, Opened: 2, Type: "shop.book", Domains: []string{"airline", "back.up"},
			Schema: "#/shop/book/1.0.0",
		},
		{
			Kind: core.EffectCall, Call: question.ID, Attempt: 2, Repeated: 1, Opened: 5, Type: sdk.TypeQuestion,
			Domains: []string{sdk.HumanDomain}, Schema: "#/agentd/question/ask/1.0.0",
		},
		{Kind: core.EffectTimer, Due: book.Due},
	}
	if diff := cmp.Diff(want, change.Effects); diff != "" {
		t.Errorf("effects, -want +have:\n%s", diff)
	}
	token := wire.InitToken("operator", "retry-1")
	generation := h.Generation()
	if generation.ID != "retry-1" || generation.Token != token || generation.RedirectTo != "shop.web" || h.Init.ID != "init-1" {
		t.Errorf("the generation began with %+v", generation)
	}
	if first := wire.TerminalID(h.Key(), ended.Init.Token); h.RetryOf() != first || ended.RetryOf() != "" {
		t.Errorf("it is a retry of %q, want %q", h.RetryOf(), first)
	}
	r.finishRetried(t, book, question)
}

// finishRetried answers what is open: first too late, then as asked again.
func (r *rig) finishRetried(t *testing.T, book, question core.Call) {
	t.Helper()
	late := r.answer(r.effect(2, book.ID), 0, `{"booked":"late"}`)
	if _, _, err := r.step(r.deliver("late", late)); !errors.Is(err, core.ErrStale) {
		t.Errorf("an answer to the attempt that was given up: %v, want stale", err)
	}
	rev := r.state.Rev
	for _, c := range []core.Call{book, question} {
		answer := r.answer(r.effect(rev, c.ID), 0, `{"answer":"now"}`)
		r.must(t, r.deliver(answer.EventID, answer))
	}
	next, ok := r.next().(core.RunTools)
	if !ok || len(next.Run) != 1 || next.Run[0].Tool != "add" || len(next.Begin)+len(next.Lost) > 0 {
		t.Fatalf("next is %+v", r.next())
	}
	r.must(t, r.drive(core.Returned{Results: []core.Result{{Call: next.Run[0].ID, Kind: core.ResultInline, Data: []byte(`{"sum":1}`)}}}))
	var shown []string
	for _, m := range r.state.Messages()[2:] {
		shown = append(shown, m.Content[0].Tool+" "+m.Content[0].Text)
	}
	want := []string{`lookup {"found":1}`, `book {"answer":"now"}`, `add {"sum":1}`}
	if len(shown) != 4 || !cmp.Equal(shown[:3], want) || !strings.HasPrefix(shown[3], `charge {"error":{"code":"outcome_unknown"`) {
		t.Errorf("the model is shown %q, want %q", shown, want)
	}
}

// TestRetried_IsOnceForEachEvent: an event that comes again changes nothing, whatever has become of the run.
func TestRetried_IsOnceForEachEvent(t *testing.T) {
	t.Parallel()
	r := endedByDeadline(t)
	for _, id := range []string{"retry-1", "retry-2"} {
		r.must(t, r.deliver(id, retriedBy(id)))
		for _, again := range []string{"retry-1", id} {
			if _, _, err := r.step(r.deliver(again, retriedBy(again))); !errors.Is(err, core.ErrStale) {
				t.Errorf("%s after %s: %v, want stale", again, id, err)
			}
		}
		if _, _, err := r.step(r.deliver("other", retriedBy("other"))); !errors.Is(err, &sdk.Error{Code: sdk.CodeRetryRefused}) {
			t.Errorf("another retry while the run is %s: %v, want refused", r.state.Status, err)
		}
		r.now = r.state.Timer
		for r.state.Status != core.StatusDone {
			r.now = max(r.now, r.state.Deadline)
			r.must(t, r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer}))
		}
	}
	if got := r.state.Retry.Before; len(got) != 1 || got[0] != wire.InitToken("operator", "retry-1") {
		t.Errorf("the retries before are %v", got)
	}
}

// TestRetried_LimitsCountAnew: a run that ended by a limit could not go on otherwise.
func TestRetried_LimitsCountAnew(t *testing.T) {
	t.Parallel()
	spec := newSpec(inline("add", false))
	spec.MaxTurns, spec.MaxTokens = 2, 60
	r := newRig(spec)
	r.must(t, r.deliver("init-1", started("order 7", "hello")))
	for generation := range 3 {
		for range 2 {
			r.must(t, r.drive(r.replied("no object")))
		}
		end, ok := r.next().(core.End)
		if !ok || end.Ending.Detail != "interactions" {
			t.Fatalf("generation %d: next is %+v", generation, r.next())
		}
		r.must(t, r.drive(core.Ended{Ending: end.Ending}))
		id := "retry-" + string(rune('a'+generation))
		r.must(t, r.deliver(id, retriedBy(id)))
		if left := r.state.TokensLeft(); left != 60 || r.state.Turns != 2*(generation+1) {
			t.Errorf("generation %d: %d tokens left after %d interactions, want 60", generation, left, r.state.Turns)
		}
	}
}

// TestCheckRetry_Refuses names every run that cannot be retried.
func TestCheckRetry_Refuses(t *testing.T) {
	t.Parallel()
	done := func(reason core.Reason, change func(*core.Head)) core.Head {
		h := core.Head{Run: "order 7", Status: core.StatusDone, Reason: reason, ReasonCode: "x"}
		if change != nil {
			change(&h)
		}
		return h
	}
	before := make([]string, core.MaxRetries-1)
	for name, c := range map[string]struct {
		head core.Head
		want string
	}{
		"error":      {done(core.ReasonError, nil), ""},
		"quota":      {done(core.ReasonQuota, nil), ""},
		"deadline":   {done(core.ReasonDeadline, nil), ""},
		"cancelled":  {done(core.ReasonCancelled, nil), "the run ended with cancelled:x; only runs that ended with error, quota or deadline can be retried"},
		"completed":  {done(core.ReasonCompleted, nil), "the run ended with completed:x"},
		"stopped":    {done(core.ReasonStopped, nil), "the run ended with stopped:x"},
		"stalled":    {done(core.ReasonStalled, nil), "the run ended with stalled:x"},
		"terminated": {done(core.ReasonTerminated, nil), "the run ended with terminated:x"},
		"running":    {core.Head{Run: "order 7", Status: core.StatusRunning}, "the run has not ended: it is running"},
		"purged": {
			done(core.ReasonError, func(h *core.Head) { h.Purged = &core.Purged{} }), "the run's history is gone",
		},
		"lost": {
			done(core.ReasonError, func(h *core.Head) { h.ReasonCode = string(sdk.CodeStateLost) }), "the run's history is gone",
		},
		"called": {
			done(core.ReasonError, func(h *core.Head) { h.Init.Reply, h.Init.ReplySubject = &wire.CallAddress{}, "trip 1" }),
			`the run answers a call of run "trip 1"; retry the caller`,
		},
		"too often": {
			done(core.ReasonError, func(h *core.Head) { h.Retry = &core.RetryEvent{Before: before} }), "the run was taken up 32 times",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			refusal := c.head.CheckRetry()
			if (refusal == nil) != (c.want == "") || refusal != nil && !strings.HasPrefix(refusal.Message, c.want) {
				t.Errorf("CheckRetry() = %v, want %q", refusal, c.want)
			}
		})
	}
}

// TestRetried_BeginsAnewWhatNeverBegan: a run that ended before it did anything gets its context built again, and hears what was said to it.
func TestRetried_BeginsAnewWhatNeverBegan(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec())
	r.must(t, r.deliver("init-1", started("order 7", "hello")))
	r.must(t, r.deliver("message", steered("quick")))
	failed := core.Ending{Reason: core.ReasonError, Code: sdk.CodeInternal, Message: "a hook failed", Detail: "hook"}
	r.must(t, r.drive(core.Ended{Ending: failed}))
	retry := retriedBy("retry-1")
	retry.Beginning = &core.Beginning{System: "Be good.", Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "hello, with context")}}
	r.must(t, r.deliver("retry-1", retry))
	if _, review := r.next().(core.Review); !review {
		t.Fatalf("next is %T, want the message to be heard", r.next())
	}
	r.must(t, r.drive(core.Reviewed{}))
	messages := r.state.Messages()
	if r.state.System != "Be good." || len(messages) != 2 || messages[0].PlainText() != "hello, with context" || messages[1].PlainText() != "quick" {
		t.Errorf("system %q, history %+v", r.state.System, messages)
	}
}

// TestRetried_KeepsWhatWasSaid: a message came while the run waited for its model, and was said before the run ended. Its context is
// not built again, because who sent it would have to send it once more.
func TestRetried_KeepsWhatWasSaid(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec())
	r.must(t, r.deliver("init-1", started("order 7", "hello")))
	r.must(t, r.deliver("message", steered("quick")))
	r.must(t, r.drive(core.Reviewed{}))
	failed := core.Ending{Reason: core.ReasonError, Code: sdk.CodeInternal, Message: "the model refuses"}
	r.must(t, r.drive(core.Ended{Ending: failed}))
	retry := retriedBy("retry-1")
	r.must(t, r.deliver("retry-1", retry))
	messages := r.state.Messages()
	if len(messages) != 2 || messages[0].PlainText() != "hello" || messages[1].PlainText() != "quick" {
		t.Errorf("history %+v", messages)
	}
	if _, calls := r.next().(core.CallModel); !calls {
		t.Errorf("next is %T, want the model to be called", r.next())
	}
}
