package audit

import (
	"bytes"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Published tells of an event that a worker published, or tried to publish again, with its bytes.
func (c *Checker) Published(subject string, ev wire.Event, data []byte) {
	address, err := c.subjects.Parse(subject)
	if err != nil {
		c.violate("I5", wire.RunKey{}, "event on %s: %v", subject, err)
		return
	}
	if former, ok := c.events[subject]; ok {
		if !bytes.Equal(former.data, data) {
			c.violate("I5", address.Run, "two contents on %s:\n%s\n%s", subject, former.data, data)
		}
		return
	}
	if other, ok := c.ids[ev.ID]; ok {
		c.violate("I5", address.Run, "event %s is on %s and on %s", ev.ID, other, subject)
	}
	c.ids[ev.ID] = subject
	c.events[subject] = published{data, ev}
	switch address.Kind {
	case wire.KindOut:
		c.publishedCall(address, ev)
	case wire.KindVoid:
		ref, _ := wire.ParseCallRef(address.Call.Call)
		if r := c.runs[address.Run]; r == nil || !r.unknown() && r.effect(core.EffectVoid, ref) == nil {
			c.violate("I3", address.Run, "%s before any entry asks for it", subject)
		}
	case wire.KindDone, wire.KindIn:
		if ev.Type == sdk.TypeParentAnswered {
			c.publishedAnswer(subject, ev)
			return
		}
		c.publishedTerminal(subject, address, ev)
	default:
		c.violate("I5", address.Run, "a worker published on %s", subject)
	}
}

// effect returns the entry that lists an effect of that kind for that attempt at a call, or nil.
func (r *run) effect(kind core.EffectKind, ref wire.CallRef) *core.Entry {
	for _, e := range r.entries {
		for _, f := range e.Effects {
			if f.Kind == kind && f.Call == ref.ID && max(f.Attempt, 1) == ref.Attempt {
				return e
			}
		}
	}
	return nil
}

func (c *Checker) publishedCall(address wire.Address, ev wire.Event) {
	ref, _ := wire.ParseCallRef(address.Call.Call)
	r := c.runs[address.Run]
	if r == nil {
		c.violate("I3", address.Run, "call %s of a run without a journal", address.Call.Call)
		return
	}
	e := r.effect(core.EffectCall, ref)
	if e == nil && r.unknown() {
		return
	}
	if e == nil {
		c.violate("I3", address.Run, "call %s before any entry asks for it", address.Call.Call)
		return
	}
	k, f := r.calls[ref.ID], e.Effect(core.EffectCall, ref.ID)
	for _, open := range e.Head.Calls {
		if k == nil && eventOf(&open) == ref.ID {
			k = r.calls[open.ID] // one of those that the event asks for together
		}
	}
	reply := c.subjects.Reply(address.Call)
	switch {
	case ev.ID != address.Call.Call || ev.Subject != e.Head.Run || ev.Type != f.Type || ev.ParentID != e.Cause.EventID:
		c.violate("I5", address.Run, "call %s has the envelope of another: %+v", ref.ID, ev)
	case ev.Source != reply || ev.RedirectTo != reply:
		c.violate("I5", address.Run, "call %s asks for its answer on %s and %s", ref.ID, ev.Source, ev.RedirectTo)
	case k == nil || !k.person && !f.ParentSubject && !bytes.Equal(k.args, ev.Data):
		c.violate("I5", address.Run, "call %s carries other arguments: %s", ref.ID, ev.Data)
	}
}

// publishedAnswer checks the answer to an agent that a run has called, and that has asked it something.
func (c *Checker) publishedAnswer(subject string, ev wire.Event) {
	caller, _, _ := core.Caller(ev.Subject)
	ref, _ := wire.ParseCallRef(ev.ID)
	r := c.runs[wire.NewRunKey(caller)]
	if r == nil || !r.unknown() && r.effect(core.EffectAnswer, ref) == nil {
		c.violate("I3", wire.NewRunKey(caller), "%s before any entry asks for it", subject)
	}
}

// publishedTerminal checks the end of a run, or the refusal of an init event.
func (c *Checker) publishedTerminal(subject string, address wire.Address, ev wire.Event) {
	init := c.inits[ev.ID]
	if init == nil {
		c.violate("I1", address.Run, "terminal event %s on %s answers no init event", ev.ID, subject)
		return
	}
	if init.answered != "" {
		c.violate("I1", init.run, "a second terminal event, on %s after %s", subject, init.answered)
	}
	init.answered = subject
	expected := false
	for _, s := range init.subjects {
		expected = expected || s == subject
	}
	if !expected {
		c.violate("I1", init.run, "terminal event on %s, expected on %v", subject, init.subjects)
	}
	r := c.runs[init.run]
	if r == nil {
		return
	}
	end := r.end(init.token)
	if end == nil {
		return // a refusal; if its init starts a run all the same, Finish reports it
	}
	if end.Head.Purged == nil && (end.Terminal == nil || end.Terminal.Type != ev.Type) {
		c.violate("I3", init.run, "terminal event %s before the entry that ends the run", ev.Type)
	}
	of, _ := ev.Extensions[wire.RetryOf].(string)
	if retry := end.Head.Retry; of != end.Head.RetryOf() || retry != nil && ev.ParentID != retry.ID {
		c.violate("I5", init.run, "the terminal event %s says that it is a retry of %q, for %s", ev.ID, of, ev.ParentID)
	}
}

// Executed tells that an inline tool is about to run.
func (c *Checker) Executed(x Execution) {
	r := c.run(x.Run)
	k := r.calls[x.Call]
	if k == nil && r.unknown() {
		return
	}
	if k == nil {
		c.violate("I3", x.Run, "tool of call %s ran before any entry asks for it", x.Call)
		return
	}
	k.executed++
	c.permitted(r, r.last(), x.Call)
	if x.Args != nil && !bytes.Equal(x.Args, k.args) {
		c.violate("I13", x.Run, "call %s ran with other arguments: %s", x.Call, x.Args)
	}
	head := &r.last().Head
	drivers := int(head.Fence-k.opened.Head.Fence) + 1
	begun := k.result != nil // whoever began it may have been declared lost meanwhile
	for _, open := range head.Calls {
		begun = begun || open.ID == x.Call && open.Status == core.CallRunning
	}
	switch {
	case x.AtMostOnce && k.executed > 1+k.questions:
		c.violate("I12", x.Run, "at-most-once call %s ran %d times and asked %d questions", x.Call, k.executed, k.questions)
	case x.AtMostOnce && !begun:
		c.violate("I12", x.Run, "at-most-once call %s ran before it was marked", x.Call)
	case k.executed > drivers+k.questions:
		c.violate("I12", x.Run, "call %s ran %d times under %d drivers", x.Call, k.executed, drivers)
	}
}

// GeneratedUnwritten is Generated of a model that is asked before anything says that its run is driven: each message lets that be once.
func (c *Checker) GeneratedUnwritten(key wire.RunKey, cause core.Cause) {
	r, at := c.run(key), positionOf(cause)
	if r.unwritten[at] {
		c.violate("I12", key, "a model is called again before %s %d is written", at.stream, at.sequence)
	}
	r.unwritten[at] = true
	c.Generated(key)
}

// Generated tells that a model is about to be called for a run, for its next step rather than for a summary.
func (c *Checker) Generated(key wire.RunKey) {
	r := c.run(key)
	r.generations++
	if h := &r.last().Head; !r.unknown() && r.generations > h.Turns+int(h.Fence)+r.urgent+len(r.unwritten) {
		c.violate("I12", key, "%d model calls for %d accepted replies under %d drivers", r.generations, h.Turns, h.Fence)
	}
}
