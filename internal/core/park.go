package core

import (
	"cmp"

	"agentd/internal/clip"
	"agentd/sdk/wire"
)

type (
	// ParkReason says what keeps a run that has something to do from being driven, as clients see it.
	ParkReason = wire.ParkReason
	// Parking is what a run waits for that has something to do. It stays in the head while the run is tried again, and until the
	// run gets on.
	Parking = wire.Parking
	// Pause is an operator's wish that the run does nothing more until it is resumed.
	Pause = wire.Pause
)

// The reasons, by their short names.
const (
	ParkModel  = wire.ParkModel
	ParkRate   = wire.ParkRate
	ParkPaused = wire.ParkPaused
)

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
	if ev.Key != "" {
		p := Parking{
			Why: ev.Why, Key: ev.Key, Model: ev.Model, Code: ev.Code, Message: clip.Text(ev.Message, maxParkMessage), Since: t.in.At, Tries: 1,
		}
		if before := h.Parked; before != nil && before.Key == p.Key {
			p.Since, p.Tries = before.Since, before.Tries+1
		} else {
			t.unpark()
		}
		p.Until = t.in.At + parking.pause(h.Key().Token, p.Tries, ev.After)
		h.Parked = &p
		t.Effects = append(t.Effects, Effect{Kind: EffectPark, Key: p.Key})
	}
	if h.Held() {
		t.suspend()
	}
	return nil
}

// unpark forgets what the run waited for: it gets on, or ends, or waits for something else.
func (t *transition) unpark() {
	if p := t.Head.Parked; p != nil {
		t.Head.Parked = nil
		t.Effects = append(t.Effects, Effect{Kind: EffectPark, Key: p.Key})
	}
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

// Finishing is what the driver has still to do whose run is not to go on for now: to run the at-most-once tools that it has begun,
// because nobody else may, and then to let go.
func Finishing(head *Head) Action {
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
