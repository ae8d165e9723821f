package reconcile_test

import (
	"testing"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/deadletter"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A run that is taken up again has what its later generation asks for, and hears nothing of what was removed.
func TestClear_RunThatIsTakenUpAgain(t *testing.T) {
	t.Parallel()
	for name, options := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, append(options, func(r *rig) { r.agents[0].Spec.Limits.DeadlineMillis = generation.Milliseconds() })...)
			first := r.begin("add")
			r.waiting(first, 1)
			if code := r.done(first); code != sdk.CodeDeadline {
				t.Fatalf("the first generation ended with %q", code)
			}
			r.settled()
			r.wantLeft("when it has ended", left{Calls: 1, Voids: 1, Fired: 1})
			r.reads(calculator)
			if n := r.clear(time.Hour); n != 1 {
				t.Errorf("%d runs lost their calls, want 1", n)
			}
			r.wantLeft("later", left{})
			r.later(time.Hour)
			second := r.retry(first, "again")
			r.await("the call is made again", func() bool { h := r.head(first); return h.Status == core.StatusWaiting && h.Retry != nil })
			r.settled()
			r.wantLeft("when it is taken up", left{Calls: 1})
			r.delivers()
			r.wantLeft("when all is delivered again", left{Calls: 1, Fired: r.left().Fired})
			if n := r.clear(time.Hour); n != 0 {
				t.Errorf("%d runs lost their calls, and the run goes on", n)
			}
			h := r.head(first)
			r.answer(h.Calls[0].Addresses(&h)[0])
			if code := r.done(second); code != "" {
				t.Fatalf("the second generation ended with %q", code)
			}
			r.settled()
			if n := r.clear(time.Hour); n != 1 {
				t.Errorf("%d runs lost their calls, want that of the second generation", n)
			}
			r.wantLeft("at the end", left{})
		})
	}
}

// A dead letter that is redriven after the calls are gone makes none of them again: an init event and a late answer are refused, and change
// nothing where somebody publishes them all the same; a message that takes up the run makes attempts of its own.
func TestClear_RedriveFromTheDeadLetters(t *testing.T) {
	t.Parallel()
	r := start(t, func(r *rig) { r.agents[0].Spec.Limits.DeadlineMillis = generation.Milliseconds() })
	s := r.conn.Subjects()
	b := r.begin("add")
	r.waiting(b, 1)
	late := r.call(b)
	if code := r.done(b); code != sdk.CodeDeadline {
		t.Fatalf("the run ended with %q", code)
	}
	r.answer(late)
	r.settled()
	r.reads(calculator)
	if n := r.clear(time.Hour); n != 1 {
		t.Fatalf("%d runs lost their calls, want 1", n)
	}
	r.later(time.Hour)
	for zone, subject := range map[streams.Zone]string{streams.Start: s.Start("desk"), streams.In: s.Reply(late)} {
		d, err := r.conn.LastDelivery(r.context(), zone, subject)
		r.check("read "+subject, err)
		r.check("dead letter", r.conn.DeadLetter(r.context(), d, sdk.CodeInternal, "a fault of the worker"))
		l := r.letter()
		if done, err := l.Redrive(r.context(), r.conn, r.store); err == nil {
			t.Errorf("%s is %s", subject, done)
		}
		_, _, err = r.conn.Republish(r.context(), l.Letter)
		r.check("publish "+subject+" again", err)
		r.settled()
	}
	r.wantLeft("when they came again", left{})
	r.stop()
	second := r.retry(b, "again")
	subject := s.Control(wire.ControlRetry, "desk", b.key)
	d, err := r.conn.LastDelivery(r.context(), streams.In, subject)
	r.check("read "+subject, err)
	r.check("dead letter", r.conn.DeadLetter(r.context(), d, sdk.CodeInternal, "a fault of the worker"))
	r.forget(streams.AgentConsumers("desk")[1])
	r.work()
	retry := r.letter()
	if done, err := retry.Redrive(r.context(), r.conn, r.store); err != nil {
		t.Fatalf("the retry is not redriven: %v, %s", err, done)
	}
	r.await("the call is made again", func() bool { h := r.head(b); return h.Status == core.StatusWaiting && h.Retry != nil })
	r.settled()
	h := r.head(b)
	at := h.Calls[0].Addresses(&h)[0]
	if calls := r.messages(streams.Out, wire.KindOut); len(calls) != 1 || calls[s.Call(at)] != 1 || at.Call == late.Call {
		t.Errorf("the calls are %v; want %s alone, which is another attempt than %s", calls, s.Call(at), late.Call)
	}
	r.answer(at)
	if code := r.done(second); code != "" {
		t.Errorf("the second generation ended with %q", code)
	}
}

// letter waits for the last dead letter, and reads it.
func (r *rig) letter() *deadletter.Letter {
	r.t.Helper()
	var l *deadletter.Letter
	r.await("a dead letter", func() bool {
		state, err := r.conn.ZoneState(r.context(), streams.DLQ)
		r.check("look at the dead letters", err)
		if state.Last == 0 {
			return false
		}
		l, err = deadletter.Get(r.context(), r.conn, state.Last)
		r.check("read the dead letter", err)
		return true
	})
	return l
}
