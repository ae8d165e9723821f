package audit

import (
	"encoding/json"
	"slices"

	"agentd/internal/core"
)

// held checks that a parked run is driven only when its time has come or it was unparked, and that whoever drives a run and knows that
// it is paused begins nothing more.
func (c *Checker) held(r *run, last, e *core.Entry) {
	before, now := &last.Head, &e.Head
	if now.Status == core.StatusDone {
		return
	}
	if p := before.Parked; p != nil && p.Until > 0 && (now.Parked == nil || now.Parked.Until == 0) && !c.ends(e, p) {
		c.violate("I17", r.key, "entry %d (%s) goes on with a run that is parked until %d", e.Rev, e.Kind, p.Until)
	}
	if p := before.Parked; e.Kind == core.KindUnparked && p != nil && p.Until > 0 && c.ends(e, p) && now.Parked.Until > 0 {
		c.violate("I17", r.key, "entry %d unparks the run, and it waits until %d", e.Rev, now.Parked.Until)
	}
	if before.Paused != nil && now.Paused == nil && e.Kind != core.KindResumeAsked {
		c.violate("I17", r.key, "entry %d (%s) resumes a run that was paused", e.Rev, e.Kind)
	}
	if before.Status == core.StatusWaiting && now.Status == core.StatusRunning && now.Held() {
		c.violate("I17", r.key, "entry %d (%s) takes up a run that is to wait", e.Rev, e.Kind)
	}
	if r.pauseKnown && slices.Contains(steps, e.Kind) {
		c.violate("I17", r.key, "entry %d (%s) was made by a driver that knows of the pause", e.Rev, e.Kind)
	}
	driver, owner := now.Driver, ""
	if before.Driver != nil {
		owner = before.Driver.Owner
	}
	learns := slices.Contains(steps, e.Kind) || e.Kind == core.KindReturned || driver != nil && driver.Owner != owner
	r.pauseKnown = now.Paused != nil && driver != nil && (r.pauseKnown || learns)
}

// steps are the kinds of entries that a driver of a paused run must not make.
var steps = []string{
	core.KindReplied, core.KindCompacted, core.KindInquired, core.KindChosen, core.KindPlanned, core.KindRouted, core.KindBegan, core.KindReviewed, core.KindBuilt,
}

// ends reports whether the cause of an entry is what a parked run waits for.
func (c *Checker) ends(e *core.Entry, p *core.Parking) bool {
	in := c.inputs[positionOf(e.Cause)]
	switch {
	case in == nil || in.forgotten:
		return true
	case e.Kind == core.KindFired:
		return in.Received >= p.Until
	case e.Kind == core.KindUnparked:
		key := unparks(in)
		return key == "" || key == p.Key
	}
	return false
}

// unparks is the key that a message unparks runs of; empty is any.
func unparks(in *input) string {
	var data struct {
		Key string `json:"key"`
	}
	if in.Event == nil || json.Unmarshal(in.Event.Data, &data) != nil {
		return ""
	}
	return data.Key
}

// unheeded checks a control message that was removed and caused nothing: it must have been looked at, or one that came later, unless the
// run may have been done when it was handled.
func (c *Checker) unheeded(in *input, r *run) {
	h := &r.last().Head
	if h.Cancel == nil && !r.beforeRetry(in) && (h.Heeded == nil || h.Heeded.Sequence < in.Sequence) {
		c.violate("I10", r.key, "%s %d asked the run to %s, and was removed unheard", in.Stream, in.Sequence, in.address.Verb)
	}
}
