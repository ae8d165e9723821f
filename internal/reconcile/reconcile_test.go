package reconcile_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// stores are the ways to keep runs.
var stores = map[string][]func(*rig){"jetstream": nil, "redis": {onRedis}}

// TestRun_FindsNothingInAHealthySystem: runs of every status, a delegation, messages that no worker has read yet.
func TestRun_FindsNothingInAHealthySystem(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			waiting, done, delegating := r.begin("add"), r.begin("say"), r.begin("clerk:add")
			r.waiting(waiting, 1)
			r.done(done)
			r.waiting(delegating, 1)
			r.waiting(r.child(delegating), 1)
			r.settled()
			r.nothing()
			if _, all := r.pass(reconcile.ByPartition); len(all) > 0 {
				t.Errorf("by partition something was found: %+v", all)
			}
			r.stop()
			backlog := r.begin("say")
			r.answer(r.call(waiting))
			r.nothing()
			r.work()
			for _, b := range []begun{backlog, waiting} {
				if code := r.done(b); code != "" {
					t.Errorf("%s ended with %s", b.subject, code)
				}
			}
		})
	}
}

// TestRun_SeveralAtOnceDoNoHarm: nothing but the costs depends on the lease.
func TestRun_SeveralAtOnceDoNoHarm(t *testing.T) {
	t.Parallel()
	r := start(t, onRedis)
	ends := lose(r, sdk.CodeStateLost)
	var wg sync.WaitGroup
	for range 4 {
		o := r.options()
		wg.Go(func() {
			if _, err := reconcile.Run(r.context(), o); err != nil {
				t.Errorf("reconcile: %v", err)
			}
		})
	}
	r.work()
	wg.Wait()
	checkEnds(r, ends)
	r.settled()
	r.nothing()
}

func TestRun_LostTimerIsArmedAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	r.settled()
	r.delete(r.conn.Subjects().Timer(b.agent, b.key))
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.TimerLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	armed, err := r.conn.LastDelivery(r.context(), streams.Timer, r.conn.Subjects().Timer(b.agent, b.key))
	if want := fmt.Sprintf(`{"due":%d}`, r.head(b).Timer); err != nil || armed == nil || string(armed.Data()) != want {
		t.Errorf("armed: %v, %v, want %s", armed, err, want)
	}
	r.nothing()
}

// TestRun_TimerThatFiredUnseenFiresAgain: fired timers are kept for a week, in which no worker may have been there.
func TestRun_TimerThatFiredUnseenFiresAgain(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.agents[0].Spec.Services[0].TimeoutMillis = 10_000 }) // the worker has stopped by then
	r.stop()
	b := r.begin("add")
	r.work()
	r.waiting(b, 1)
	r.stop()
	fire := r.conn.Subjects().Fire(b.agent, b.key)
	r.await("the timer fires", func() bool {
		d, err := r.conn.LastDelivery(r.context(), streams.Timer, fire)
		return err == nil && d != nil
	})
	r.nothing() // it waits for a worker
	r.delete(fire)
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.TimerLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	r.work()
	if code := r.done(b); code != "" {
		t.Errorf("the run ended with %s", code)
	}
}

// TestRun_StalledRunIsWoken loses the message whose delivery covers a run, by a consumer that is made anew.
func TestRun_StalledRunIsWoken(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	dead := func(ctx context.Context, _ sdk.ModelRequest) (sdk.ModelReply, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return sdk.ModelReply{}, ctx.Err()
	}
	r := start(t, func(r *rig) { r.model = sdktest.ModelFunc(dead) })
	b := r.begin("say")
	<-asked
	r.stop()
	ref := streams.AgentConsumers(b.agent)[0]
	r.nothing() // the message will be delivered again
	r.forget(ref)
	r.model = sdktest.ModelFunc(plan)
	r.later(time.Hour)
	r.work()
	if h := r.head(b); h.Status != core.StatusRunning {
		t.Fatalf("the run is %s", h.Status)
	}
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.RunStalled: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if code := r.done(b); code != "" {
		t.Errorf("the run ended with %s", code)
	}
	r.settled()
	r.nothing()
}

// A run whose driver has died is woken when the message is gone whose delivery would come again: the stream was set back, or has lost it.
func TestRun_IsWokenWhenItsMessageIsGone(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 1)
	r := start(t, func(r *rig) {
		r.model = sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
			if req.Messages[0].PlainText() != "say" {
				return plan(ctx, req)
			}
			asked <- struct{}{}
			<-ctx.Done()
			return sdk.ModelReply{}, ctx.Err()
		})
	})
	b := r.begin("clerk:say")
	r.waiting(b, 1)
	<-asked
	child := r.child(b)
	r.stop()
	layout, err := r.conn.Layout(r.context())
	r.check("look how streams are divided", err)
	stream := streams.Name(r.conn.Subjects(), layout.OfRun(streams.Out, b.key))
	r.check("delete the stream", r.conn.JetStream().DeleteStream(r.context(), stream)) // the one in its place has not come to that sequence
	r.provision()
	r.model = sdktest.ModelFunc(plan)
	r.later(time.Hour)
	if h := r.head(child); h.Status != core.StatusRunning {
		t.Fatalf("the run is %s", h.Status)
	}
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.RunStalled: 1, reconcile.CallLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	r.work()
	if code := r.done(b); code != "" {
		t.Errorf("the run ended with %s", code)
	}
	r.settled()
	r.nothing()
}

// TestRun_ConstantPassesHarmNoLiveRun makes passes that take everything for lost as soon as it is there, while workers
// are at it.
func TestRun_ConstantPassesHarmNoLiveRun(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			o := r.options()
			o.Now, o.OlderThan, o.History = nil, time.Nanosecond, time.Nanosecond
			ctx, stop := context.WithCancel(r.context())
			passes := make(chan error, 1)
			go func() {
				for ctx.Err() == nil {
					if _, err := reconcile.Run(ctx, o); err != nil && ctx.Err() == nil {
						passes <- err
						return
					}
				}
				passes <- nil
			}()
			ends := map[begun]sdk.Code{}
			var runs []begun
			for range 20 {
				b := r.begin("add clerk:say add")
				ends[b], runs = "", append(runs, b)
			}
			for _, step := range []int{1, 3} {
				for _, b := range runs {
					r.waiting(b, step)
					r.answer(r.call(b))
				}
			}
			checkEnds(r, ends)
			stop()
			r.check("passes", <-passes)
			r.settled()
		})
	}
}

func TestRun_LostCallIsSentAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	r.settled()
	subject := r.conn.Subjects().Call(r.call(b))
	before, err := r.conn.LastDelivery(r.context(), streams.Out, subject)
	r.check("read call", err)
	r.delete(subject)
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.CallLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	after, err := r.conn.LastDelivery(r.context(), streams.Out, subject)
	r.check("read call", err)
	if after == nil || string(after.Data()) != string(before.Data()) {
		t.Errorf("the call is %v, want the same as before", after)
	}
	r.nothing()
}

func TestRun_LostTerminalIsPublishedAgain(t *testing.T) {
	t.Parallel()
	r := start(t)
	plain, delegating := r.begin("say"), r.begin("clerk:say")
	r.done(plain)
	r.done(delegating)
	r.settled()
	subject := r.conn.Subjects().Done(plain.agent, plain.key, plain.init)
	before, err := r.conn.LastDelivery(r.context(), streams.Done, subject)
	r.check("read terminal event", err)
	r.delete(subject)
	_, all := r.pass()
	if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.TerminalLost: 1}, kinds(all)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	after, err := r.conn.LastDelivery(r.context(), streams.Done, subject)
	r.check("read terminal event", err)
	if after == nil || string(after.Data()) != string(before.Data()) {
		t.Errorf("the terminal event is %v, want the same as before", after)
	}
	r.nothing()
}

func TestRun_DryRunChangesNothing(t *testing.T) {
	t.Parallel()
	r := start(t, onRedis)
	lose(r, sdk.CodeStateLost)
	before := r.streams()
	report, all := r.pass(func(o *reconcile.Options) { o.DryRun = true })
	if len(all) == 0 || report.Unrepaired != len(all) {
		t.Errorf("%d findings, report %+v", len(all), report)
	}
	if diff := cmp.Diff(before, r.streams()); diff != "" {
		t.Errorf("a dry run changed the broker (-before +after):\n%s", diff)
	}
	if runs, _, err := r.store.Runs(r.context(), "", 10); err != nil || len(runs) != 0 {
		t.Errorf("a dry run made %d runs, %v", len(runs), err)
	}
}

// An operator deletes the stream of timers and provisions it again: workers see to it without waiting for the next pass.
func TestAfterLoss_TimersOfAStreamThatWasMadeAnewAreArmed(t *testing.T) {
	t.Parallel()
	r := start(t)
	waiting := r.begin("add")
	r.waiting(waiting, 1)
	r.settled()
	r.stop()
	r.later(2 * time.Hour) // what there is is old
	r.interval = time.Hour
	r.work()
	timer := r.conn.Subjects().Timer("desk", waiting.key)
	if n := r.messages(streams.Timer, wire.KindTimer)[timer]; n != 1 {
		t.Fatalf("%d timers are armed, want 1", n)
	}
	var deleted time.Time
	r.await("the timer is armed again", func() bool {
		if time.Since(deleted) > patience/4 { // the first time may be before the worker has seen the stream
			deleted = time.Now()
			stream := r.stream(timer).CachedInfo().Config.Name
			r.check("delete the stream", r.conn.JetStream().DeleteStream(r.context(), stream))
			r.provision()
		}
		return r.messages(streams.Timer, wire.KindTimer)[timer] == 1
	})
}

// What a pass repairs brings to light what else is lost: passes are repeated until one finds nothing.
func TestUntil_RepeatsPassesUntilNothingIsFound(t *testing.T) {
	t.Parallel()
	r := start(t)
	waiting := r.begin("add")
	r.waiting(waiting, 1)
	r.settled()
	r.delete(r.conn.Subjects().Timer("desk", waiting.key))
	o := r.options()
	got, err := reconcile.Until(r.context(), o)
	r.check("reconcile", err)
	if got.Made != 2 || got.GoesOn || got.Found[reconcile.TimerLost] != 1 || got.Unrepaired != 0 {
		t.Errorf("%+v; want a timer found in the first of 2 passes", got)
	}
	o.Now = r.now // as young as it is
	got, err = reconcile.Until(r.context(), o)
	r.check("reconcile", err)
	if got.Made != 1 || got.Young != 1 || len(got.Found) != 0 {
		t.Errorf("%+v; want one run left alone", got)
	}
}
