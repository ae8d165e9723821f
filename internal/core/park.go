package core

import (
	"cmp"

	"agentd/internal/clip"
	"agentd/sdk"
)

// ParkReason says what keeps a run that has something to do from being driven.
type ParkReason string

// The reasons. Budget and slot are kept for what bounds runs of several agents together.
const (
	ParkModel  ParkReason = "model"  // its model cannot be asked
	ParkRate   ParkReason = "rate"   // its model's provider wants it to slow down
	ParkPaused ParkReason = "paused" // an operator paused it
	ParkBudget ParkReason = "budget"
	ParkSlot   ParkReason = "slot"
)

// Parking is what a run waits for that has something to do. It stays in the head while the run is tried again, and until the run
// gets on.
type Parking struct {
	Why ParkReason `json:"why"`
	// Key names what is missing: runs with the same key wait for the same thing. Model is its name for people.
	Key   string `json:"key"`
	Model string `json:"model,omitempty"`
	// Code and Message say how the last try failed.
	Code    sdk.Code `json:"code,omitempty"`
	Message string   `json:"message,omitempty"`
	// Until is when the run is tried again, and Since when it first had to wait: Unix milliseconds. Until is 0 once its time has
	// come, or somebody has unparked the run.
	Until int64 `json:"until,omitempty"`
	Since int64 `json:"since"`
	// Tries is how often in a row it came to nothing.
	Tries int `json:"tries"`
}

// Pause is an operator's wish that the run does nothing more until it is resumed.
type Pause struct {
	// At is when it was heard, in Unix milliseconds, and Reason what was said of it.
	At     int64  `json:"at"`
	Reason string `json:"reason,omitempty"`
}

// Order is the place of a control message among all: that of its stream, whatever clocks say, unless the stream was made anew.
type Order struct {
	Sequence uint64 `json:"seq"`
	// Received is when the broker stored it, in Unix milliseconds.
	Received int64 `json:"received"`
}

// parking is how long a parked run waits before it is tried again, in milliseconds.
var parking = Retry{Pause: 30_000, Longest: 10 * 60_000}

// maxParkMessage is how much of an error a parked run keeps, or of a reason a paused one, in bytes: it is written with every entry until the run gets on.
const maxParkMessage = 256

// Held reports whether nobody may drive the run, whatever it has to do.
func (h *Head) Held() bool { return h.Paused != nil || h.Parked != nil && h.Parked.Until > 0 }

// parked lets go of a run that cannot go on for now. A pause that was taken back meanwhile leaves it running.
func (t *transition) parked(ev Parked) error {
	h := &t.Head
	if ev.Why != ParkPaused {
		p := Parking{
			Why: ev.Why, Key: ev.Key, Model: ev.Model, Code: ev.Code, Message: clip.Text(ev.Message, maxParkMessage), Since: t.in.At, Tries: 1,
		}
		if before := h.Parked; before != nil && before.Key == p.Key {
			p.Since, p.Tries = before.Since, before.Tries+1
		}
		p.Until = t.in.At + parking.pause(h.Key().Token, p.Tries, ev.After)
		h.Parked = &p
		t.Effects = append(t.Effects, Effect{Kind: EffectPark})
	}
	if h.Held() {
		t.suspend()
	}
	return nil
}

// heed reports whether a control message is to be looked at, and notes that it was, also when it changes nothing. One that was, or that
// came before one that was, is stale for ever: else another delivery of it could take the run, or pause it, just before the first one
// is acked.
func (t *transition) heed(received int64) bool {
	h, o := &t.Head, Order{Sequence: t.in.Cause.Sequence, Received: received}
	before := h.Heeded != nil && o.Sequence <= h.Heeded.Sequence && o.Received <= h.Heeded.Received
	if before || h.Status == StatusDone || h.Cancel != nil {
		return false
	}
	h.Heeded = &o
	return true
}

// unparked has a parked run tried again, if that is what it waits for.
func (t *transition) unparked(ev Unparked) error {
	if !t.heed(ev.Received) {
		return ErrStale
	}
	p := t.Head.Parked
	if p == nil || p.Until == 0 || ev.Key != "" && ev.Key != p.Key {
		return nil
	}
	p.Until = 0
	return t.settle()
}

func (t *transition) pauseAsked(ev PauseAsked) error {
	if !t.heed(ev.Received) {
		return ErrStale
	}
	if t.Head.Paused == nil {
		t.Head.Paused = &Pause{At: t.in.At, Reason: clip.Text(ev.Reason, maxParkMessage)}
	}
	return nil
}

// resumeAsked lets the run go on, unless it waits for something else.
func (t *transition) resumeAsked(ev ResumeAsked) error {
	if !t.heed(ev.Received) {
		return ErrStale
	}
	if t.Head.Paused == nil {
		return nil
	}
	t.Head.Paused = nil
	return t.settle()
}

// dueAgain notes that the time has come to try a parked run again.
func (t *transition) dueAgain(now int64) {
	if p := t.Head.Parked; p != nil && p.Until > 0 && p.Until <= now {
		p.Until = 0
	}
}

// finishing is what the driver of a paused run has still to do: to run the at-most-once tools that it has begun, because nobody else
// may, and then to let go.
func finishing(head *Head) Action {
	var a RunTools
	for _, c := range head.Calls {
		if c.Status == CallRunning && c.Begun == head.Driver.Owner {
			a.Run = append(a.Run, c)
		}
	}
	if len(a.Run) == 0 {
		return Park{}
	}
	return a
}

// triedAt is when the run is tried again at the latest, or ends, by itself: Unix milliseconds.
func (h *Head) triedAt() int64 {
	if h.Parked == nil {
		return h.Deadline
	}
	return min(cmp.Or(h.Parked.Until, h.Deadline), h.Deadline)
}
