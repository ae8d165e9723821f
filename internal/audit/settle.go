package audit

import (
	"encoding/json"
	"slices"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// Removed tells that an input was acked.
func (c *Checker) Removed(stream string, sequence uint64) {
	at := position{stream, sequence}
	in := c.inputs[at]
	if in == nil {
		c.violate("I10", wire.RunKey{}, "%s %d was removed and never stored", stream, sequence)
		return
	}
	in.removed = true
	r := c.runs[in.run]
	if r != nil {
		head := &r.last().Head
		if head.Status == core.StatusRunning && head.Driver.Covers(core.Cause{Stream: stream, Sequence: sequence}) {
			c.violate("R3", r.key, "%s %d was removed while it covers the run", stream, sequence)
		}
	}
	switch {
	case in.letter != "":
	case !in.known:
		c.violate("I10", in.run, "%s %d cannot be read and was not dead-lettered", stream, sequence)
	case r != nil && r.causes[at]:
		for _, e := range r.entries {
			if positionOf(e.Cause) == at {
				c.effectsOut("R3", r, e)
			}
		}
	case in.forgotten: // it may have been another message that was removed
	default:
		c.duplicate(in, r)
	}
}

// duplicate checks that a message may be removed although it caused nothing.
func (c *Checker) duplicate(in *input, r *run) {
	switch {
	case in.question:
		c.unasked(in, r)
		return
	case in.address.Kind == wire.KindStart || in.address.Kind == wire.KindOut:
		c.refused(in, r)
		return
	}
	if r == nil || len(r.entries) == 0 {
		if in.address.Kind == wire.KindVoid {
			c.voided[in.address.Call] = true // it came before its call; who begins the run finds it
			return
		}
		c.violate("I10", in.run, "%s %d for an unknown run was removed and not dead-lettered", in.Stream, in.Sequence)
		return
	}
	head := &r.last().Head
	if in.address.Verb == wire.ControlRetry || in.address.Verb == wire.ControlUndo {
		if in.Event != nil && !head.RetriedBy(wire.InitToken(in.Event.Source, in.Event.ID)) {
			c.violate("I10", r.key, "%s %d was removed and the run was not taken up", in.Stream, in.Sequence)
		}
		return
	}
	if head.Status == core.StatusDone || in.address.Kind == wire.KindCtl && !in.address.Verb.Known() {
		return // what another verb comes to is known to the version that has it
	}
	switch in.address.Kind {
	case wire.KindIn:
		ref, _ := wire.ParseCallRef(in.address.Call.Call)
		for _, open := range head.Calls {
			if eventOf(&open) == ref.ID && !open.Closed() && !superseded(open, ref, in.Event) {
				c.violate("I10", r.key, "%s %d was removed while its call %s is open", in.Stream, in.Sequence, ref.ID)
			}
		}
	case wire.KindFire:
		if head.Timer == in.Due && !c.carried(head) {
			c.violate("I10", r.key, "%s %d was removed while the run waits for that timer", in.Stream, in.Sequence)
		}
	case wire.KindCtl, wire.KindVoid:
		c.unobeyed(in, r)
	default:
	}
}

// unobeyed checks that what a run is told may be removed although it caused nothing.
func (c *Checker) unobeyed(in *input, r *run) {
	head := &r.last().Head
	switch verb := in.address.Verb; {
	case verb == wire.ControlMessage:
		if in.Event != nil && !slices.Contains(head.Heard, core.NoteID(in.Event.Source, in.Event.ID)) {
			c.violate("I10", r.key, "%s %d was removed and the run has not heard it", in.Stream, in.Sequence)
		}
	case verb == wire.ControlTag:
		c.untagged(in, r)
	case verb == wire.ControlCancelCall:
		if open := head.Call(cancels(in)); open != nil && !open.Closed() && !r.beforeRetry(in) && head.Cancel == nil {
			c.violate("I10", r.key, "%s %d was removed while the call %s is open", in.Stream, in.Sequence, open.ID)
		}
	case in.address.Kind == wire.KindCtl && verb != wire.ControlCancel:
		c.unheeded(in, r)
	case head.Cancel != nil || r.beforeRetry(in):
	case in.address.Kind == wire.KindVoid && head.Turns == 0:
		r.voided = true // no run was there when it was handled; who begins the run finds it
	default:
		c.violate("I10", r.key, "%s %d was removed and the run is not cancelled", in.Stream, in.Sequence)
	}
}

// carried reports whether a run without a timer goes on with its driver's message, which is there. A timer that is sent to it then, for one
// whose message is gone, is not needed: it may have come for a driver before this one.
func (c *Checker) carried(head *core.Head) bool {
	if head.Timer > 0 || head.Driver == nil {
		return false
	}
	driver := c.inputs[position{head.Driver.Stream, head.Driver.Sequence}]
	return driver != nil && !driver.removed && !driver.forgotten
}

// untagged checks a message about tags that was removed: the run must have taken it, unless it was to end.
func (c *Checker) untagged(in *input, r *run) {
	head := &r.last().Head
	if in.Event == nil || head.Cancel != nil || r.beforeRetry(in) || slices.Contains(head.Tagged, core.NoteID(in.Event.Source, in.Event.ID)) {
		return
	}
	c.violate("I10", r.key, "%s %d was removed and the run does not have its tags", in.Stream, in.Sequence)
}

// superseded reports whether an attempt was given up, or its error had led to another attempt before: it may be forgotten then.
func superseded(open core.Call, ref wire.CallRef, ev *wire.Event) bool {
	if ref.Attempt <= open.Voided {
		return true
	}
	isError := ev != nil && ev.Type == wire.ErrorType(open.Type)
	return isError && (ref.Attempt < open.Attempt || slices.Contains(open.Refused, ref.Attempt))
}

// refused checks an init event that caused nothing: its run was started by its double, or it got a terminal event.
func (c *Checker) refused(in *input, r *run) {
	started := r != nil && r.last().Head.Init.Token == in.token
	if !started && c.ids[wire.TerminalID(in.run, in.token)] == "" {
		c.violate("I10", in.run, "init event %s %d was removed without a run or a terminal event", in.Stream, in.Sequence)
	}
}

// unasked checks a question that caused nothing: the run has heard it, or its agent was told that it has not.
func (c *Checker) unasked(in *input, r *run) {
	heard := func(e *core.Entry) bool {
		return slices.ContainsFunc(e.Notes, func(n core.Note) bool { return n.Event == in.Event.ID })
	}
	if (r == nil || !slices.ContainsFunc(r.entries, heard)) && c.ids[wire.TerminalID(in.run, in.token)] == "" {
		c.violate("I10", in.run, "question %s %d was removed, and was neither heard nor refused", in.Stream, in.Sequence)
	}
}

// effectsOut checks that the events of an entry exist, of calls those that the run waits for.
func (c *Checker) effectsOut(invariant string, r *run, e *core.Entry) {
	if e.At < c.horizon {
		return
	}
	c.entry = e.Rev
	defer func() { c.entry = 0 }()
	effects := e.Effects
	if e.Head.Purged != nil {
		effects = []core.Effect{{Kind: core.EffectTerminal}} // a tombstone lists none, and the run had this one
	}
	for _, f := range effects {
		if f.Kind == core.EffectCall && r.closedSince(e, f.Call) {
			continue // before it was out, or it was removed when nobody needed it any more
		}
		switch f.Kind {
		case core.EffectCall, core.EffectVoid:
			for i := range f.Lanes() {
				if subject := c.subject(r, e, f, i); c.events[subject].data == nil && !c.forgotten(r, e, f, i) {
					c.violate(invariant, r.key, "%s of entry %d is not on %s", f.Kind, e.Rev, subject)
				}
			}
		case core.EffectTerminal:
			if id := wire.TerminalID(r.key, e.Head.Generation().Token); c.ids[id] == "" {
				c.violate(invariant, r.key, "the terminal event %s is missing", id)
			}
		case core.EffectAnswer:
			if subject := c.subjects.Reply(f.Question.At); c.events[subject].data == nil {
				c.violate(invariant, r.key, "%s of entry %d is not on %s", f.Kind, e.Rev, subject)
			}
		case core.EffectTimer, core.EffectGrant, core.EffectCleanup, core.EffectRunEnd, core.EffectPark:
		}
	}
}

// closedSince reports whether the run has not waited for a call at some time since the entry that asked for it: when a retry takes it up
// again, it is with an attempt of its own.
func (r *run) closedSince(e *core.Entry, call string) bool {
	at := slices.Index(r.entries, e)
	return slices.ContainsFunc(r.entries[at:], func(later *core.Entry) bool { return !later.Head.Waits(call) })
}

// forgotten reports whether the effect is the void of a call that is not there, of a run that has ended since, though it may have been taken
// up again: nobody has the call.
func (c *Checker) forgotten(r *run, e *core.Entry, f core.Effect, i int) bool {
	since := r.entries[slices.Index(r.entries, e):]
	ended := slices.ContainsFunc(since, func(later *core.Entry) bool { return later.Head.Status == core.StatusDone })
	return f.Kind == core.EffectVoid && ended && c.events[c.subjects.Call(address(r, e, f, i))].data == nil
}

// subject is where the effect's event for its i-th domain belongs.
func (c *Checker) subject(r *run, e *core.Entry, f core.Effect, i int) string {
	if f.Kind == core.EffectVoid {
		return c.subjects.Void(address(r, e, f, i))
	}
	return c.subjects.Call(address(r, e, f, i))
}

func address(r *run, e *core.Entry, f core.Effect, i int) wire.CallAddress {
	ref := wire.CallRef{ID: f.Call, Attempt: max(f.Attempt, 1)}
	if i > 0 {
		ref.Domain = wire.DomainToken(f.Lanes()[i])
	}
	return wire.CallAddress{
		Domain: wire.DomainToken(f.Lanes()[i]), Type: wire.NameToken(f.Type), Agent: wire.NameToken(e.Head.Agent),
		Run: r.key, Call: ref.EventID(),
	}
}

// Finish checks what must hold when the system has come to rest, and returns all violations.
func (c *Checker) Finish() []Violation {
	for _, r := range c.order {
		if status := r.last().Head.Status; status != core.StatusDone {
			c.violate("I11", r.key, "the run is %s at the end: %+v", status, r.last().Head)
		}
		for _, e := range r.entries {
			c.effectsOut("I4", r, e)
		}
	}
	for _, in := range c.arrived {
		if !in.removed {
			c.violate("I14", in.run, "%s %d on %s was never removed", in.Stream, in.Sequence, in.Subject)
		}
		if in.token != "" && !in.question && in.letter == "" && c.ids[wire.TerminalID(in.run, in.token)] == "" {
			c.violate("I1", in.run, "init event %s %d got no terminal event", in.Stream, in.Sequence)
		}
	}
	return c.violations
}

// cancels is the call that a message wants cancelled.
func cancels(in *input) string {
	var data struct {
		Call string `json:"call"`
	}
	if in.Event == nil || json.Unmarshal(in.Event.Data, &data) != nil {
		return ""
	}
	return data.Call
}
