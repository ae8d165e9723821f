package audit

import (
	"slices"

	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A run that is taken up again, by a retry or to undo calls, has several generations. Each has one terminal event (I1) and is done for ever once it has ended (I7); what has
// a result keeps it through all of them (I2).

// takenUp checks an entry that follows the end of a run: only a retry may, or an undo.
func (c *Checker) takenUp(r *run, last, e *core.Entry) {
	switch {
	case e.Kind == core.KindUndoAsked:
		c.undoes(r, last, e)
		return
	case e.Kind != core.KindRetried:
		c.violate("I7", r.key, "entry %d (%s) after the run was done", e.Rev, e.Kind)
		return
	case !last.Head.Reason.Retryable() || last.Head.Init.Reply != nil:
		c.violate("I7", r.key, "entry %d retries a run that ended with %s", e.Rev, last.Head.Termination())
	}
	c.generation(r, last, e)
	if e.Reopens || last.Head.Unbegun() {
		r.takeBack(last)
	}
	for _, open := range e.Head.Calls {
		k := r.calls[open.ID]
		if k == nil || k.result == nil || open.Closed() {
			continue
		}
		given := slices.ContainsFunc(last.Results, func(o core.Result) bool { return o.Call == k.id })
		if !given || k.result.Kind != core.ResultCancelled {
			c.violate("I2", r.key, "entry %d opens call %s again, which has a result", e.Rev, k.id)
		}
		k.result = nil
	}
}

// undoes checks an entry that begins to undo calls of a run: none that was undone, or may have been.
func (c *Checker) undoes(r *run, last, e *core.Entry) {
	c.generation(r, last, e)
	for _, u := range e.Head.Undo {
		k := r.calls[u.Call]
		if k == nil || k.result == nil || k.result.Error || r.undone[u.Call] || u.By != "" || u.Outcome != "" {
			c.violate("I18", r.key, "entry %d undoes call %s, which cannot be undone", e.Rev, u.Call)
		}
	}
	if len(e.Head.Undo) == 0 {
		c.violate("I18", r.key, "entry %d undoes nothing", e.Rev)
	}
}

// undid notes which calls are undone, or may be, by the results of those that were made for it.
func (c *Checker) undid(r *run, e *core.Entry) {
	for _, u := range e.Head.Undo {
		k := r.calls[u.By]
		if u.Outcome == "" || k == nil {
			continue
		}
		done := k.result != nil && !k.result.Error
		if done != (u.Outcome == wire.UndoDone) {
			c.violate("I18", r.key, "entry %d tells that call %s is %s; what undoes it came to %+v", e.Rev, u.Call, u.Outcome, k.result)
		}
		if done || k.result != nil && k.result.Kind == core.ResultTimeout {
			r.undone[u.Call] = true
		}
	}
}

// generation checks that the generation is its event's, and notes where its terminal event belongs.
func (c *Checker) generation(r *run, last, e *core.Entry) {
	retry := e.Head.Retry
	if retry == nil || last.Head.RetriedBy(retry.Token) || retry.Token == last.Head.Init.Token {
		c.violate("I1", r.key, "entry %d takes up the run for %+v, which has been there before", e.Rev, retry)
		return
	}
	c.awaits(&input{run: r.key, token: retry.Token}, c.subjects.Done(e.Head.Agent, r.key, retry.Token))
	in := c.inputs[positionOf(e.Cause)]
	if in == nil || in.forgotten || in.Event == nil {
		return // reported by cause, or beyond knowledge
	}
	verb := wire.ControlRetry
	if e.Kind == core.KindUndoAsked {
		verb = wire.ControlUndo
	}
	if in.address.Verb != verb || retry.Token != wire.InitToken(in.Event.Source, in.Event.ID) || retry.Who != in.address.Who {
		c.violate("I15", r.key, "entry %d takes up the run for %s %d on %s", e.Rev, in.Stream, in.Sequence, in.Subject)
	}
}

// takeBack forgets what the messages of an entry have told.
func (r *run) takeBack(e *core.Entry) {
	for _, m := range e.Messages {
		for _, shown := range m.Content {
			switch {
			case shown.CallID == "":
			case shown.Kind == sdk.ContentToolResult && r.calls[shown.CallID] != nil:
				r.calls[shown.CallID].told--
			case shown.Kind == sdk.ContentText && r.requests[shown.CallID] != nil:
				delete(r.notes, shown.CallID)
			case shown.Kind == sdk.ContentText:
				r.notes[shown.CallID]--
			}
		}
	}
}

// asksAgain checks that an entry makes no call that has a result.
func (c *Checker) asksAgain(r *run, e *core.Entry) {
	for _, f := range e.Effects {
		if k := r.calls[f.Call]; f.Kind == core.EffectCall && k != nil && k.result != nil {
			c.violate("I2", r.key, "entry %d makes call %s again, which has a result", e.Rev, f.Call)
		}
	}
}

// end is the last entry of the generation that begins with that token; nil is none.
func (r *run) end(token string) *core.Entry {
	for _, e := range slices.Backward(r.entries) {
		if e.Head.Generation().Token == token {
			return e
		}
	}
	return nil
}

// retrySlack is how much later than a retry, in milliseconds, a message may have arrived that was settled because the run was done.
const retrySlack = 60_000

// beforeRetry reports whether a message may have been settled before the run was retried.
func (r *run) beforeRetry(in *input) bool {
	for _, e := range slices.Backward(r.entries) {
		if e.Kind == core.KindRetried || e.Kind == core.KindUndoAsked {
			return in.Received <= e.At+retrySlack
		}
	}
	return false
}
