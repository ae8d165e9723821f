package reconcile_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// emptied removes all calls and voids from their stream, as who clears it does.
func (r *rig) emptied() {
	r.t.Helper()
	r.check("note whose calls are removed", r.conn.NotePurged(r.context(), r.now().UnixMilli()))
	r.loses()
}

// loses has the broker lose all calls and voids.
func (r *rig) loses() {
	r.t.Helper()
	for _, kind := range []wire.Kind{wire.KindOut, wire.KindVoid} {
		for subject := range r.messages(streams.Out, kind) {
			r.delete(subject)
		}
	}
}

// delivers everything again that the workers of desk have ever read.
func (r *rig) delivers() {
	r.t.Helper()
	r.stop()
	for _, ref := range r.consumers("desk") {
		r.rewind(ref)
	}
	r.work()
	r.settled()
}

// A call that was answered, and is gone from the stream, is not made again by whatever is delivered again: its service would do it again.
func TestRelay_MakesNoClosedCallAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add add")
	r.waiting(b, 1)
	answered := r.call(b)
	r.answer(answered)
	r.waiting(b, 2)
	open := r.conn.Subjects().Call(r.call(b))
	r.settled()
	r.emptied()
	r.delivers()
	calls := r.messages(streams.Out, wire.KindOut)
	if len(calls) != 1 || calls[open] != 1 {
		t.Errorf("on the stream are %v; want %s alone, which is open", calls, open)
	}
	r.answer(r.call(b))
	if code := r.done(b); code != "" {
		t.Errorf("the run ended with %s", code)
	}
	r.settled()
	r.emptied()
	r.delivers()
	if calls := r.messages(streams.Out, wire.KindOut); len(calls) != 0 {
		t.Errorf("calls of a run that has ended are made again: %v", calls)
	}
}

// The void of a call that is gone is not published again: nobody has the call.
func TestRelay_PublishesNoVoidOfACallThatIsGone(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	r.check("cancel", r.conn.Control(r.context(), wire.ControlCancel, "desk", b.key, "", wire.Event{
		ID: "cancel", Source: "test", Type: wire.TypeCancel, Subject: b.subject, Time: time.UnixMilli(1_790_000_000_000),
	}))
	r.done(b)
	r.settled()
	if voids := r.messages(streams.Out, wire.KindVoid); len(voids) != 1 {
		t.Fatalf("the voids are %v; want one", voids)
	}
	r.emptied()
	r.later(2 * time.Hour)
	r.delivers()
	if voids := r.messages(streams.Out, wire.KindVoid); len(voids) != 0 {
		t.Errorf("voids of a call that is gone: %v", voids)
	}
}

// Nor is it when the run has been taken up again since: it goes on, and its earlier end is as long ago as ever.
func TestRelay_PublishesNoVoidOfAnEarlierGeneration(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.agents[0].Spec.Limits.DeadlineMillis = generation.Milliseconds() })
	b := r.begin("add")
	r.waiting(b, 1)
	r.done(b)
	r.settled()
	r.emptied()
	r.later(2 * time.Hour)
	second := r.retry(b, "again")
	r.await("the call is made again", func() bool { h := r.head(b); return h.Status == core.StatusWaiting && h.Retry != nil })
	r.settled()
	r.delivers()
	if voids := r.messages(streams.Out, wire.KindVoid); len(voids) != 0 {
		t.Errorf("voids of a call that is gone: %v", voids)
	}
	h := r.head(b)
	r.answer(h.Calls[0].Addresses(&h)[0])
	if code := r.done(second); code != "" {
		t.Errorf("the second generation ended with %q", code)
	}
}

// What the broker has lost is not taken for removed, however long ago the run has ended: its service may have the call in hand.
func TestRelay_PublishesTheVoidOfACallThatIsLost(t *testing.T) {
	t.Parallel()
	for name, repair := range map[string]func(*rig){
		"a message comes again": (*rig).delivers,
		"streams are refilled": func(r *rig) {
			_, err := reconcile.Refill(r.context(), r.options(), r.now().Add(-2*time.Hour))
			r.check("refill", err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t)
			before := r.begin("add")
			r.waiting(before, 1)
			r.cancel(before)
			r.done(before)
			r.settled()
			r.emptied() // of calls that others have made
			b := r.begin("add")
			r.waiting(b, 1)
			r.cancel(b)
			r.done(b)
			r.settled()
			voids := r.messages(streams.Out, wire.KindVoid)
			r.loses()
			r.later(sdk.DefaultCallsKept + time.Minute)
			repair(r)
			if diff := cmp.Diff(voids, r.messages(streams.Out, wire.KindVoid)); diff != "" || len(voids) != 1 {
				t.Errorf("voids of the call that is lost, and of those that were removed (-want +got):\n%s", diff)
			}
		})
	}
}
