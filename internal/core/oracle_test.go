package core_test

import (
	"bytes"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/sdk"
)

// oracle is a naive model of a run: it follows the journal with the simplest code that can be right, and compares.
type oracle struct {
	*rapid.T
	rig *rig
	// messages are the history with seen counts that are counted, not derived.
	messages []sdk.Message
	// ended is how many of them there were before the last entry.
	ended int
	// results are the first result of every call; due is when each may time out; ids are all calls ever.
	results map[string]core.Result
	due     map[string]int64
	ids     map[string]bool
	ends    int
	// retries are the generations after the first, and undone the last call that undid another.
	retries int
	undone  map[string]string
	// held are the requests of the calls that ever were held, allowed the decisions for a call.
	held    map[string]string
	allowed map[string]int
	// notes are the texts of messages by id, said those that came into the conversation, and hurried the urgent ones.
	notes         map[string]string
	said, hurried map[string]bool
	// children are the calls of agents that were made, with their generations.
	children map[string]bool
	// pending are the calls that the model was shown as pending.
	pending map[string]bool
	// asked are the context providers by section.
	asked map[string]*asked
	// runs and calls collect which transitions were seen.
	runs, calls transitions
}

func newOracle(t *rapid.T, r *rig) *oracle {
	return &oracle{
		T: t, rig: r, results: map[string]core.Result{}, due: map[string]int64{}, ids: map[string]bool{},
		undone: map[string]string{}, held: map[string]string{}, allowed: map[string]int{}, notes: map[string]string{}, said: map[string]bool{}, hurried: map[string]bool{}, children: map[string]bool{}, pending: map[string]bool{}, asked: map[string]*asked{},
		runs: transitions{}, calls: transitions{},
	}
}

// step lets the input happen twice and checks all that must hold of what it does.
func (o *oracle) step(in core.Input) error {
	r := o.rig
	before, untouched := r.state.Head, deepCopy(r.state.Head)
	again, errAgain := core.Step(r.spec, before, in)
	change, entry, err := r.step(in)
	if (err == nil) != (errAgain == nil) || err != nil && err.Error() != errAgain.Error() {
		o.Fatalf("Step of %T is not deterministic: %v, then %v", in.Event, errAgain, err)
	}
	if !reflect.DeepEqual(before, untouched) {
		o.Fatalf("Step of %T modified its head", in.Event)
	}
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(again, change) {
		o.Fatalf("equal arguments give other changes:\n%+v\n%+v", again, change)
	}
	o.entry(&before, in, entry)
	return nil
}

// deepCopy shares nothing with h that Step could modify.
func deepCopy(h core.Head) core.Head {
	h.Calls = slices.Clone(h.Calls)
	for i := range h.Calls {
		h.Calls[i].Domains = slices.Clone(h.Calls[i].Domains)
	}
	h.Driver, h.Cancel = clone(h.Driver), clone(h.Cancel)
	return h
}

func clone[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// entry checks a new entry and the head it leads to.
func (o *oracle) entry(before *core.Head, in core.Input, e *core.Entry) {
	line, err := e.Encode()
	if err != nil || !bytes.Equal(line, o.rig.lines[e.Rev-1]) {
		o.Fatalf("entry %d does not survive decoding: %v\n%s\n%s", e.Rev, err, o.rig.lines[e.Rev-1], line)
	}
	if err := e.Head.Check(); err != nil {
		o.Fatalf("entry %d: %v", e.Rev, err)
	}
	if before.Status == core.StatusDone {
		o.takenUp(before, in, e)
	}
	o.driver(before, in, e)
	o.timers(before, in, e)
	o.remember(before, e)
	o.undoes(e)
	o.steps(before, e)
	o.context(before, e)
	o.permissions(e)
	o.control(before, e)
	o.carried(e)
	o.end(e)
	o.outstanding()
	o.alive()
	o.waits(before, in, e)
	o.milestones(e)
	o.runs.run(before, e)
	o.calls.callsOf(before, e)
}

// driver checks that only the driver commits what only it may, and that every new driver has a new fence.
func (o *oracle) driver(before *core.Head, in core.Input, e *core.Entry) {
	now := e.Head.Driver
	if isWork(in.Event) && (before.Driver == nil || before.Driver.Owner != in.Owner) {
		o.Fatalf("entry %d: %s worked on a run of %+v", e.Rev, in.Owner, before.Driver)
	}
	if now == nil || now.Owner == "" || before.Driver != nil && before.Driver.Owner == now.Owner {
		if e.Head.Fence != before.Fence {
			o.Fatalf("entry %d: fence %d after %d without a new driver", e.Rev, e.Head.Fence, before.Fence)
		}
		return
	}
	if e.Head.Fence != before.Fence+1 || now.Owner != in.Owner || !now.Covers(in.Cause) {
		o.Fatalf("entry %d: fence %d after %d, driver %+v for %+v", e.Rev, e.Head.Fence, before.Fence, now, in.Cause)
	}
}

func isWork(ev core.Event) bool {
	switch ev.(type) {
	case core.Inquired, core.Chosen, core.Planned, core.Routed, core.Replied, core.Compacted, core.Began, core.Returned, core.Reviewed, core.Built, core.Undoing, core.Parked, core.Released, core.Ended:
		return true
	}
	return false
}

// timers checks that a waiting run is woken in time for all it waits for, and that a timer is armed only to be earlier.
func (o *oracle) timers(before *core.Head, in core.Input, e *core.Entry) {
	h := &e.Head
	waits, carries := h.Status == core.StatusWaiting, slices.ContainsFunc(h.Calls, func(c core.Call) bool { return c.Opened > 0 && !c.Closed() && c.Due > 0 })
	if waits || carries && h.Status == core.StatusRunning && h.Cancel == nil {
		due := h.Deadline
		if !waits {
			due = h.Timer
		}
		if h.Parked != nil && h.Parked.Until > 0 {
			due = min(due, h.Parked.Until)
		}
		for _, c := range h.Calls {
			for _, at := range []int64{c.Due, c.RetryAt} {
				if !c.Closed() && at > 0 && (waits || c.Opened > 0) {
					due = min(due, at)
				}
			}
		}
		if h.Timer <= 0 || h.Timer > due {
			o.Fatalf("entry %d: timer %d while something is due at %d", e.Rev, h.Timer, due)
		}
	}
	armed := before.Timer
	if _, fired := in.Event.(core.Fired); fired {
		armed = 0
	}
	n := 0
	for _, f := range e.Effects {
		if f.Kind != core.EffectTimer {
			continue
		}
		if n++; n > 1 || f.Due != h.Timer || armed != 0 && f.Due >= armed {
			o.Fatalf("entry %d arms a timer for %d; %d was armed, %d is in the head", e.Rev, f.Due, armed, h.Timer)
		}
	}
	if n == 0 && h.Timer != armed && h.Timer != 0 {
		o.Fatalf("entry %d: timer %d in the head was never armed", e.Rev, h.Timer)
	}
}

var callID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,40}$`)

// remember follows the history and the results of calls.
func (o *oracle) remember(before *core.Head, e *core.Entry) {
	if e.Head.Turns > before.Turns {
		o.answeredAll(e.Rev)
		for i := range o.messages {
			o.messages[i].Seen++
		}
	}
	if o.turns(&e.Head) > o.rig.spec.MaxTurns || e.Head.Turns > before.Turns+1 {
		o.Fatalf("entry %d: %d interactions after %d", e.Rev, e.Head.Turns, before.Turns)
	}
	for _, c := range e.Head.Calls {
		if e.Head.Opened == e.Rev && (c.Opened == 0 || c.Opened == e.Rev) || c.Kind == core.CallQuestion && c.Sent == e.Rev && c.Origin == 0 {
			o.newCall(c.ID)
		}
		o.due[c.ID] = max(o.due[c.ID], c.Due)
	}
	for _, n := range e.Notes {
		o.notes[n.ID], o.hurried[n.ID] = n.Text, n.Urgent
	}
	for _, res := range e.Results {
		if _, ok := o.results[res.Call]; ok {
			o.Fatalf("entry %d: another result of call %s", e.Rev, res.Call)
		}
		if due := o.due[res.Call]; res.Kind == core.ResultTimeout && (due == 0 || due > o.rig.now) {
			o.Fatalf("entry %d: call %s, due at %d, timed out at %d", e.Rev, res.Call, due, o.rig.now)
		}
		o.results[res.Call] = res
	}
	o.ended = len(o.messages)
	for _, m := range e.Messages {
		o.message(e, m)
	}
}

func (o *oracle) newCall(id string) {
	if !callID.MatchString(id) || o.ids[id] {
		o.Fatalf("call id %q is invalid or was used before", id)
	}
	o.ids[id] = true
}

func (o *oracle) message(e *core.Entry, m sdk.Message) {
	m.Content = slices.Clone(m.Content)
	for i := range m.Content {
		c := &m.Content[i]
		switch c.Kind {
		case sdk.ContentToolUse:
			if !slices.ContainsFunc(e.Head.Calls, func(k core.Call) bool { return k.ID == c.CallID }) {
				o.newCall(c.CallID) // all calls of the round were refused, and left the head at once
			}
		case sdk.ContentToolResult:
			if c.Pending {
				o.shownPending(e, c)
				continue
			}
			res, ok := o.results[c.CallID]
			if !ok || c.Text != "" || c.IsError != res.Error {
				o.Fatalf("entry %d tells of call %s: %+v; its result is %+v", e.Rev, c.CallID, c, res)
			}
			for res.Of != "" {
				res = o.results[res.Of]
			}
			c.Text = string(res.Data)
		case sdk.ContentText:
			if text, noted := o.notes[c.CallID]; noted {
				if c.Text = text; o.said[c.CallID] {
					o.Fatalf("entry %d says %q again", e.Rev, text)
				}
				o.said[c.CallID] = true
			} else if c.Pending {
				o.toldLate(e, c)
			} else if c.CallID != "" { // what became of a permission request
				c.Text = string(o.results[c.CallID].Data)
			}
		case sdk.ContentMedia, sdk.ContentThinking, sdk.ContentRedacted:
		}
	}
	o.messages = append(o.messages, m)
}

// shownPending notes that the model is shown a call as pending.
func (o *oracle) shownPending(e *core.Entry, c *sdk.Content) {
	_, answered := o.results[c.CallID]
	k := e.Head.Call(c.CallID)
	if answered || o.pending[c.CallID] || c.IsError || !strings.Contains(c.Text, "no result yet") || k == nil || k.Opened == 0 || k.Closed() {
		o.Fatalf("entry %d shows call %s as pending: %+v, %+v", e.Rev, c.CallID, c, k)
	}
	o.pending[c.CallID] = true
}

// toldLate checks that the result of a call which was shown as pending is told once.
func (o *oracle) toldLate(e *core.Entry, c *sdk.Content) {
	res, ok := o.results[c.CallID]
	if !ok || c.Text != "" || c.IsError != res.Error || !o.pending[c.CallID] || o.said[c.CallID] {
		o.Fatalf("entry %d tells of call %s, pending: %t, told: %t: %+v; its result is %+v", e.Rev, c.CallID, o.pending[c.CallID], o.said[c.CallID], c, res)
	}
	o.said[c.CallID], c.Text = true, string(res.Data)
}

// carried checks that each call which was shown as pending is open, or its result waits to be told, or was told.
func (o *oracle) carried(e *core.Entry) {
	h := &e.Head
	open := 0
	for _, c := range h.Calls {
		if c.Opened == 0 {
			continue
		}
		if c.Opened > e.Rev {
			o.Fatalf("entry %d carries call %s of entry %d", e.Rev, c.ID, c.Opened)
		}
		if !c.Closed() {
			open++
		}
	}
	if open > core.MaxCarried+core.MaxAsks*core.MaxCarried || open > 0 && h.V < 6 {
		o.Fatalf("entry %d, of layout %d, carries %d calls", e.Rev, h.V, open)
	}
	for id := range o.pending {
		_, answered := o.results[id]
		c, waits := h.Call(id), slices.Contains(h.Notes, id)
		if ok := answered && o.said[id] != waits || !answered && !waits && !o.said[id] && c != nil && !c.Closed(); !ok {
			o.Fatalf("entry %d: call %s was shown as pending; it has a result: %t, it waits to be told: %t, it was told: %t; %+v",
				e.Rev, id, answered, waits, o.said[id], c)
		}
	}
	completes := h.Reason == core.ReasonStopped || h.Reason == core.ReasonCompleted && h.ReasonCode != core.CodeDegraded
	if h.Status == core.StatusDone && completes && slices.ContainsFunc(e.Results, func(r core.Result) bool { return r.Kind == core.ResultCancelled }) {
		o.Fatalf("entry %d completes a run whose calls are open: %+v", e.Rev, e.Results)
	}
}

// answeredAll checks that every tool use so far is followed by its results in the order of the calls, and by nothing
// before them.
func (o *oracle) answeredAll(rev uint64) {
	var open []string
	for _, m := range o.messages {
		for _, c := range m.Content {
			switch c.Kind {
			case sdk.ContentToolUse:
				open = append(open, c.CallID)
			case sdk.ContentToolResult:
				if len(open) == 0 || open[0] != c.CallID {
					o.Fatalf("entry %d: result of %s where %v are expected", rev, c.CallID, open)
				}
				open = open[1:]
			case sdk.ContentText, sdk.ContentMedia, sdk.ContentThinking, sdk.ContentRedacted:
				if len(open) > 0 && m.Role == sdk.RoleUser {
					o.Fatalf("entry %d: %q before the results of %v", rev, c.Text, open)
				}
			}
		}
	}
	if len(open) > 0 {
		o.Fatalf("entry %d: the model is asked before %v have results", rev, open)
	}
}

// end checks that a run ends once, with everything told.
func (o *oracle) end(e *core.Entry) {
	effects := 0
	for _, f := range e.Effects {
		if f.Kind == core.EffectTerminal {
			effects++
		}
	}
	done := 0
	if e.Head.Status == core.StatusDone {
		done = 1
		o.answeredAll(e.Rev)
	}
	if effects != done || (e.Terminal != nil) != (done == 1) {
		o.Fatalf("entry %d: a %s run with %d terminal effects and terminal %+v", e.Rev, e.Head.Status, effects, e.Terminal)
	}
	if o.ends += done; o.ends > 1+o.retries {
		o.Fatalf("entry %d: the run ends again", e.Rev)
	}
}

// outstanding checks that what the run waits for is exactly what entries have asked for and nobody has given yet.
func (o *oracle) outstanding() {
	h := &o.rig.state.Head
	var want []core.Awaited
	batches := map[string]bool{}
	for _, c := range h.Calls {
		if c.Status == core.CallSuspended && c.Held == "" && c.Kind != core.CallInline {
			event := c.ID
			if c.Permission != nil && c.Permission.Batch != "" {
				if event = c.Permission.Batch; batches[event] {
					continue
				}
				batches[event] = true
			}
			opened := h.Opened
			if c.Opened > 0 {
				opened = c.Opened
			}
			want = append(want, core.Awaited{Rev: max(c.Sent, opened), Effect: core.Effect{Kind: core.EffectCall, Call: event}})
		}
	}
	if h.Timer > 0 {
		want = append(want, core.Awaited{Effect: core.Effect{Kind: core.EffectTimer, Due: h.Timer}})
	}
	if h.Status == core.StatusDone {
		want = append(want, core.Awaited{Effect: core.Effect{Kind: core.EffectTerminal}})
	}
	have := core.Outstanding(h)
	if !reflect.DeepEqual(have, want) {
		o.Fatalf("outstanding are %+v, want %+v", have, want)
	}
	for _, f := range have {
		if !o.listed(f) {
			o.Fatalf("no entry lists the effect %+v", f)
		}
	}
}

func (o *oracle) listed(f core.Awaited) bool {
	switch f.Kind {
	case core.EffectCall:
		return o.rig.entries[f.Rev-1].Effect(f.Kind, f.Call).Call == f.Call
	case core.EffectTimer:
		return slices.ContainsFunc(o.rig.entries, func(e core.Entry) bool { return e.Effect(f.Kind, "").Due == f.Due })
	case core.EffectTerminal:
		return o.rig.entries[len(o.rig.entries)-1].Effect(f.Kind, "").Kind == f.Kind
	case core.EffectVoid, core.EffectGrant, core.EffectCleanup, core.EffectRunEnd, core.EffectPark, core.EffectAnswer:
	}
	return false
}

// alive checks that there is something to do or to wait for.
func (o *oracle) alive() {
	switch next := o.rig.next().(type) {
	case core.Rest:
		if o.rig.state.Status == core.StatusRunning {
			o.Fatalf("nothing to do in a running run")
		}
	case core.RunTools:
		if len(next.Run)+len(next.Begin)+len(next.Lost)+len(next.Judge) == 0 {
			o.Fatalf("no tools to run")
		}
	case core.CallModel:
		o.answeredAll(o.rig.state.Rev)
		o.history()
	}
}

// history compares the conversation, seen counts included, with that of the state, which keeps only the results of an
// open round.
func (o *oracle) history() {
	if s := &o.rig.state; len(s.Calls) == 0 && len(s.Results) > 0 && s.Status != core.StatusDone {
		o.Fatalf("the state keeps %d results of closed rounds", len(s.Results))
	}
	if have := o.rig.state.Messages(); !reflect.DeepEqual(have, o.messages) {
		o.Fatalf("history is\n%s\nwant\n%s", encode(o, have), encode(o, o.messages))
	}
}

func (o *oracle) milestones(e *core.Entry) {
	live := milestone.Of(e)
	for i, m := range live {
		if m.Revision != e.Rev || m.Index != i || m.Ephemeral || m.Run != e.Head.Run || m.Data == nil {
			o.Fatalf("entry %d: milestone %d is %+v", e.Rev, i, m)
		}
	}
	if again := milestone.Of(e); !reflect.DeepEqual(live, again) {
		o.Fatalf("entry %d: its milestones are\n%+v\nand then\n%+v", e.Rev, live, again)
	}
}
