package audit

import (
	"agentd/internal/core"
	"agentd/sdk/wire"
)

// What follows is for systems that run: there, messages and events are forgotten after a time.

// Known says that published events are known from a time on, in Unix milliseconds: older entries need not have theirs.
func (c *Checker) Known(from int64) { c.horizon = from }

// Forgotten tells of a message that was stored once and that its stream no longer has. What it said cannot be checked.
func (c *Checker) Forgotten(stream string, sequence uint64) {
	if in := c.inputs[position{stream, sequence}]; in != nil { // it may have caused an entry, and need not be settled any more
		in.forgotten, in.removed, in.token = true, true, ""
		return
	}
	c.inputs[position{stream, sequence}] = &input{
		Message: Message{Stream: stream, Sequence: sequence}, forgotten: true,
	}
}

// Unpublished tells of an event that its stream no longer has, though somebody may need it.
func (c *Checker) Unpublished(subject string) {
	delete(c.ids, c.events[subject].event.ID)
	delete(c.events, subject)
}

// begun takes from the first entry what a forgotten init event would have told: where its terminal event belongs.
func (c *Checker) begun(r *run, e *core.Entry) {
	if e.Rev > 1 {
		return
	}
	for i, token := range e.Head.Generations() {
		subject := c.subjects.Done(e.Head.Agent, r.key, token)
		if init := e.Head.Init; i == 0 && init.Reply != nil {
			subject = c.subjects.Reply(*init.Reply)
		}
		c.awaits(&input{run: r.key, token: token}, subject)
	}
}

// Violate notes what whoever collects the logs found out.
func (c *Checker) Violate(invariant string, run wire.RunKey, format string, args ...any) {
	c.violate(invariant, run, format, args...)
}

// Invariants say in words what each invariant demands.
var Invariants = map[string]string{
	"I1":  "an init event, and every retry or undo of its run, has exactly one terminal event",
	"I2":  "a call has one result, for ever",
	"I3":  "no event is published before the entry that asks for it",
	"I4":  "the effects of every entry are carried out, but for calls that were closed before",
	"I5":  "an event id and its subject have one content",
	"I6":  "a journal is an unbroken chain that only grows",
	"I7":  "a run that is done stays as it is, unless an operator retries it or undoes what it did",
	"I8":  "every call has a result before the next model call",
	"I9":  "every driver has a higher fence than the one before",
	"I10": "a settled message is in a journal, a duplicate, or a dead letter",
	"I11": "every run ends",
	"I12": "at-most-once tools run once, others once for each driver",
	"I13": "a call that needs permission is made only with a decision that covers it",
	"I14": "every message is settled in the end",
	"I15": "a message changes no run but its own",
	"I16": "nothing times out early",
	"I18": "a call is undone once, and only one that returned without an error",
	"R3":  "a message is settled only when its run waits or is done and its effects are out",
	"R5":  "only the end of a driver's lease makes another driver",
}
