package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/reconcile"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Whatever a store that is not the one that runs are kept in says of them, it has nothing published again, and nothing removed.
func TestPasses_DoNothingByAnotherStore(t *testing.T) {
	t.Parallel()
	r := start(t)
	done := r.begin("add")
	r.waiting(done, 1)
	r.answer(r.call(done))
	if code := r.done(done); code != "" {
		t.Fatalf("the run ended with %s", code)
	}
	waits := r.begin("add")
	r.waiting(waits, 1)
	r.settled()
	r.stop()
	r.refilled()
	call := r.conn.Subjects().Call(r.call(waits))
	r.delete(call)
	o := r.options()
	o.Right, o.Calls = func(context.Context) error { return worker.ErrOtherStore }, sdk.DefaultCallsKept
	since := r.now().Add(-time.Hour)
	for name, pass := range map[string]func() (reconcile.Report, error){
		"refill":             func() (reconcile.Report, error) { return reconcile.Refill(r.context(), o, since) },
		"refill of unserved": func() (reconcile.Report, error) { return reconcile.RefillUnserved(r.context(), o, since) },
		"clear":              func() (reconcile.Report, error) { return reconcile.Clear(r.context(), o) },
	} {
		if report, err := pass(); !errors.Is(err, worker.ErrOtherStore) || report.Runs+report.Cleared > 0 {
			t.Errorf("%s: %+v, %v", name, report, err)
		}
	}
	if calls := r.messages(streams.Out, wire.KindOut); len(calls) != 1 || calls[call] != 0 {
		t.Errorf("there are the calls %v, want that of the run that is done alone", calls)
	}
}
