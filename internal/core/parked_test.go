package core_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/sdk"
)

// isControl reports whether an event pauses, resumes or unparks: another message of the same content is looked at anew.
func isControl(ev core.Event) bool {
	switch ev.(type) {
	case core.PauseAsked, core.ResumeAsked, core.Unparked:
		return true
	}
	return false
}

// operate is what an operator, or a worker whose model has answered, does to the run. The same message once more is stale.
func (x *explorer) operate() {
	r := x.rig
	ev := []core.Event{
		core.PauseAsked{Reason: "look", Received: r.now},
		core.ResumeAsked{Received: r.now},
		core.Unparked{Received: r.now},
		core.Unparked{Key: "model", Received: r.now},
		core.Unparked{Key: "another", Received: r.now},
		core.TagAsked{ID: fmt.Sprint("tags ", r.state.Rev), Tags: []core.TagChange{{Key: "rev"}}},
	}[x.pick(6, "operator")]
	in := r.deliver("control", ev)
	if r.state.Cancel != nil {
		x.refuse(in, core.ErrStale)
		return
	}
	x.accept(in)
	in.Rev = r.state.Rev + 1
	x.refuse(in, core.ErrStale)
}

// parked is a model that cannot be asked.
func (x *explorer) parked() core.Parked {
	ev := core.Parked{Why: core.ParkModel, Key: "model", Model: "gpt", Code: sdk.CodeUnavailable, Message: "away"}
	if x.pick(3, "limited") == 0 {
		ev.Why, ev.Code, ev.After = core.ParkRate, sdk.CodeRateLimited, int64(x.pick(20, "after"))*minute
	}
	return ev
}

// wake ends what keeps a run from being driven, one way or the other.
func (x *explorer) wake() {
	h := &x.rig.state.Head
	switch {
	case h.Status != core.StatusWaiting || !h.Held():
	case h.Paused != nil:
		x.accept(x.rig.deliver("resume", core.ResumeAsked{Received: x.rig.now}))
	case x.pick(2, "timer") == 0:
		x.fire()
	default:
		x.accept(x.rig.deliver("unpark", core.Unparked{Key: h.Parked.Key, Received: x.rig.now}))
	}
}

// waits checks that nothing but its time, somebody who unparks it, or one who resumes it has a held run driven, and that a run that
// is to wait makes no model call.
func (o *oracle) waits(before *core.Head, in core.Input, e *core.Entry) {
	now := &e.Head
	if now.Held() && now.Status == core.StatusRunning {
		if _, calls := o.rig.next().(core.CallModel); calls {
			o.Fatalf("entry %d: a run that is to wait would ask its model", e.Rev)
		}
	}
	for _, f := range e.Effects {
		first := f.Kind == core.EffectCall && f.Attempt <= 1 && e.Head.Call(f.Call) != nil && e.Head.Call(f.Call).Kind == core.CallService
		if _, hooked := in.Event.(core.Returned); first && !hooked && before.Paused != nil && now.Paused != nil {
			o.Fatalf("entry %d (%T) makes call %s of a run that is paused", e.Rev, in.Event, f.Call)
		}
	}
	if before.Status != core.StatusWaiting || now.Status == core.StatusDone || !before.Held() {
		return
	}
	if now.Status == core.StatusRunning && now.Held() {
		o.Fatalf("entry %d (%T) takes up a run that is to wait: %+v, %+v", e.Rev, in.Event, now.Paused, now.Parked)
	}
	if p := before.Parked; p != nil && p.Until > 0 && now.Parked.Until == 0 {
		fired, timer := in.Event.(core.Fired)
		unparked, asked := in.Event.(core.Unparked)
		due := timer && fired.Now >= p.Until
		if meant := asked && (unparked.Key == "" || unparked.Key == p.Key); !due && !meant {
			o.Fatalf("entry %d: %+v ends the wait until %d", e.Rev, in.Event, p.Until)
		}
	}
	if _, resumed := in.Event.(core.ResumeAsked); before.Paused != nil && now.Paused == nil && !resumed {
		o.Fatalf("entry %d: %T resumes the run", e.Rev, in.Event)
	}
}

// The pauses of a parked run double from 30 s to 10 min, with up to a quarter more that its name adds; a provider that wants to be
// left alone for longer is. They begin anew when the run has got on.
func TestParked_PausesGrow(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(service("lookup", 0)))
	r.spec.RunDeadline = 100 * 60 * minute
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	hour := int64(60 * minute)
	for i, try := range []struct{ after, least int64 }{
		{0, 30 * second},
		{0, minute},
		{0, 2 * minute},
		{0, 4 * minute},
		{0, 8 * minute},
		{0, 10 * minute},
		{0, 10 * minute},
		{hour, hour},
		{0, 10 * minute},
	} {
		mustStep(t, r, r.drive(core.Parked{Why: core.ParkModel, Key: "k", After: try.after}))
		p := r.state.Parked
		most := try.least + min(try.least, 10*minute)/4
		if waits := p.Until - r.now; waits < try.least || waits > most || p.Tries != i+1 || p.Since != epoch {
			t.Fatalf("try %d: the run waits %d ms, want %d to %d: %+v", i+1, waits, try.least, most, p)
		}
		if r.state.Timer != p.Until {
			t.Fatalf("the timer is armed for %d, want %d", r.state.Timer, p.Until)
		}
		r.now = p.Until
		mustStep(t, r, r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer}))
	}
	mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "lookup", Arguments: `{}`})))
	if r.state.Parked != nil {
		t.Errorf("the run got on, and waits for %+v", r.state.Parked)
	}
}

// The timer of a parked run is not later than its deadline, which ends it.
func TestParked_DeadlineEndsTheRun(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec())
	r.spec.RunDeadline = 20 * second
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	mustStep(t, r, r.drive(core.Parked{Why: core.ParkModel, Key: "k"}))
	if r.state.Timer != epoch+20*second {
		t.Errorf("the timer is armed for %d, want the deadline %d", r.state.Timer, epoch+20*second)
	}
	r.now = epoch + 20*second
	mustStep(t, r, r.deliver("fire", core.Fired{Now: r.now, Due: r.state.Timer}))
	if r.state.Status != core.StatusDone || r.state.Termination() != "deadline:run" {
		t.Errorf("the run is %s (%s)", r.state.Status, r.state.Termination())
	}
}

// A pause that an operator has taken back does not come back with another delivery of its message, nor does an unpark that found the
// run at work take it later.
func TestControl_OrderIsThatOfTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec())
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	unpark := r.deliver("unpark", core.Unparked{Key: "k", Received: r.now})
	pause := r.deliver("pause", core.PauseAsked{Received: r.now})
	resume := r.deliver("resume", core.ResumeAsked{Received: r.now})
	mustStep(t, r, unpark)
	mustStep(t, r, r.drive(core.Parked{Why: core.ParkModel, Key: "k"}))
	mustStep(t, r, resume)
	for _, in := range []core.Input{unpark, pause, resume} {
		in.Rev = r.state.Rev + 1
		if _, _, err := r.step(in); !errors.Is(err, core.ErrStale) {
			t.Errorf("%T: %v, want that it is stale", in.Event, err)
		}
	}
	if h := r.state.Head; h.Paused != nil || h.Status != core.StatusWaiting || h.Parked.Until == 0 {
		t.Errorf("the run is %s, paused %+v, parked %+v", h.Status, h.Paused, h.Parked)
	}
}

// A paused run begins nothing: not what the model asked for in a reply that was under way, nor what a person allows. Resumed, it
// makes its calls; what it waits for beside stays.
func TestPaused_CallsWait(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(service("lookup", 0), inline("add", false)))
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	mustStep(t, r, r.deliver("pause", core.PauseAsked{Reason: "look", Received: r.now}))
	replied := mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "lookup", Arguments: `{}`}, sdk.ToolRequest{Name: "add", Arguments: `{}`})))
	if r.state.Status != core.StatusWaiting || kinds(replied.Effects, core.EffectCall) != 0 {
		t.Fatalf("the run is %s, its reply led to %+v", r.state.Status, replied.Effects)
	}
	if diff := cmp.Diff(&core.Pause{At: epoch, Reason: "look"}, r.state.Paused); diff != "" {
		t.Errorf("the pause (-want +got):\n%s", diff)
	}
	resumed := mustStep(t, r, r.deliver("resume", core.ResumeAsked{Received: r.now}))
	if r.state.Status != core.StatusRunning || kinds(resumed.Effects, core.EffectCall) != 1 {
		t.Fatalf("resumed, the run is %s, with %+v", r.state.Status, resumed.Effects)
	}
	if next, ok := r.next().(core.RunTools); !ok || len(next.Run) != 1 || next.Run[0].Tool != "add" {
		t.Errorf("next is %+v, want to run add", r.next())
	}
}

// An at-most-once tool that was begun when the run was paused is run: nobody else may.
func TestPaused_WhatWasBegunIsDone(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec(inline("charge", true), inline("add", false)))
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	mustStep(t, r, r.drive(r.replied("", sdk.ToolRequest{Name: "charge", Arguments: `{}`}, sdk.ToolRequest{Name: "add", Arguments: `{}`})))
	charge := r.state.Calls[0].ID
	mustStep(t, r, r.drive(core.Began{Calls: []string{charge}}))
	mustStep(t, r, r.deliver("pause", core.PauseAsked{Received: r.now}))
	next, ok := r.next().(core.RunTools)
	if !ok || len(next.Run) != 1 || next.Run[0].ID != charge {
		t.Fatalf("next is %+v, want to run charge alone", r.next())
	}
	mustStep(t, r, r.drive(core.Returned{Results: []core.Result{{Call: charge, Kind: core.ResultInline, Data: []byte(`1`)}}}))
	if _, ok := r.next().(core.Park); !ok {
		t.Fatalf("next is %+v, want to let go", r.next())
	}
	mustStep(t, r, r.drive(core.Parked{Why: core.ParkPaused}))
	if r.state.Status != core.StatusWaiting || r.state.Parked != nil {
		t.Errorf("the run is %s, parked %+v", r.state.Status, r.state.Parked)
	}
}

// A run that is parked and paused goes on when both have ended, in either order.
func TestPaused_AndParked(t *testing.T) {
	t.Parallel()
	for _, resumedFirst := range []bool{true, false} {
		r := newRig(newSpec())
		mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
		mustStep(t, r, r.drive(core.Parked{Why: core.ParkModel, Key: "k"}))
		mustStep(t, r, r.deliver("pause", core.PauseAsked{Received: r.now}))
		resume := func() { mustStep(t, r, r.deliver("resume", core.ResumeAsked{Received: r.now})) }
		unpark := func() { mustStep(t, r, r.deliver("unpark", core.Unparked{Key: "k", Received: r.now})) }
		ends := []func(){unpark, resume}
		if resumedFirst {
			ends = []func(){resume, unpark}
		}
		ends[0]()
		if r.state.Status != core.StatusWaiting {
			t.Errorf("resumed first %t: after one of two the run is %s", resumedFirst, r.state.Status)
		}
		ends[1]()
		if r.state.Status != core.StatusRunning || r.state.Held() {
			t.Errorf("resumed first %t: the run is %s", resumedFirst, r.state.Status)
		}
	}
}

// What an older version would get wrong has the newer layout, from then on; what it knows has its own.
func TestLayout_OfParkedRuns(t *testing.T) {
	t.Parallel()
	r := newRig(newSpec())
	mustStep(t, r, r.deliver("init-1", started("order 7", "hello")))
	if v := r.entries[0].V; v != 1 {
		t.Errorf("the first entry has layout %d, want 1", v)
	}
	mustStep(t, r, r.drive(core.Parked{Why: core.ParkModel, Key: "k"}))
	mustStep(t, r, r.deliver("unpark", core.Unparked{Received: r.now}))
	mustStep(t, r, r.drive(r.replied("done")))
	for _, e := range r.entries[1:] {
		if e.V != 3 {
			t.Errorf("entry %d (%s) has layout %d, want 3", e.Rev, e.Kind, e.V)
		}
	}
}

func kinds(effects []core.Effect, kind core.EffectKind) int {
	n := 0
	for _, f := range effects {
		if f.Kind == kind {
			n++
		}
	}
	return n
}
