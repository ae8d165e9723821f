package reconcile_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// clear removes what runs leave that have ended for so long, and returns how many lost their calls.
func (r *rig) clear(after time.Duration) int {
	r.t.Helper()
	r.refilled()
	return r.clearNow(after)
}

// refilled notes that nothing is missing that the server may have forgotten.
func (r *rig) refilled() {
	r.t.Helper()
	for _, a := range r.agents {
		r.check("note that streams are refilled", r.conn.NoteRefilled(r.context(), wire.NameToken(a.Spec.Name), r.conn.Server()))
	}
}

// clearNow is clear whether streams are refilled or not.
func (r *rig) clearNow(after time.Duration) int {
	r.t.Helper()
	o := r.options()
	o.Calls, o.Now = sdk.DefaultCallsKept, func() time.Time { return r.now().Add(after) }
	o.Found = func(f reconcile.Finding) { r.t.Errorf("found: %+v", f) }
	report, err := reconcile.Clear(r.context(), o)
	r.check("clear", err)
	return report.Cleared
}

// left are how many calls, voids and fired timers there are.
type left struct{ Calls, Voids, Fired int }

func (r *rig) left() left {
	r.t.Helper()
	return left{
		len(r.messages(streams.Out, wire.KindOut)), len(r.messages(streams.Out, wire.KindVoid)),
		len(r.messages(streams.Timer, wire.KindFire)),
	}
}

func (r *rig) wantLeft(when string, want left) {
	r.t.Helper()
	if diff := cmp.Diff(want, r.left()); diff != "" {
		r.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func (r *rig) cancel(b begun) {
	r.t.Helper()
	r.check("cancel", r.conn.Control(r.context(), wire.ControlCancel, b.agent, b.key, "", wire.Event{
		ID: "cancel", Source: "test", Type: wire.TypeCancel, Subject: b.subject, Time: time.UnixMilli(1_790_000_000_000),
	}))
}

// Calls leave when their run has ended for long enough, those of runs that wait stay, and nothing that is delivered again brings any back.
func TestClear_CallsOfRunsThatHaveEnded(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, options...)
			done, delegating, cancelled, waiting := r.begin("add add"), r.begin("clerk:add"), r.begin("add"), r.begin("add add")
			for step := 1; step <= 2; step++ {
				r.waiting(done, step)
				r.answer(r.call(done))
			}
			r.waiting(delegating, 1)
			child := r.child(delegating)
			r.waiting(child, 1)
			r.answer(r.call(child))
			r.waiting(cancelled, 1)
			r.cancel(cancelled)
			r.waiting(waiting, 1)
			r.answer(r.call(waiting))
			r.waiting(waiting, 2)
			ends := map[begun]sdk.Code{done: "", delegating: "", cancelled: r.done(cancelled)}
			checkEnds(r, ends)
			r.settled()
			all := left{Calls: 2 + 2 + 1 + 2, Voids: 1}
			r.wantLeft("at the end", all)
			if n := r.clear(sdk.DefaultCallsKept - time.Minute); n != 0 {
				t.Errorf("%d runs lost their calls too early", n)
			}
			r.wantLeft("too early", all)
			r.reads(calculator)
			if n := r.clear(sdk.DefaultCallsKept + time.Second); n != 4 {
				t.Errorf("%d runs lost their calls, want 4", n)
			}
			r.wantLeft("when nobody needs them", left{Calls: 2})
			if n := r.clear(sdk.DefaultCallsKept + time.Second); n != 0 {
				t.Errorf("%d runs lost their calls again", n)
			}
			r.later(time.Hour)
			before, armed := r.streams(), r.armed()
			r.stop()
			for _, a := range r.agents {
				for _, ref := range r.consumers(a.Spec.Name) {
					r.rewind(ref)
				}
			}
			r.work()
			r.settled()
			checkEnds(r, ends)
			after := r.streams()
			for z := range before {
				if strings.HasPrefix(string(z), string(streams.Timer)) { // the run that waits arms its timer again
					after[z] = before[z]
				}
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("something was stored (-before +after):\n%s", diff)
			}
			if diff := cmp.Diff(armed, r.armed()); diff != "" {
				t.Errorf("timers (-before +after):\n%s", diff)
			}
			r.answer(r.call(waiting))
			if code := r.done(waiting); code != "" {
				t.Errorf("the run that waited ended with %q", code)
			}
			r.nothing()
		})
	}
}

// armed are the timers of runs.
func (r *rig) armed() map[string]int {
	r.t.Helper()
	timers := r.messages(streams.Timer, wire.KindTimer)
	maps.DeleteFunc(timers, func(subject string, _ int) bool { return strings.Contains(subject, "."+streams.LeaseToken+".") })
	return timers
}

// Timers that have fired leave when workers have dealt with them, whoever they were for; armed ones stay.
func TestClear_FiredTimers(t *testing.T) {
	t.Parallel()
	r := start(t)
	waiting := r.begin("add")
	r.waiting(waiting, 1)
	agent := wire.NameToken(waiting.agent)
	r.check("fire", r.conn.Fire(r.context(), agent, waiting.key, 0))
	r.settled()
	r.stop()
	other := r.begin("add")
	r.check("fire", r.conn.Fire(r.context(), agent, other.key, 0))
	r.wantLeft("before", left{Calls: 1, Fired: 2})
	r.clear(0)
	r.wantLeft("after", left{Calls: 1, Fired: 1})
	if armed := r.messages(streams.Timer, wire.KindTimer); armed[r.conn.Subjects().Timer(agent, waiting.key)] != 1 {
		t.Errorf("armed timers: %v", armed)
	}
	r.work()
	r.settled()
	r.clear(0)
	r.wantLeft("when the worker is back", left{Calls: 2})
}

// What somebody is not through with stays: a void that a service has not read, a call that an agent has not, and the message with which a
// run ended.
func TestClear_WhatSomebodyHasNotReadStays(t *testing.T) {
	t.Parallel()
	r := start(t)
	service := calculator
	cancelled, answered := r.begin("add"), r.begin("add")
	r.waiting(cancelled, 1)
	r.cancel(cancelled)
	r.done(cancelled)
	r.waiting(answered, 1)
	r.answer(r.call(answered))
	r.done(answered)
	r.settled()
	if n := r.clear(time.Hour); n != 1 {
		t.Errorf("%d runs lost their calls, want the one whose call was answered", n)
	}
	r.wantLeft("while the service is away", left{Calls: 1, Voids: 1})
	if n := r.reads(service); n != 2 {
		t.Errorf("the service read %d messages, want a call and its void", n)
	}
	if n := r.clear(time.Hour); n != 1 {
		t.Errorf("%d runs lost their calls, want the one that was cancelled", n)
	}
	r.wantLeft("when the service has read the void", left{})

	r.later(time.Hour)
	clerk := streams.AgentConsumers("clerk")[3]
	delegating := r.begin("clerk:say")
	r.settled()
	r.done(delegating)
	r.settled()
	r.stop()
	r.rewind(clerk) // as if the worker of the agent had not come to it
	if n := r.clear(time.Hour); n != 0 {
		t.Errorf("%d runs lost their calls, which an agent has not read", n)
	}
	r.work()
	r.settled()
	r.stop()
	r.rewind(streams.AgentConsumers("desk")[1]) // as if nobody had come to the answer that ended the run
	if n := r.clear(time.Hour); n != 0 {
		t.Errorf("%d runs lost their calls, whose end is not settled", n)
	}
	r.work()
	r.settled()
	if n := r.clear(time.Hour); n != 1 {
		t.Errorf("%d runs lost their calls, want the last one", n)
	}
	r.wantLeft("at the end", left{})
}

// calculator is the consumer of a service that nobody serves.
var calculator = streams.ServiceConsumer("", "calc.add")

// reads acknowledges all that there is for a consumer, on all streams of its zone, and returns how much that is.
func (r *rig) reads(ref streams.ConsumerRef) (n int) {
	r.t.Helper()
	for _, part := range r.divided(ref) {
		n += r.readsOne(part)
	}
	return n
}

func (r *rig) readsOne(ref streams.ConsumerRef) (n int) {
	r.t.Helper()
	consumer, err := r.conn.JetStream().Consumer(r.context(), streams.Name(r.conn.Subjects(), ref.Zone), ref.Name)
	r.check("look at consumer", err)
	info, err := consumer.Info(r.context())
	r.check("look at consumer", err)
	if info.NumPending == 0 {
		return 0
	}
	batch, err := consumer.FetchNoWait(int(info.NumPending)) // asking for more would show it what is not for it
	r.check("fetch", err)
	for m := range batch.Messages() {
		r.check("ack", m.DoubleAck(r.context()))
		n++
	}
	r.check("fetch", batch.Error())
	return n
}

// A service that holds a call of a run that goes on keeps it, and what has not been delivered of other runs, when calls beside them leave.
func TestClear_LeavesConsumersAsTheyAre(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.partitions = 1 }) // all calls are before one consumer
	ref := calculator
	first, second := r.begin("add"), r.begin("add")
	r.waiting(first, 1)
	r.waiting(second, 1)
	r.settled()
	consumer, err := r.conn.JetStream().Consumer(r.context(), streams.Name(r.conn.Subjects(), ref.Zone), ref.Name)
	r.check("look at consumer", err)
	batch, err := consumer.FetchNoWait(2)
	r.check("fetch", err)
	held := map[string]jetstream.Msg{}
	for m := range batch.Messages() {
		held[m.Subject()] = m
	}
	third := r.begin("add")
	r.waiting(third, 1)
	open := r.conn.Subjects().Call(r.call(second))
	r.answer(r.call(first))
	r.done(first)
	r.settled()
	if n := r.clear(time.Hour); n != 1 {
		t.Fatalf("%d runs lost their calls, want 1", n)
	}
	r.check("go on", held[open].InProgress())
	r.check("ack", held[open].DoubleAck(r.context()))
	info, err := consumer.Info(r.context())
	r.check("look at consumer", err)
	if info.NumPending != 1 {
		t.Errorf("%d messages are to be delivered, want the call of the third run", info.NumPending)
	}
	batch, err = consumer.FetchNoWait(10)
	r.check("fetch", err)
	var got []string
	for m := range batch.Messages() {
		got = append(got, m.Subject())
		r.check("ack", m.DoubleAck(r.context()))
	}
	if diff := cmp.Diff([]string{r.conn.Subjects().Call(r.call(third))}, got); diff != "" {
		t.Errorf("delivered (-want +got):\n%s", diff)
	}
	for _, m := range held {
		if m.Subject() != open { // its answer is out, and the acknowledgement late
			r.check("ack", m.Ack())
		}
	}
}

// meanwhile is a store in which something happens as soon as somebody has read a head.
type meanwhile struct {
	state.Store
	then func(run wire.RunKey)
}

func (m meanwhile) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	defer m.then(run)
	return m.Store.Head(ctx, run)
}

// A run that is taken up when its head has just been read keeps the call that it makes then.
func TestClear_LeavesWhatIsPublishedMeanwhile(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	at := r.call(b)
	r.answer(at)
	r.done(b)
	r.settled()
	at.Call = wire.CallRef{ID: at.Call, Attempt: 2}.EventID()
	attempt := r.conn.Subjects().Call(at)
	o := r.options()
	o.Calls = sdk.DefaultCallsKept
	o.Store = meanwhile{r.store, func(wire.RunKey) {
		_, err := r.conn.JetStream().Publish(r.context(), attempt, []byte("{}"))
		r.check("publish", err)
	}}
	r.refilled()
	report, err := reconcile.Clear(r.context(), o)
	r.check("clear", err)
	if calls := r.messages(streams.Out, wire.KindOut); report.Cleared != 1 || len(calls) != 1 || calls[attempt] != 1 {
		t.Errorf("%d runs lost their calls, and there are %v; want %s", report.Cleared, calls, attempt)
	}
}

// Whoever has read what is for them keeps nothing, however much others are told of the same run afterwards.
func TestClear_EveryReaderForItself(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("both:say")
	r.await("the agent has answered, and the service has not", func() bool {
		h := r.head(b)
		return h.Status == core.StatusWaiting && slices.ContainsFunc(h.Calls, func(c core.Call) bool { return c.Closed() })
	})
	r.settled()
	r.cancel(b)
	r.done(b)
	r.settled()
	r.wantLeft("at the end", left{Calls: 2, Voids: 1})
	if n := r.reads(calculator); n != 2 {
		t.Errorf("the service read %d messages, want a call and its void", n)
	}
	if n := r.clear(time.Hour); n != 1 {
		t.Errorf("%d runs lost their calls, want the one that was cancelled", n)
	}
	r.wantLeft("when all have read", left{})
}

// After a restart of the server nothing is removed before what it has forgotten is there again: of the void that it has forgotten nobody knows
// who has not read it.
func TestClear_NotBeforeStreamsAreRefilled(t *testing.T) {
	t.Parallel()
	r := start(t)
	b := r.begin("add")
	r.waiting(b, 1)
	r.cancel(b)
	r.done(b)
	r.settled()
	voids := r.messages(streams.Out, wire.KindVoid)
	for subject := range voids {
		r.delete(subject)
	}
	r.check("note that it was another server", r.conn.NoteRefilled(r.context(), "desk", "another"))
	if n := r.clearNow(sdk.DefaultCallsKept + time.Second); n != 0 {
		t.Errorf("%d runs lost their calls before streams were refilled", n)
	}
	_, err := reconcile.Refill(r.context(), r.options(), r.now().Add(-time.Hour))
	r.check("refill", err)
	if diff := cmp.Diff(voids, r.messages(streams.Out, wire.KindVoid)); diff != "" {
		t.Errorf("voids (-want +got):\n%s", diff)
	}
	r.reads(calculator)
	if n := r.clear(sdk.DefaultCallsKept + time.Second); n != 1 {
		t.Errorf("%d runs lost their calls when streams were refilled, want 1", n)
	}
	// What is older than what is refilled waits for nobody: its agent may have no workers any more.
	r.check("note that it was another server", r.conn.NoteRefilled(r.context(), "desk", "another"))
	r.later(-3 * time.Hour)
	old := r.begin("add")
	r.waiting(old, 1)
	r.answer(r.call(old))
	r.done(old)
	r.settled()
	r.reads(calculator)
	if n := r.clearNow(3 * time.Hour); n != 1 {
		t.Errorf("%d runs lost their calls that no refilling looks at, want 1", n)
	}
}
