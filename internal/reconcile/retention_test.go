package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const day = 24 * time.Hour

// after makes a pass that takes place later. It looks after no agent: timers have not fired meanwhile as they would have.
func (r *rig) after(d time.Duration) reconcile.Report {
	r.t.Helper()
	report, all := r.pass(func(o *reconcile.Options) {
		o.Agents, o.Now = nil, func() time.Time { return r.now().Add(d) }
	})
	if len(all) > 0 {
		r.t.Errorf("found: %+v", all)
	}
	return report
}

func (r *rig) journal(b begun) []core.Entry {
	r.t.Helper()
	entries, err := r.worker.Runner().Journal(r.context(), b.key)
	r.check("read journal", err)
	return entries
}

// TestRun_FinishedRunsLoseTheirHistoryAndThenTheirName takes one run through its life and a waiting one beside it.
func TestRun_FinishedRunsLoseTheirHistoryAndThenTheirName(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			done, waiting := r.begin("add"), r.begin("add")
			r.waiting(done, 1)
			r.answer(r.call(done))
			r.done(done)
			r.waiting(waiting, 1)
			r.settled()
			whole, kept := r.journal(done), r.journal(waiting)
			last, err := r.store.Head(r.context(), done.key)
			r.check("read head", err)

			if report := r.after(29 * day); report.Purged != 0 {
				t.Errorf("a history was removed too early: %+v", report)
			}
			if report := r.after(31 * day); report.Purged != 1 || report.Removed != 0 {
				t.Errorf("after 31 days: %+v", report)
			}
			entries := r.journal(done)
			if len(entries) != 1 {
				t.Fatalf("%d entries are left", len(entries))
			}
			h, end := entries[0].Head, whole[len(whole)-1]
			want := core.Purged{At: h.Purged.At, Rev: end.Rev, Digest: core.Digest(last.Data)}
			if diff := cmp.Diff(want, *h.Purged); diff != "" {
				t.Errorf("tombstone (-want +got):\n%s", diff)
			}
			if entries[0].At != end.At || h.Reason != end.Head.Reason || h.Init != end.Head.Init || h.Run != done.subject {
				t.Errorf("the tombstone is not of the run: %+v", entries[0])
			}
			if diff := cmp.Diff(kept, r.journal(waiting)); diff != "" {
				t.Errorf("the waiting run was touched:\n%s", diff)
			}
			if report := r.after(60 * day); report.Purged+report.Removed != 0 {
				t.Errorf("after 60 days: %+v", report)
			}
			if report := r.after(200 * day); report.Removed != 1 {
				t.Errorf("after 200 days: %+v", report)
			}
			if _, err := r.store.Head(r.context(), done.key); !errors.Is(err, runner.ErrNotFound) {
				t.Errorf("the tombstone is still there: %v", err)
			}
			if h := r.head(waiting); h.Status != core.StatusWaiting {
				t.Errorf("the waiting run is %q", h.Status)
			}
		})
	}
}

// TestRun_MessagesOfPurgedRunsChangeNothing delivers everything that a run was ever sent again, from the beginning.
func TestRun_MessagesOfPurgedRunsChangeNothing(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			plain, delegating := r.begin("add"), r.begin("clerk:add")
			r.waiting(plain, 1)
			r.answer(r.call(plain))
			r.waiting(delegating, 1)
			child := r.child(delegating)
			r.waiting(child, 1)
			r.answer(r.call(child))
			ends := map[begun]sdk.Code{plain: "", delegating: ""}
			checkEnds(r, ends)
			r.settled()
			if report := r.after(31 * day); report.Purged != 3 {
				t.Fatalf("after 31 days: %+v", report)
			}
			before := r.streams()
			r.stop()
			for _, a := range r.agents {
				for _, ref := range r.consumers(a.Spec.Name) {
					r.rewind(ref)
				}
			}
			r.work()
			r.settled()
			checkEnds(r, ends)
			if diff := cmp.Diff(before, r.streams()); diff != "" {
				t.Errorf("something was stored (-before +after):\n%s", diff)
			}
			for _, b := range []begun{plain, delegating, child} {
				if h := r.head(b); h.Purged == nil {
					t.Errorf("%s is %s", b.subject, h.Status)
				}
			}
		})
	}
}

// TestRun_EndsOfPurgedRunsArePublishedByNobody: a tombstone says that the terminal event was there for as long as it is kept. Where it is gone
// neither a message that comes again nor a pass makes it anew, nor a void of what the run asked for.
func TestRun_EndsOfPurgedRunsArePublishedByNobody(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			answered, cancelled := r.begin("add"), r.begin("add")
			r.waiting(answered, 1)
			r.answer(r.call(answered))
			r.waiting(cancelled, 1)
			r.cancel(cancelled)
			checkEnds(r, map[begun]sdk.Code{answered: "", cancelled: r.done(cancelled)})
			r.settled()
			if report := r.after(31 * day); report.Purged != 2 {
				t.Fatalf("after 31 days: %+v", report)
			}
			for _, b := range []begun{answered, cancelled} {
				r.delete(r.conn.Subjects().Done(b.agent, b.key, b.init))
			}
			r.emptied()
			before := r.streams()
			r.later(time.Hour)
			r.delivers()
			if diff := cmp.Diff(before, r.streams()); diff != "" {
				t.Errorf("something was stored (-before +after):\n%s", diff)
			}
			r.nothing()
			for _, b := range []begun{answered, cancelled} {
				err := r.worker.Runner().Repair(r.context(), wire.NameToken(b.agent), b.key)
				r.check("repair", err)
			}
			if left := r.messages(streams.Done, wire.KindDone); len(left) != 0 {
				t.Errorf("ends are published again: %v", left)
			}
		})
	}
}

// TestRun_OtherInitOfAPurgedRunIsRefused: the name is taken for as long as the tombstone is there.
func TestRun_OtherInitOfAPurgedRunIsRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("say")
	r.done(b)
	r.settled()
	r.after(31 * day)
	other := wire.Event{ID: "other", Source: "com.test.client", Type: "desk", Subject: b.subject, Data: []byte(`{"message":"say"}`)}
	r.check("start", r.conn.Start(r.context(), "desk", other))
	if code := r.done(begun{"desk", b.subject, wire.InitToken(other.Source, other.ID), b.key}); code != sdk.CodeRunExists {
		t.Errorf("it ended with %q", code)
	}
	r.nothing()
}

// TestRun_RetentionOff keeps histories for ever.
func TestRun_RetentionOff(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.done(r.begin("say"))
	r.settled()
	report, _ := r.pass(func(o *reconcile.Options) {
		o.History, o.Now = 0, func() time.Time { return r.now().Add(1000 * day) }
	})
	if report.Purged+report.Removed != 0 {
		t.Errorf("report: %+v", report)
	}
}
