package core_test

import (
	"agentd/internal/core"
	"agentd/sdk"
)

// retriesAtMost is how often a random run is retried.
const retriesAtMost = 3

// retry takes the run up again, if that may be, and reports whether it did.
func (x *explorer) retry() bool {
	r := x.rig
	ev := retriedBy("retry" + string(rune('0'+x.retries)))
	in := r.deliver(ev.ID, ev)
	refused := &sdk.Error{Code: sdk.CodeRetryRefused}
	if reason := r.state.Reason; reason != core.ReasonError && reason != core.ReasonQuota && reason != core.ReasonDeadline {
		x.refuse(in, refused)
		return false
	}
	if x.retries == retriesAtMost || x.pick(3, "retry") == 0 {
		return false
	}
	if r.state.Unbegun() {
		ev.Beginning = &core.Beginning{System: "Be briefer.", Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "hello again")}}
		in.Event = ev
	}
	r.now += int64(x.pick(3, "later")) * 20 * minute
	in.At = r.now
	x.accept(in)
	return true
}

// takenUp checks that only a retry or an undo follows the end of a run, and takes back what the end told of the calls that are made again.
func (o *oracle) takenUp(before *core.Head, in core.Input, e *core.Entry) {
	_, undo := in.Event.(core.UndoAsked)
	if _, retry := in.Event.(core.Retried); !retry && !undo {
		o.Fatalf("entry %d: %T changed a run that was done", e.Rev, in.Event)
	}
	o.retries++
	h := &e.Head
	if undo && (len(h.Calls) > 0 || e.Reopens || h.Left != nil) {
		o.Fatalf("entry %d: an undo leads to %+v", e.Rev, h)
	}
	if h.Deadline != in.At+o.rig.spec.RunDeadline || h.Generation().Token == before.Generation().Token || h.Init.Token != before.Init.Token {
		o.Fatalf("entry %d: a retry leads to %+v", e.Rev, h)
	}
	o.restore(h.Notes)
	if !undo && before.Turns == 0 && before.Round == 0 && len(o.said) == 0 {
		o.messages = nil
		return
	}
	if !e.Reopens {
		return
	}
	o.messages = o.messages[:o.ended]
	ended := o.rig.entries[e.Rev-2]
	for _, m := range ended.Messages {
		for _, c := range m.Content {
			if c.Kind == sdk.ContentText && c.Pending {
				delete(o.said, c.CallID)
			}
		}
	}
	for _, r := range ended.Results {
		if c := h.Call(r.Call); r.Kind == core.ResultCancelled && c != nil && !c.Closed() {
			delete(o.results, r.Call)
		}
	}
	for _, c := range h.Calls {
		if r, has := o.results[c.ID]; has && !c.Closed() {
			o.Fatalf("entry %d: call %s is open again, and has the result %+v", e.Rev, c.ID, r)
		}
		o.due[c.ID] = c.Due
	}
}

// restore has notes wait again that the end had said.
func (o *oracle) restore(notes []string) {
	for _, id := range notes {
		delete(o.said, id)
	}
}

// turns are the model calls of the run's generation.
func (o *oracle) turns(h *core.Head) int {
	if h.Retry == nil {
		return h.Turns
	}
	return h.Turns - h.Retry.Turns
}

// lateAnswer has an answer come to an attempt that was given up when the run ended, instead of ev, which answers the next one. It reports
// whether there is such an attempt.
func (x *explorer) lateAnswer(ev core.Answered) bool {
	c := x.rig.state.Answering(ev.Ref.ID)
	if c.Voided == 0 || x.pick(2, "voided") == 0 {
		return false
	}
	ev.Ref.Attempt = 1 + x.pick(c.Voided, "attempt")
	if c.Kind == core.CallPermission {
		x.refuse(x.rig.deliver("voided", ev), &sdk.Error{Code: sdk.CodeDecisionRefused})
	} else {
		x.refuse(x.rig.deliver("voided", ev), core.ErrStale)
	}
	return true
}
