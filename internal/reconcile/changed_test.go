package reconcile_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// counting is a store that counts what a pass reads of it.
type counting struct {
	state.Store
	heads, pages atomic.Int64
}

func (c *counting) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	c.heads.Add(1)
	return c.Store.Head(ctx, run)
}

func (c *counting) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	c.pages.Add(1)
	return c.Store.Runs(ctx, cursor, limit)
}

// looked is what a pass that was due has read and found.
type looked struct {
	// All says that it has looked at all runs; else Heads are the runs that it has read.
	All   bool
	Heads int64
	Found map[reconcile.Kind]int
}

// scheduled makes the passes that are due for the desk's runs, of which nothing is too young.
func (r *rig) scheduled(change ...func(*reconcile.Options)) looked {
	r.t.Helper()
	o := r.options()
	store := &counting{Store: o.Store}
	var all []reconcile.Finding
	o.Store, o.Now, o.OlderThan, o.FullInterval = store, r.now, time.Millisecond, 24*time.Hour
	o.Agents = []sdk.AgentSpec{r.agents[0].Spec}
	o.Found = func(f reconcile.Finding) {
		r.t.Logf("found: %+v", f)
		all = append(all, f)
	}
	for _, c := range change {
		c(&o)
	}
	began := r.now()
	r.await("what has happened is not too young", func() bool { return r.now().Sub(began) > 2*time.Millisecond })
	r.check("pass", reconcile.Scheduled(r.context(), o))
	l := looked{All: store.pages.Load() > 0, Found: kinds(all)}
	if !l.All {
		l.Heads = store.heads.Load()
	}
	return l
}

func (r *rig) wantLooked(when string, got, want looked) {
	r.t.Helper()
	if want.Found == nil {
		want.Found = map[reconcile.Kind]int{}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// ended makes some runs that end.
func (r *rig) ended(steps ...string) []begun {
	r.t.Helper()
	var runs []begun
	for _, s := range steps {
		b := r.begin(s)
		runs = append(runs, b)
		if s != "say" {
			r.waiting(b, 1)
			r.answer(r.call(b))
		}
		r.done(b)
	}
	r.settled()
	return runs
}

func (r *rig) deleteEnd(b begun) {
	r.t.Helper()
	r.delete(r.conn.Subjects().Done(b.agent, b.key, b.init))
}

// A pass reads the runs that have changed since the one before, however many there are, and finds what these have lost. All are looked at
// once a day.
func TestScheduled_LooksAtWhatHasChanged(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			old := r.ended("say", "say", "add", "say")
			waits := r.begin("add")
			r.waiting(waits, 1)
			r.settled()
			r.wantLooked("at first", r.scheduled(), looked{All: true})
			r.wantLooked("when nothing has changed", r.scheduled(), looked{})

			lost := r.ended("say", "say")[1]
			r.answer(r.call(waits))
			r.done(waits)
			r.settled()
			r.deleteEnd(old[0])
			r.deleteEnd(lost)
			r.wantLooked("when three runs have changed", r.scheduled(),
				looked{Heads: 3, Found: map[reconcile.Kind]int{reconcile.TerminalLost: 1}})
			r.wantLooked("when nothing has changed again", r.scheduled(), looked{})

			r.later(24 * time.Hour)
			r.wantLooked("a day later", r.scheduled(), looked{All: true, Found: map[reconcile.Kind]int{reconcile.TerminalLost: 1}})
			r.wantLooked("after that", r.scheduled(), looked{})
		})
	}
}

// Retention is a matter of passes over all runs, which are as frequent as it wants.
func TestScheduled_RemovesHistoriesInTime(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.ended("say")[0]
	short := func(o *reconcile.Options) { o.History = 4 * time.Hour }
	r.scheduled(short)
	r.later(59 * time.Minute)
	r.wantLooked("before a quarter of the time", r.scheduled(short), looked{})
	r.later(4 * time.Hour)
	r.wantLooked("when it has passed", r.scheduled(short), looked{All: true})
	if h := r.head(b); h.Purged == nil {
		t.Error("the history is still there")
	}
}

func TestScheduled_HasJournalsLeaveInTime(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ended("say")
	short := func(o *reconcile.Options) { o.Hot = 4 * time.Minute }
	r.scheduled(short)
	r.later(3 * time.Minute)
	r.wantLooked("before the time", r.scheduled(short), looked{})
	r.later(2 * time.Minute)
	r.wantLooked("when it has passed", r.scheduled(short), looked{All: true})
}

// What was lost as a whole is looked for as a whole: nothing has changed, as far as the streams say.
func TestScheduled_LooksAtAllAfterALoss(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			r.ended("say")
			waits := r.begin("add")
			r.waiting(waits, 1)
			r.settled()
			r.scheduled()
			r.stop()
			r.wipe()
			r.refused()
			r.storeLost()
			r.wantLooked("when the store is empty", r.scheduled(),
				looked{All: true, Found: map[reconcile.Kind]int{reconcile.RunLost: 1}})
			r.wantLooked("after that", r.scheduled(), looked{All: true, Found: map[reconcile.Kind]int{reconcile.CallOrphaned: 1}})
			r.wantLooked("in the end", r.scheduled(), looked{})
		})
	}
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		r := start(t)
		r.ended("say", "add")
		r.scheduled()
		r.stop()
		stream := streams.Name(r.conn.Subjects(), streams.Done)
		r.check("delete the stream", r.conn.JetStream().DeleteStream(r.context(), stream))
		r.provision()
		r.wantLooked("when a stream was made anew", r.scheduled(), looked{All: true, Found: map[reconcile.Kind]int{reconcile.TerminalLost: 2}})
		r.wantLooked("after that", r.scheduled(), looked{All: true})
		r.wantLooked("in the end", r.scheduled(), looked{})
	})
}

// wipe empties the store.
func (r *rig) wipe() {
	r.t.Helper()
	if r.redis == nil {
		zones, err := r.conn.Zones(r.context(), streams.Run)
		r.check("look how streams are divided", err)
		for _, z := range zones {
			stream, err := r.conn.JetStream().Stream(r.context(), streams.Name(r.conn.Subjects(), z))
			r.check("open stream", err)
			r.check("purge", stream.Purge(r.context()))
		}
		return
	}
	c := redis.NewClient(&redis.Options{Addr: r.redis.Addr()})
	r.check("flush", c.FlushAll(r.context()).Err())
	r.check("close", c.Close())
}

// An init event that waits for a worker while passes are made is looked at when it has been dealt with.
func TestScheduled_ComesBackToWhatWorkersWereNotThroughWith(t *testing.T) {
	t.Parallel()
	r := start(t)
	r.ended("say")
	r.scheduled()
	r.stop()
	late := r.begin("say")
	for pass := range 2 {
		r.wantLooked(fmt.Sprint("before there is a worker, pass ", pass+1), r.scheduled(), looked{Heads: 2}) // again, as it may have begun meanwhile
	}
	r.work()
	r.done(late)
	r.settled()
	r.deleteEnd(late)
	r.wantLooked("when its run has ended", r.scheduled(), looked{Heads: 1, Found: map[reconcile.Kind]int{reconcile.TerminalLost: 1}})
	r.wantLooked("after that", r.scheduled(), looked{})
}

// A run whose message is old and that has ended a moment ago is too young for a pass, and looked at by the next one.
func TestScheduled_ComesBackToWhatWasTooYoung(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := start(t, func(r *rig) {
		r.model = sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if req.Messages[0].PlainText() == "slow" {
				<-release
			}
			return plan(ctx, req)
		})
	})
	r.scheduled()
	slow := r.begin("slow")
	r.await("it is driven", func() bool { return r.head(slow).Status == core.StatusRunning })
	asked := r.now()
	r.await("its message is older than its end", func() bool { return r.now().Sub(asked) > 100*time.Millisecond })
	close(release)
	r.done(slow)
	r.settled()
	r.deleteEnd(slow)
	now := r.now()
	young := func(o *reconcile.Options) {
		o.Now, o.OlderThan = func() time.Time { return now }, now.Sub(asked)-50*time.Millisecond
	}
	r.wantLooked("when it has just ended", r.scheduled(young), looked{Heads: 1})
	r.wantLooked("later", r.scheduled(), looked{Heads: 1, Found: map[reconcile.Kind]int{reconcile.TerminalLost: 1}})
}
