package core

import "agentd/sdk"

// awaitsHooks reports whether a call of a service was held and is allowed, and hooks are to be asked once more before it is sent.
func (c *Call) awaitsHooks() bool { return c.Kind == CallService && c.Status == CallResuming }

// passed sends the calls that hooks let pass. Those that a message overtook, which is not to wait, are given up instead.
func (t *transition) passed(calls []string) error {
	h := &t.Head
	for _, id := range calls {
		i := h.call(id)
		if i < 0 || !h.Calls[i].awaitsHooks() || h.Calls[i].Queued {
			return violation(h, "call %s is not to pass hooks", id)
		}
		c := &h.Calls[i]
		tool := t.spec.tool(c.Tool)
		switch {
		case h.Urgent:
			t.close(c, givenUp(c))
			c.Status = CallCancelled
		case tool == nil || tool.Kind != CallService:
			t.deny(c, missing(c.Tool))
		default:
			t.send(c, tool)
		}
	}
	return nil
}

func givenUp(c *Call) Result {
	return failure(c.ID, ResultCancelled, sdk.Errorf(sdk.CodeCancelled, "given up, because somebody sent a message"))
}
