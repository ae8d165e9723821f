package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A pass finds what runs of all partitions miss, on both stores, and what timers have fired is removed from all streams.
func TestPartitions_AreAllPassedOver(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]func(*rig){"jetstream": func(*rig) {}, "redis": onRedis} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const partitions = 4
			r := start(t, option, func(r *rig) { r.partitions = partitions })
			var runs []begun
			on := map[streams.Zone]bool{}
			layout, err := r.conn.Layout(r.context())
			r.check("look how streams are divided", err)
			for len(on) < partitions || len(runs) < 2*partitions {
				b := r.begin("add")
				runs = append(runs, b)
				on[layout.OfRun(streams.Timer, b.key)] = true
			}
			for _, b := range runs {
				r.waiting(b, 1)
				r.check("fire", r.conn.Fire(r.context(), b.agent, b.key, 0)) // for nothing
			}
			r.settled()
			for _, b := range runs {
				r.delete(r.conn.Subjects().Timer(b.agent, b.key))
			}
			_, all := r.pass()
			if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.TimerLost: len(runs)}, kinds(all)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			r.nothing()
			if fired := r.messages(streams.Timer, wire.KindFire); len(fired) != len(runs) {
				t.Errorf("%d timers have fired of %d", len(fired), len(runs))
			}
			for _, b := range runs {
				r.answer(r.call(b))
			}
			for _, b := range runs {
				if code := r.done(b); code != "" {
					t.Errorf("%s ended with %s", b.subject, code)
				}
			}
			r.settled()
			if n := r.clear(sdk.DefaultCallsKept + time.Second); n != len(runs) {
				t.Errorf("%d runs lost their calls of %d", n, len(runs))
			}
			if fired := r.messages(streams.Timer, wire.KindFire); len(fired) != 0 {
				t.Errorf("timers that have fired stay: %v", fired)
			}
			r.nothing()
		})
	}
}

// The end of a run that another one called is on one of the streams of answers, where they are divided: while it is not there, the run's
// history stays.
func TestPurge_OfACalledRunWhoseEndIsNotThere(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.partitions = 2 })
	b := r.begin("clerk:add")
	r.waiting(b, 1)
	child := r.child(b)
	r.waiting(child, 1)
	r.answer(r.call(child))
	if code := r.done(b); code != "" {
		t.Fatalf("the run ended with %s", code)
	}
	r.settled()
	r.stop()
	layout, err := r.conn.Layout(r.context())
	r.check("look how streams are divided", err)
	r.check("delete the stream", r.conn.JetStream().DeleteStream(r.context(), streams.Name(r.conn.Subjects(), layout.OfRun(streams.In, b.key))))
	r.provision()
	if err := reconcile.Purge(r.context(), r.conn, r.store, child.key); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		t.Errorf("its history is removed, with %v", err)
	}
}
