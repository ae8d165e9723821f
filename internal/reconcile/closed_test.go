package reconcile_test

import (
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk/wire"
)

// emptied removes all calls and voids of a run from their stream.
func (r *rig) emptied() {
	r.t.Helper()
	for _, kind := range []wire.Kind{wire.KindOut, wire.KindVoid} {
		for subject := range r.messages(broker.ZoneOut, kind) {
			r.delete(broker.ZoneOut, subject)
		}
	}
}

// delivers everything again that the workers of desk have ever read.
func (r *rig) delivers() {
	r.t.Helper()
	r.stop()
	for _, ref := range broker.AgentConsumers("desk") {
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
	calls := r.messages(broker.ZoneOut, wire.KindOut)
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
	if calls := r.messages(broker.ZoneOut, wire.KindOut); len(calls) != 0 {
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
	if voids := r.messages(broker.ZoneOut, wire.KindVoid); len(voids) != 1 {
		t.Fatalf("the voids are %v; want one", voids)
	}
	r.emptied()
	r.later(2 * time.Hour)
	r.delivers()
	if voids := r.messages(broker.ZoneOut, wire.KindVoid); len(voids) != 0 {
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
	if voids := r.messages(broker.ZoneOut, wire.KindVoid); len(voids) != 0 {
		t.Errorf("voids of a call that is gone: %v", voids)
	}
	h := r.head(b)
	r.answer(h.Calls[0].Addresses(&h)[0])
	if code := r.done(second); code != "" {
		t.Errorf("the second generation ended with %q", code)
	}
}
