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

// generation is how long the runs of a test may take for each of their generations, of which the first ends by that.
const generation = 20 * time.Second

// retry takes up a run, and returns it as its next generation.
func (r *rig) retry(b begun, id string) begun {
	r.t.Helper()
	ev := wire.Event{ID: id, Source: "com.test.operator", Type: wire.TypeRetry, Subject: b.subject}
	r.check("retry", r.conn.Control(r.context(), wire.ControlRetry, b.agent, b.key, "", ev))
	b.init = wire.InitToken(ev.Source, ev.ID)
	return b
}

// lost is what a pass finds now, however lately it was lost.
func (r *rig) lost() map[reconcile.Kind]int {
	r.t.Helper()
	_, all := r.pass(func(o *reconcile.Options) { o.Now, o.OlderThan = nil, time.Nanosecond })
	return kinds(all)
}

// stored is what the last message on a subject says.
func (r *rig) stored(z streams.Zone, subject string) string {
	r.t.Helper()
	d, err := r.conn.LastDelivery(r.context(), z, subject)
	r.check("read "+subject, err)
	if d == nil {
		return ""
	}
	return string(d.Data())
}

// TestRun_RetriedRunIsRepairedAsAnyOther: what a later generation waits for, and the end of each, come back byte for byte.
func TestRun_RetriedRunIsRepairedAsAnyOther(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, append(options, func(r *rig) { r.agents[0].Spec.Limits.DeadlineMillis = generation.Milliseconds() })...)
			first := r.begin("add")
			r.waiting(first, 1)
			id := r.head(first).Calls[0].ID
			if code := r.done(first); code != sdk.CodeDeadline {
				t.Fatalf("the first generation ended with %q", code)
			}
			second := r.retry(first, "again")
			r.await("the call is made again", func() bool { h := r.head(first); return h.Status == core.StatusWaiting && h.Retry != nil })
			r.settled()
			if found := r.lost(); len(found) > 0 {
				t.Errorf("something was found: %v", found)
			}
			h := r.head(first)
			if len(h.Calls) != 1 || h.Calls[0].ID != id || h.Calls[0].Attempt != 2 {
				t.Fatalf("the calls are %+v, want the second attempt at %s", h.Calls, id)
			}
			at := h.Calls[0].Addresses(&h)[0]
			call, timer := r.conn.Subjects().Call(at), r.conn.Subjects().Timer(first.agent, first.key)
			calls, timers := r.stored(streams.Out, call), r.stored(streams.Timer, timer)
			r.delete(call)
			r.delete(timer)
			if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.CallLost: 1, reconcile.TimerLost: 1}, r.lost()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if got := r.stored(streams.Out, call); got == "" || got != calls {
				t.Errorf("the call is %q, want %q", got, calls)
			}
			if got := r.stored(streams.Timer, timer); got == "" || got != timers {
				t.Errorf("the timer is %q, want %q", got, timers)
			}
			r.answer(at)
			if code := r.done(second); code != "" {
				t.Fatalf("the second generation ended with %q", code)
			}
			r.settled()
			var ends []string
			for _, b := range []begun{first, second} {
				done := r.conn.Subjects().Done(b.agent, b.key, b.init)
				ends = append(ends, r.stored(streams.Done, done))
				r.delete(done)
			}
			if diff := cmp.Diff(map[reconcile.Kind]int{reconcile.TerminalLost: 2}, r.lost()); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			for i, b := range []begun{first, second} {
				if got := r.stored(streams.Done, r.conn.Subjects().Done(b.agent, b.key, b.init)); got == "" || got != ends[i] {
					t.Errorf("generation %d ended with %q, want %q", i+1, got, ends[i])
				}
			}
			if found := r.lost(); len(found) > 0 {
				t.Errorf("something was found: %v", found)
			}
		})
	}
}
