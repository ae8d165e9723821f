package runner_test

import (
	"encoding/json"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// passing is an Env whose clock is so far behind now.
type passing struct {
	still
	after *time.Duration
}

func (p passing) Now() int64 { return now + p.after.Milliseconds() }

// rig is a worker of an agent whose runs begin now, and wait for a service. The clock says after that.
func rig(t *testing.T, clock *time.Duration, steering sdk.SteeringPolicy, is ...func(*core.Spec)) (ends, stays *runner.Runner) {
	t.Helper()
	store, issued := memory.New(), &atomic.Int64{}
	agent := newDesk(10, "lookup").agent()
	agent.Core.Steering = steering
	for _, set := range is {
		set(agent.Core)
	}
	worker := func() *runner.Runner {
		return runner.New(runner.Options{
			Store: store, Publisher: nowhere{}, Env: passing{still{issued}, clock}, Catalog: only{agent},
			Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
		})
	}
	ends, stays = worker(), worker()
	ends.Drain()
	return ends, stays
}

// hurry is a message into a run, which came so long after the run began.
func hurry(received time.Duration, delivered int) *runner.Message {
	return &runner.Message{
		Address: wire.Address{Kind: wire.KindCtl, Verb: wire.ControlMessage, Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")},
		Event:   wire.Event{ID: "m", Source: "ann", Type: "agentd.run.message", Data: json.RawMessage(`{"message":"hurry"}`)},
		Cause:   core.Cause{Stream: "AGENTD_IN", Sequence: 9, EventID: "m"}, Delivered: delivered, Received: now + received.Milliseconds(),
	}
}

// begun is the init event of the run.
func begun(delivered int) *runner.Message {
	return &runner.Message{
		Address: wire.Address{Kind: wire.KindStart, Who: "ann", Agent: wire.NameToken("desk"), Run: wire.NewRunKey("order 7")},
		Event:   wire.Event{ID: "order 7", Source: "web", Type: "shop.desk", Subject: "order 7", Data: json.RawMessage(`{}`)},
		Run:     "order 7", Cause: core.Cause{Stream: "AGENTD_START", Sequence: 1, EventID: "order 7"}, Delivered: delivered, Received: now,
	}
}

// A message that came more than a minute before its run is not heard by it: another delivery may have been refused.
func TestMessage_ThatCameLongBeforeItsRunIsRefused(t *testing.T) {
	t.Parallel()
	for received, refused := range map[time.Duration]bool{-61 * time.Second: true, -59 * time.Second: false} {
		clock := time.Duration(0)
		_, r := rig(t, &clock, sdk.SteeringQueue)
		process(t, r, "order 7", starts, `{}`)
		before := len(journal(t, r, "order 7"))
		clock = 3 * time.Minute
		v := r.Process(t.Context(), hurry(received, 1))
		if entries := journal(t, r, "order 7")[before:]; (v.Settlement == runner.Reject) != refused || (len(entries) == 0) != refused {
			t.Errorf("a message that came %s after the run began is settled with %+v, and makes %d entries; want it refused: %t", received, v, len(entries), refused)
		}
	}
}

// A run that nobody drives is brought on by a message into it, but not by one that another delivery may have been refused for, because a store
// had forgotten the run for two minutes: it is given back until the run has been brought on. All times are those since the run began.
func TestMessage_ThatMayHaveBeenRefusedTakesNoRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		received, handled time.Duration
		takes             bool
	}{
		"before the run, and two minutes old":       {-47 * time.Second, 73 * time.Second, false},
		"before the run, and less than two minutes": {-47 * time.Second, 72 * time.Second, true},
		"soon after the run began, and two minutes": {time.Minute, 3 * time.Minute, false},
		"later than that, and two minutes old":      {time.Minute + time.Millisecond, 5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock time.Duration
			ends, r := rig(t, &clock, sdk.SteeringQueue)
			ends.Process(t.Context(), begun(1))
			before := journal(t, r, "order 7")
			if last := before[len(before)-1]; last.Kind != core.KindReleased {
				t.Fatalf("the worker that ends leaves the run with the entry %s, want it released", last.Kind)
			}
			clock = c.handled
			v := r.Process(t.Context(), hurry(c.received, 1))
			if after := journal(t, r, "order 7"); (v.Settlement == runner.Retry) == c.takes || (len(after) > len(before)) != c.takes {
				t.Fatalf("the message is settled with %+v, and makes %d entries; want it to take the run: %t", v, len(after)-len(before), c.takes)
			}
			if c.takes {
				return
			}
			if v := r.Process(t.Context(), begun(2)); v != (runner.Verdict{}) {
				t.Errorf("the init event is settled with %+v", v)
			}
			if v := r.Process(t.Context(), hurry(c.received, 2)); v != (runner.Verdict{}) {
				t.Errorf("the message is settled with %+v, now that the run waits", v)
			}
			after := journal(t, r, "order 7")
			if last := after[len(after)-1]; last.Kind != core.KindSteered || last.Head.Status != core.StatusWaiting {
				t.Errorf("the last entry is %s of a run that is %s, want it to wait, and to have heard the message", last.Kind, last.Head.Status)
			}
		})
	}
}

// A run that waits for a service, and gives that up for a message, goes on when it hears one, but not one that another delivery may have
// refused, because the run's first entry was two minutes on its way: that is given back as long as a delivery which came in time may be
// about to have the run hear it, and refused then. All times are those since the run began.
func TestMessage_ThatMayHaveBeenRefusedWakesNoRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		received, handled time.Duration
		want              runner.Settlement
		heard             bool
	}{
		"less than two minutes old":                     {0, 2*time.Minute - time.Millisecond, runner.Ack, true},
		"two minutes old":                               {0, 2 * time.Minute, runner.Retry, false},
		"less than four minutes old":                    {0, 4*time.Minute - time.Millisecond, runner.Retry, false},
		"four minutes old":                              {0, 4 * time.Minute, runner.Reject, false},
		"four minutes old, and from before the run":     {-time.Minute, 3 * time.Minute, runner.Reject, false},
		"long after the run began, however old it is":   {time.Minute + time.Millisecond, 5 * time.Minute, runner.Ack, true},
		"before the run, and still not two minutes old": {-time.Minute, time.Minute - time.Millisecond, runner.Ack, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var clock time.Duration
			_, r := rig(t, &clock, sdk.SteeringInterrupt)
			process(t, r, "order 7", starts, `{}`)
			before := len(journal(t, r, "order 7"))
			clock = c.handled
			v := r.Process(t.Context(), hurry(c.received, 2))
			entries := journal(t, r, "order 7")[before:]
			if v.Settlement != c.want || (len(entries) > 0) != c.heard {
				t.Errorf("the message is settled with %+v, and makes %d entries; want settlement %d, and it heard: %t", v, len(entries), c.want, c.heard)
			}
			if c.want == runner.Reject && v.Problem == nil {
				t.Error("nothing says why it is refused")
			}
		})
	}
}

// A retry that waited for long, because no worker was there, takes up a run that had ended when it came, however soon after its beginning
// that was: it can have been refused only for an end that came a minute later than itself.
func TestRetry_ThatWaitedForLongTakesUpWhatHadEnded(t *testing.T) {
	t.Parallel()
	var clock time.Duration
	drains, r := rig(t, &clock, sdk.SteeringQueue, func(s *core.Spec) { s.RunDeadline = time.Second.Milliseconds() })
	drains.Process(t.Context(), begun(1)) // the model has not been asked yet
	clock = time.Second
	overdue(t, r, clock)
	clock = 5 * time.Minute
	v := r.Process(t.Context(), retry("b", 30*time.Second))
	if after := journal(t, r, "order 7"); times(after, core.KindRetried) != 1 {
		t.Errorf("the retry is settled with %+v, and does not take up the run: it is %s", v, after[len(after)-1].Head.Status)
	}
}

// A retry does not take up the end after the one that it came for: another delivery of it may have been refused between the two.
func TestRetry_IsForTheEndBeforeIt(t *testing.T) {
	t.Parallel()
	var clock time.Duration
	drains, r := rig(t, &clock, sdk.SteeringQueue, func(s *core.Spec) { s.RunDeadline = time.Second.Milliseconds() })
	drains.Process(t.Context(), begun(1))
	clock = time.Second
	overdue(t, r, clock)
	clock = 10 * time.Second
	drains.Process(t.Context(), retry("a", clock))
	clock = 11 * time.Second
	overdue(t, r, clock)
	clock = 5 * time.Minute
	v := r.Process(t.Context(), retry("b", 5*time.Second))
	if after := journal(t, r, "order 7"); v.Settlement != runner.Reject || times(after, core.KindRetried) != 1 {
		t.Errorf("the retry is settled with %+v, and the run has been taken up %d times; want it refused, and once", v, times(after, core.KindRetried))
	}
}

// retry is an operator's, which came so long after the run began.
func retry(id string, received time.Duration) *runner.Message {
	m := hurry(received, 1)
	m.Address.Verb, m.Address.Who, m.Event.ID, m.Event.Type, m.Event.Data = wire.ControlRetry, "ann", id, "agentd.run.retry", json.RawMessage(`{}`)
	m.Cause.EventID = id
	return m
}

// overdue ends the run by its deadline, which passes at that time.
func overdue(t *testing.T, r *runner.Runner, at time.Duration) {
	t.Helper()
	before := journal(t, r, "order 7")
	due := begun(1)
	due.Address.Kind, due.Due = wire.KindFire, before[len(before)-1].Head.Timer
	due.Cause = core.Cause{Stream: "AGENTD_TMR", Sequence: uint64(len(before))}
	due.Received = now + at.Milliseconds()
	if v := r.Process(t.Context(), due); v != (runner.Verdict{}) {
		t.Fatalf("the deadline is settled with %+v", v)
	}
	if after := journal(t, r, "order 7"); after[len(after)-1].Head.Status != core.StatusDone {
		t.Fatalf("the run is %s after its deadline", after[len(after)-1].Head.Status)
	}
}

// times counts the entries of a kind.
func times(entries []core.Entry, kind string) int {
	n := 0
	for i := range entries {
		if entries[i].Kind == kind {
			n++
		}
	}
	return n
}
