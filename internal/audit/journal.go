package audit

import (
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Committed tells that the next entry of a run's journal is durable, with its blobs put back and the digest of its bytes.
// The entry is kept and must not be modified. What a failover of the store may still forget must not be told: nothing may
// follow from it.
func (c *Checker) Committed(key wire.RunKey, digest string, e *core.Entry) {
	r := c.run(key)
	last := r.last()
	c.entry = e.Rev
	defer func() { c.entry = 0 }()
	if e.Head.Purged != nil {
		c.purged(r, digest, e)
		return
	}
	c.chain(r, last, e)
	c.cause(r, e)
	r.digest = digest
	for _, part := range e.Parts() {
		c.part(r, r.last(), part)
	}
}

// part checks one part of the next entry, after the one before.
func (c *Checker) part(r *run, last, e *core.Entry) {
	c.follows(r, last, e)
	c.driver(r, last, e)
	c.held(r, last, e)
	if e.Kind == core.KindReplied || e.Kind == core.KindPlanned || e.Kind == core.KindRouted {
		c.answeredAll(r)
		if c.unwanted(r) && last.Head.Cancel == nil {
			c.violate("I10", r.key, "entry %d goes on with a run that was voided before it began", e.Rev)
		}
	}
	r.entries = append(r.entries, e)
	for i := range e.Messages {
		c.remember(r, e, &e.Messages[i])
	}
	for _, q := range e.Inquiries {
		c.inquired(r, e, q)
	}
	r.opened(e)
	c.asksAgain(r, e)
	c.heard(r, e)
	c.permissions(r, last, e)
	c.steps(r, last, e)
	for i := range e.Results {
		c.resulted(r, e, &e.Results[i])
		c.abandoned(r, last, e, &e.Results[i])
	}
	for _, m := range e.Messages {
		c.told(r, m)
	}
	c.undid(r, e)
	c.waits(r, e)
	c.ended(r, last, e)
}

// unwanted reports whether the run answers a call that was voided before the run began. Whoever drives it under another
// message than the call, because a driver has handed it back, need not know yet.
func (c *Checker) unwanted(r *run) bool {
	if r.voided || len(c.voided) == 0 || len(r.entries) == 0 {
		return r.voided
	}
	in := c.inputs[positionOf(r.entries[0].Cause)]
	handedBack := slices.ContainsFunc(r.entries, func(e *core.Entry) bool { return e.Kind == core.KindReleased })
	return in != nil && in.address.Kind == wire.KindOut && c.voided[in.address.Call] && !handedBack
}

// chain checks what links an entry to the one before.
func (c *Checker) chain(r *run, last, e *core.Entry) {
	if e.Rev != last.Rev+1 || e.Prev != r.digest {
		c.violate("I6", r.key, "entry %d does not follow entry %d", e.Rev, last.Rev)
	}
	if r.etags[e.Etag] {
		c.violate("I6", r.key, "entry %d has the etag of another", e.Rev)
	}
	r.etags[e.Etag] = true
	if e.Absorbed != nil && (len(e.Absorbed.Effects) > 0 || e.Absorbed.Absorbed != nil || e.Kind != core.KindReplied) {
		c.violate("I3", r.key, "entry %d (%s) has absorbed what must be an entry of its own: %+v", e.Rev, e.Kind, e.Absorbed.Effects)
	}
}

// follows checks what may come after what.
func (c *Checker) follows(r *run, last, e *core.Entry) {
	if last.Head.Status == core.StatusDone {
		c.takenUp(r, last, e)
	}
	if err := e.Head.Check(); err != nil {
		c.violate("I8", r.key, "entry %d: %v", e.Rev, err)
	}
	if e.Head.Key() != r.key {
		c.violate("I15", r.key, "entry %d is of run %q", e.Rev, e.Head.Run)
	}
	accepted := 0
	if e.Kind == core.KindReplied {
		accepted = 1
	}
	if e.Kind == core.KindPlanned || e.Kind == core.KindRouted { // by a model, or by a template and by conditions alone
		accepted = min(e.Head.Turns-last.Head.Turns, 1)
	}
	if e.Head.Turns-last.Head.Turns != accepted {
		c.violate("I8", r.key, "entry %d (%s) counts %d model calls after %d",
			e.Rev, e.Kind, e.Head.Turns, last.Head.Turns)
	}
}

// driver checks fences: every new driver has a higher one.
func (c *Checker) driver(r *run, last, e *core.Entry) {
	before, now := last.Head.Driver, e.Head.Driver
	changed := now != nil && now.Owner != "" && (before == nil || before.Owner != now.Owner)
	if now != nil && now.Deaths > core.MaxDeaths {
		c.violate("I11", r.key, "entry %d is the takeover after %d deaths of drivers that were alone", e.Rev, now.Deaths)
	}
	switch {
	case e.Head.Fence < last.Head.Fence:
		c.violate("I9", r.key, "entry %d has fence %d after %d", e.Rev, e.Head.Fence, last.Head.Fence)
	case changed && e.Head.Fence == last.Head.Fence:
		c.violate("I9", r.key, "entry %d has a new driver and the old fence %d", e.Rev, e.Head.Fence)
	case changed && !now.Covers(e.Cause):
		c.violate("R3", r.key, "entry %d: the new driver's lease is not the delivery of the cause", e.Rev)
	case changed && before != nil && before.Owner != "" && !before.Covers(e.Cause) && !c.backstop(e):
		c.violate("R5", r.key, "entry %d: a message of its own takes the run from a driver that holds its lease", e.Rev)
	}
}

// backstop reports whether the entry was made for a message that may take a run from a driver that is silent.
func (c *Checker) backstop(e *core.Entry) bool {
	in := c.inputs[positionOf(e.Cause)]
	if in != nil && in.address.Kind == wire.KindIn {
		return e.Head.Cancel != nil // an answer that ends the run, as a cancel does
	}
	return in != nil && in.address.Kind != wire.KindStart && in.address.Kind != wire.KindOut
}

// cause checks that the entry was made for a message of this run.
func (c *Checker) cause(r *run, e *core.Entry) {
	at := positionOf(e.Cause)
	r.causes[at] = true
	in := c.inputs[at]
	switch {
	case in != nil && in.forgotten:
		in.run, in.known = r.key, true
		c.begun(r, e)
	case in == nil:
		c.violate("I15", r.key, "entry %d was caused by %s %d, which was never stored", e.Rev, at.stream, at.sequence)
	case !in.known || in.run != r.key:
		c.violate("I15", r.key, "entry %d was caused by %s %d, which is for %s", e.Rev, at.stream, at.sequence, in.run)
	}
}

// answeredAll checks that the model was shown a result of every call it asked for.
func (c *Checker) answeredAll(r *run) {
	for _, k := range r.asked {
		if k.told != 1 {
			c.violate("I8", r.key, "call %s (%s) had %d results before the next model call", k.id, k.tool, k.told)
		}
	}
	r.asked = r.asked[:0]
}

// remember notes the calls of a message.
func (c *Checker) remember(r *run, e *core.Entry, m *sdk.Message) {
	for i := range m.Content {
		use := &m.Content[i]
		if use.Kind != sdk.ContentToolUse {
			continue
		}
		if r.calls[use.CallID] != nil {
			c.violate("I8", r.key, "entry %d asks for call %s again", e.Rev, use.CallID)
		}
		ref, _ := wire.ParseCallRef(use.CallID) // a call that does not parse has no id that it could equal
		h := &e.Head
		if use.CallID != wire.CallID(r.key, h.Init.Token, ref.Step, ref.Index, use.Tool, use.Args) {
			c.violate("I5", r.key, "the id of call %s does not cover its content", use.CallID)
		}
		k := &call{id: use.CallID, event: use.CallID, tool: use.Tool, args: use.Args, opened: e}
		r.calls[k.id] = k
		r.asked = append(r.asked, k)
	}
}

// heard notes the messages for the model that an entry lets in, its summary, and the questions of tools.
func (c *Checker) heard(r *run, e *core.Entry) {
	for _, n := range e.Notes {
		if _, again := r.notes[n.ID]; again {
			c.violate("I2", r.key, "entry %d lets in message %s again", e.Rev, n.ID)
			continue
		}
		r.notes[n.ID] = 0
	}
	if e.Kind == core.KindSteered && e.Head.Urgent {
		r.urgent++
	}
	if e.Summary != nil {
		if e.Summary.Messages < r.summarised {
			c.violate("I8", r.key, "entry %d has a summary of %d messages after one of %d", e.Rev, e.Summary.Messages, r.summarised)
		}
		r.summarised = e.Summary.Messages
	}
	for _, a := range e.Asks {
		if k := r.calls[a.Call]; k != nil {
			k.questions++
		}
	}
}

// inquired notes a call that asks for context. It needs nobody's permission: no model chose it.
func (c *Checker) inquired(r *run, e *core.Entry, q core.Inquiry) {
	ref, _ := wire.ParseCallRef(q.ID) // as in remember
	if q.ID != wire.CallID(r.key, e.Head.Init.Token, ref.Step, ref.Index, q.Section, q.Data) {
		c.violate("I5", r.key, "the id of call %s does not cover its content", q.ID)
	}
	if r.calls[q.ID] != nil {
		c.violate("I8", r.key, "entry %d asks for call %s again", e.Rev, q.ID)
	}
	r.calls[q.ID] = &call{id: q.ID, event: q.ID, args: q.Data, permitted: true, opened: e}
}

// eventOf is the id of the events that ask for a call's answer.
func eventOf(open *core.Call) string {
	if open.Permission != nil && open.Permission.Batch != "" {
		return open.Permission.Batch
	}
	return open.ID
}

// opened notes the turn and the permission requests that an entry opens, the arguments that people changed, and the due
// times of calls.
func (r *run) opened(e *core.Entry) {
	for _, open := range e.Head.Calls {
		k := r.calls[open.ID]
		if k == nil && (open.Kind == core.CallTurn || open.Kind == core.CallPermission || open.Kind == core.CallQuestion) {
			k = &call{id: open.ID, event: eventOf(&open), person: true, opened: e}
			r.calls[k.id] = k
		}
		if k != nil {
			k.due, k.voided = open.Due, open.Voided
		}
	}
}

// resulted checks one result.
func (c *Checker) resulted(r *run, e *core.Entry, result *core.Result) {
	k := r.calls[result.Call]
	if k == nil {
		c.violate("I2", r.key, "entry %d has a result of call %s, which nobody asked for", e.Rev, result.Call)
		return
	}
	if k.result != nil {
		c.violate("I2", r.key, "entry %d has another result of call %s", e.Rev, result.Call)
		return
	}
	k.result = result
	in := c.inputs[positionOf(e.Cause)]
	if in == nil || in.forgotten {
		return // reported by cause, or beyond knowledge
	}
	switch result.Kind {
	case core.ResultAnswer:
		if !c.answers(r, k, in) || in.Event.ID != result.Event {
			c.violate("I15", r.key, "call %s was answered by %s %d on %s", k.id, in.Stream, in.Sequence, in.Subject)
		}
	case core.ResultTimeout:
		if in.address.Kind != wire.KindFire || in.Received < k.due {
			c.violate("I16", r.key, "call %s, due at %d, timed out at %d", k.id, k.due, in.Received)
		}
	case core.ResultInline, core.ResultRefused, core.ResultCancelled, core.ResultDenied, core.ResultGranted,
		core.ResultBlocked, core.ResultSet:
	case core.ResultRepeated:
		if earlier := r.calls[result.Of]; earlier == nil || earlier.result == nil || earlier == k {
			c.violate("I2", r.key, "call %s repeats the result of call %s, which has none", k.id, result.Of)
		}
	case core.ResultGiven:
		c.given(r, e, k, in)
	}
}

// answers reports whether a message came where an answer to the call belongs, and claims to answer nothing else.
func (c *Checker) answers(r *run, k *call, in *input) bool {
	if in.address.Kind != wire.KindIn || in.Event == nil {
		return false
	}
	if claimed, ok := wire.ParseCallRef(in.Event.ParentID); in.Event.ParentID != "" && (!ok || claimed.ID != k.event) {
		return false
	}
	ref, _ := wire.ParseCallRef(in.address.Call.Call)
	e := r.effect(core.EffectCall, ref)
	if e == nil || ref.ID != k.event || ref.Attempt <= k.voided {
		return false
	}
	f := e.Effect(core.EffectCall, k.event)
	for i := range f.Lanes() {
		if in.address.Call == address(r, e, f, i) {
			return true
		}
	}
	return false
}

// told counts the results and notes that a message shows to the model.
func (c *Checker) told(r *run, m sdk.Message) {
	for _, shown := range m.Content {
		if shown.Kind == sdk.ContentText && shown.CallID != "" {
			r.notes[shown.CallID]++
		}
		if shown.Kind == sdk.ContentText && shown.Pending && (r.calls[shown.CallID] == nil || r.calls[shown.CallID].result == nil) {
			c.violate("I8", r.key, "the history tells a result of call %s, which has none", shown.CallID)
		}
		if shown.Kind != sdk.ContentToolResult {
			continue
		}
		k := r.calls[shown.CallID]
		if shown.Pending && k != nil && k.result == nil {
			k.told++
			r.notes[k.id] = 0 // its result is told as a message is
			continue
		}
		if k == nil || k.result == nil || shown.Pending {
			c.violate("I8", r.key, "the history shows a result of call %s, which has none", shown.CallID)
			continue
		}
		k.told++
	}
}

// ended checks the end of a run.
func (c *Checker) ended(r *run, last, e *core.Entry) {
	done := e.Head.Status == core.StatusDone
	if (e.Terminal != nil) != done || done != (e.Effect(core.EffectTerminal, "").Kind != "") {
		c.violate("I1", r.key, "entry %d: a %s run and its terminal event do not agree", e.Rev, e.Head.Status)
	}
	if !done {
		return
	}
	for _, k := range r.asked {
		if k.told != 1 {
			c.violate("I8", r.key, "call %s (%s) has %d results at the end of the run", k.id, k.tool, k.told)
		}
	}
	for id, said := range r.notes {
		if said != 1 {
			c.violate("I8", r.key, "message %s is %d times in the history at the end of the run", id, said)
		}
	}
	completes := e.Head.Reason == core.ReasonStopped || e.Head.Reason == core.ReasonCompleted && e.Head.ReasonCode != core.CodeDegraded
	if completes && slices.ContainsFunc(e.Results, func(o core.Result) bool { return o.Kind == core.ResultCancelled }) {
		c.violate("I8", r.key, "entry %d completes the run while calls are open", e.Rev)
	}
	if e.Head.Reason == core.ReasonDeadline && last.Head.Cancel == nil {
		c.overdue(r, last, e)
	}
}

// overdue checks that the deadline of a run, or of the turn that it waits for, had passed when it ended: by the broker's
// clock when a timer ended it, by its driver's otherwise.
func (c *Checker) overdue(r *run, last, e *core.Entry) {
	now := e.At
	if in := c.inputs[positionOf(e.Cause)]; e.Kind == core.KindFired && in != nil && !in.forgotten {
		now = in.Received
	}
	due := e.Head.Deadline
	for _, open := range last.Head.Calls {
		if open.Kind == core.CallTurn {
			due = min(due, open.Due)
		}
	}
	if now < due {
		c.violate("I16", r.key, "the run, due at %d, ended at %d", due, now)
	}
}
