package audit

import (
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// waits checks that a run which waits will be woken in time, by a timer that was armed, and one that goes on while calls are open too.
func (c *Checker) waits(r *run, e *core.Entry) {
	for _, f := range e.Effects {
		if f.Kind == core.EffectTimer {
			r.armed = f.Due
		}
	}
	h := &e.Head
	if h.Timer > 0 && h.Timer != r.armed {
		c.violate("I11", r.key, "entry %d says that the timer is armed for %d, and it is for %d", e.Rev, h.Timer, r.armed)
	}
	if h.Status == core.StatusDone || h.Cancel != nil {
		return
	}
	waits := h.Status == core.StatusWaiting
	first := h.Deadline
	if !waits {
		first = h.Timer
	}
	if h.Parked != nil && h.Parked.Until > 0 {
		first = min(first, h.Parked.Until)
	}
	watched := waits
	for _, open := range h.Calls {
		for _, due := range []int64{open.Due, open.RetryAt} {
			if !open.Closed() && due > 0 && (waits || open.Opened > 0) {
				watched = true
				first = min(first, due)
			}
		}
	}
	if watched && (h.Timer == 0 || h.Timer > first) {
		c.violate("I11", r.key, "entry %d watches the run until %d, though something is due at %d", e.Rev, h.Timer, first)
	}
}

// abandoned checks that whoever was asked in vain is told so, by every event that asked, but those answered with an error.
func (c *Checker) abandoned(r *run, last, e *core.Entry, result *core.Result) {
	if result.Kind != core.ResultTimeout && result.Kind != core.ResultCancelled {
		return
	}
	i := slices.IndexFunc(last.Head.Calls, func(o core.Call) bool { return o.ID == result.Call })
	if i < 0 {
		return // opened and closed by one entry: nobody was asked
	}
	open := &last.Head.Calls[i]
	if open.Kind != core.CallService || open.Status != core.CallSuspended || open.Held != "" {
		return
	}
	for attempt := open.Voided + 1; attempt <= max(open.Attempt, 1); attempt++ {
		told := slices.ContainsFunc(e.Effects, func(f core.Effect) bool {
			return f.Kind == core.EffectVoid && f.Call == open.ID && max(f.Attempt, 1) == attempt
		})
		if !told && !slices.Contains(open.Refused, attempt) {
			c.violate("I4", r.key, "entry %d gives up attempt %d at call %s and tells nobody", e.Rev, attempt, open.ID)
		}
	}
}

// awaited checks that a dead letter is not an answer that a run waits for.
func (c *Checker) awaited(in *input, reason sdk.Code) {
	r := c.runs[in.run]
	if reason != sdk.CodeUnknownRun || r == nil || !in.known || in.address.Kind != wire.KindIn {
		return
	}
	ref, _ := wire.ParseCallRef(in.address.Call.Call)
	for _, k := range r.calls {
		if k.event == ref.ID && k.result == nil && r.last().Head.Status != core.StatusDone && c.answers(r, k, in) {
			c.violate("I10", r.key, "%s %d was dead-lettered while its call %s is open", in.Stream, in.Sequence, ref.ID)
			return
		}
	}
}
