package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// lose begins runs, wipes the Redis that keeps them, and returns the runs with their ends as they should be.
func lose(r *rig, lost sdk.Code) map[begun]sdk.Code {
	r.t.Helper()
	ends := map[begun]sdk.Code{}
	for range 3 {
		waiting, done, delegating := r.begin("add add"), r.begin("say"), r.begin("clerk:add")
		r.waiting(waiting, 1)
		r.done(done)
		r.waiting(delegating, 1)
		r.waiting(r.child(delegating), 1)
		ends[waiting], ends[done], ends[delegating] = lost, "", lost
	}
	r.settled()
	r.stop()
	ends[r.begin("say")] = "" // no worker has read it
	r.redis.Wipe()
	r.refused()
	r.storeLost()
	return ends
}

// refused makes a pass, which must end nothing: the store is not the one that runs are kept in.
func (r *rig) refused() {
	r.t.Helper()
	o := r.options()
	o.Found = func(f reconcile.Finding) { r.t.Errorf("found: %+v", f) }
	r.await("a pass is refused", func() bool {
		_, err := reconcile.Run(r.context(), o)
		if err == nil {
			r.t.Fatal("a pass over a store that lacks what runs are kept in is made")
		}
		return errors.Is(err, worker.ErrOtherStore) // not while it starts
	})
}

// TestRun_TotalLossOfRedisEndsEveryRunOnce is what "survived" means for a store that is gone.
func TestRun_TotalLossOfRedisEndsEveryRunOnce(t *testing.T) {
	t.Parallel()
	r := start(t, onRedis)
	ends := lose(r, sdk.CodeStateLost)
	_, all := r.pass()
	// Three waiting, three delegating, and three that they delegated to. The open calls of those that called the calculator
	// have been told to nobody, nor have those to the clerk.
	want := map[reconcile.Kind]int{reconcile.RunLost: 9, reconcile.CallOrphaned: 6}
	if diff := cmp.Diff(want, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	r.nothing()
	r.work()
	checkEnds(r, ends)
	r.settled()
	r.nothing()
	checkEnds(r, ends)
}

// checkEnds compares the ends of runs, and that each has one.
func checkEnds(r *rig, ends map[begun]sdk.Code) {
	r.t.Helper()
	for b, want := range ends {
		if code := r.done(b); code != want {
			r.t.Errorf("%s ended with %q, want %q", b.subject, code, want)
		}
	}
	terminals := r.messages(streams.Done, wire.KindDone)
	if len(terminals) != len(ends) {
		r.t.Errorf("%d terminal events for %d runs: %v", len(terminals), len(ends), terminals)
	}
	for subject, n := range terminals {
		if n != 1 {
			r.t.Errorf("%d terminal events on %s", n, subject)
		}
	}
}

// TestRun_RestartsLostRuns: agents whose tools may be called twice begin anew, and come to their proper end.
func TestRun_RestartsLostRuns(t *testing.T) {
	t.Parallel()
	r := start(t, onRedis, restarting)
	waiting := r.begin("add")
	r.waiting(waiting, 1)
	r.settled()
	r.stop() // a run that has just been begun anew would be found at work, and old on the clock of the pass
	r.redis.Wipe()
	r.storeLost()
	r.later(time.Hour) // no driver could still be at work
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.RunLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	r.work()
	r.waiting(waiting, 1)
	r.answer(r.call(waiting))
	if code := r.done(waiting); code != "" {
		t.Errorf("the run ended with %s", code)
	}
	r.settled()
	r.nothing()
	if n := len(r.messages(streams.Out, wire.KindVoid)); n != 0 {
		t.Errorf("%d calls were voided that the run makes again", n)
	}
}

// TestRun_OrphansAreVoidedAsByTheirRun: a service that tells events by their type must not take the void for the call.
func TestRun_OrphansAreVoidedAsByTheirRun(t *testing.T) {
	t.Parallel()
	r := start(t, onRedis)
	b := r.begin("add")
	r.waiting(b, 1)
	r.settled()
	call := r.call(b)
	r.redis.Wipe()
	r.storeLost()
	r.pass()
	d, err := r.conn.LastDelivery(r.context(), streams.Out, r.conn.Subjects().Void(call))
	r.check("look for the void", err)
	if d == nil {
		t.Fatal("the call was not voided")
	}
	void, err := wire.DecodeEvent(d.Headers(), d.Data())
	r.check("decode the void", err)
	want := wire.Event{
		ID: call.Call + "-void", Source: r.conn.Subjects().Reply(call), Type: "sys.calc.add.void", Subject: b.subject,
		ParentID: call.Call, Agent: "desk", DataContentType: "application/json", Data: []byte("{}"),
	}
	if diff := cmp.Diff(want, void); diff != "" {
		t.Errorf("the void (-want +got):\n%s", diff)
	}
}

// TestRun_LateAnswersToLostRunsChangeNothing: a service may have been at work when the store was lost.
func TestRun_LateAnswersToLostRunsChangeNothing(t *testing.T) {
	t.Parallel()
	r := start(t, onRedis)
	b := r.begin("add")
	r.waiting(b, 1)
	r.settled()
	call := r.call(b)
	r.redis.Wipe()
	r.storeLost()
	r.pass()
	r.answer(call)
	r.settled()
	if code := r.done(b); code != sdk.CodeStateLost {
		t.Errorf("the run ended with %q", code)
	}
	if h := r.head(b); h.Status != core.StatusDone || h.Reason != core.ReasonError {
		t.Errorf("the run is %s (%s)", h.Status, h.Reason)
	}
	r.nothing()
}

// TestRun_RollbackDeliversAnswersAgain sets a journal back to before an answer that workers have acked.
func TestRun_RollbackDeliversAnswersAgain(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			b, other := r.begin("add add"), r.begin("add")
			r.waiting(b, 1)
			r.waiting(other, 1)
			first := r.call(b)
			entries := r.length(b)
			r.answer(first)
			r.waiting(b, 2)
			r.settled()
			r.rollBack(b, entries)
			r.waiting(b, 1)
			_, all := r.pass()
			if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.AnswerLost: 1}, kinds(all)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			r.waiting(b, 2)
			r.settled()
			r.nothing()
			r.answer(r.call(b))
			if code := r.done(b); code != "" {
				t.Errorf("the run ended with %s", code)
			}
			r.settled()
			r.nothing()
		})
	}
}

// TestRun_RefusedAnswersStayRefused: a call that is still open because its answer was refused is as it should be.
func TestRun_RefusedAnswersStayRefused(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	at := r.call(b)
	ev := wire.Event{ID: "forged", Source: "calc.add", Type: "calc.added", Subject: "any", ParentID: "another call", Data: []byte(`{"sum":1}`)}
	r.check("answer", r.conn.Publish(r.context(), r.conn.Subjects().Reply(at), ev))
	r.settled()
	r.nothing()
}
