package reconcile_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
)

// A run that the store sets back to before an answer goes on with that answer, though its call is gone: the service does not get it again.
func TestClear_RunThatIsSetBack(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			b := r.begin("add")
			r.waiting(b, 1)
			entries := r.length(b)
			r.answer(r.call(b))
			r.done(b)
			r.settled()
			if n := r.clear(time.Hour); n != 1 {
				t.Fatalf("%d runs lost their calls, want 1", n)
			}
			r.rollBack(b, entries)
			r.waiting(b, 1)
			_, all := r.pass()
			if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.AnswerLost: 1}, kinds(all)); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			r.await("the end", func() bool { return r.head(b).Status == core.StatusDone })
			r.settled()
			r.wantLeft("when it has ended again", left{})
		})
	}
}

// Nor does it while nobody has read the answer that was delivered again: no pass makes the call, however many there are.
func TestClear_RunThatIsSetBackWithoutWorkers(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	entries := r.length(b)
	r.answer(r.call(b))
	r.done(b)
	r.settled()
	if n := r.clear(time.Hour); n != 1 {
		t.Fatalf("%d runs lost their calls, want 1", n)
	}
	r.stop()
	r.rollBack(b, entries)
	for pass := 1; pass <= 2; pass++ {
		_, all := r.pass()
		if want := map[reconcile.Kind]int{reconcile.AnswerLost: 2 - pass}; kinds(all)[reconcile.AnswerLost] != 2-pass || len(all) != 2-pass {
			t.Errorf("pass %d finds %v, want %v", pass, kinds(all), want)
		}
	}
	r.wantLeft("without a worker", left{})
	r.work()
	r.await("the end", func() bool { return r.head(b).Status == core.StatusDone })
	r.settled()
	r.wantLeft("when it has ended again", left{})
}

// An answer that the run does not take, however often it gets it, keeps no pass from arming the run's timer.
func TestRun_AnswerThatIsNotTakenHidesNothing(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	at := r.call(b)
	r.settled()
	r.stop()
	r.answer(at)
	reply := r.conn.Subjects().Reply(at)
	original, err := r.conn.LastDelivery(r.context(), streams.In, reply)
	r.check("read the answer", err)
	for range 3 {
		r.check("deliver it again", r.conn.Redeliver(r.context(), original))
	}
	r.reads(streams.AgentConsumers("desk")[1]) // as a worker that refuses it without a word
	r.delete(r.conn.Subjects().Timer(b.agent, b.key))
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.AnswerLost: 1, reconcile.TimerLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	armed, err := r.conn.LastDelivery(r.context(), streams.Timer, r.conn.Subjects().Timer(b.agent, b.key))
	if want := fmt.Sprintf(`{"due":%d}`, r.head(b).Timer); err != nil || armed == nil || string(armed.Data()) != want {
		t.Errorf("armed: %v, %v, want %s", armed, err, want)
	}
	r.work()
}
