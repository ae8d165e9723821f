package core

import (
	"agentd/internal/clip"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// callCancelAsked gives up one call of the model. Whoever was asked is told that nobody waits, and the run goes on.
func (t *transition) callCancelAsked(ev CallCancelAsked) error {
	h := &t.Head
	if h.Status == StatusDone || h.Cancel != nil {
		return ErrStale
	}
	c := h.Call(ev.Call)
	switch {
	case c == nil && !h.hadCall(ev.Call):
		return ErrOrphan
	case c == nil || c.Closed():
		return ErrStale
	case !c.ofModel():
		return sdk.Errorf(sdk.CodeCancelRefused, "%s is not a call of the model; cancel the call that it is for, or the run", c.ID)
	}
	h.V = max(h.V, layoutCancels)
	t.withdrawQuestions(c.ID)
	t.withdraw(c, cancelledResult(c, ev.Message))
	return t.settle()
}

// hadCall reports whether the call may have been one of a round that is complete.
func (h *Head) hadCall(id string) bool {
	ref, ok := wire.ParseCallRef(id)
	return ok && (ref.Step < h.Round || ref.Step == h.Round && !h.RoundOpen())
}

// cancelledResult is what the model is shown of a call that somebody cancelled.
func cancelledResult(c *Call, reason string) Result {
	why := c.Tool + " was cancelled"
	if reason != "" {
		why += ": " + clip.Text(reason, maxMessage)
	}
	if c.maybeMade() {
		why += "; whether it took effect is unknown"
	}
	return failure(c.ID, ResultCancelled, sdk.Errorf(sdk.CodeCancelled, "%s", why))
}

// maybeMade reports whether an open call may have taken effect.
func (c *Call) maybeMade() bool { return c.Held == "" && !c.Queued && !c.awaitsRuling() }

// withdrawQuestions takes back what people are asked for a call: its permission, or what its tool wants to know.
func (t *transition) withdrawQuestions(call string) {
	for i := range t.Head.Calls {
		c := &t.Head.Calls[i]
		if !c.Closed() && (c.Asker() == call || c.Permission != nil && c.Permission.Call == call) {
			t.withdraw(c, Result{})
		}
	}
}

// withdraw closes a call that nobody waits for any more. r is its result, where the model asked for it.
func (t *transition) withdraw(c *Call, r Result) {
	t.void(c)
	t.account(c, -1)
	if c.ofModel() {
		t.close(c, r)
	}
	c.Status, c.Held, c.RetryAt = CallCancelled, "", 0
}

// outrun reports whether a call got its result while its driver was about to give it another: somebody cancelled it.
func (h *Head) outrun(id string) bool {
	if c := h.Call(id); c != nil {
		return c.Status == CallCancelled
	}
	return h.V >= layoutCancels && h.hadCall(id)
}
