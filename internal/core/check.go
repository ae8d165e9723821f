package core

import "agentd/sdk/wire"

// Check returns the first invariant of Head that does not hold, or nil.
func (h *Head) Check() error {
	waits := h.open((*Call).Awaited)
	switch {
	case h.Status != StatusRunning && h.Status != StatusWaiting && h.Status != StatusDone:
		return violation(h, "unknown status %q", h.Status)
	case (h.Driver != nil) != (h.Status == StatusRunning):
		return violation(h, "a %s run with driver %v", h.Status, h.Driver)
	case h.Status == StatusWaiting && (!waits && !h.Held() || h.Timer == 0):
		return violation(h, "waits for nothing, or without a timer")
	case h.Status == StatusDone && (len(h.Calls) > 0 || h.Reason == ""):
		return violation(h, "done with %d calls and reason %q", len(h.Calls), h.Reason)
	case h.Status == StatusRunning && h.Parked != nil && h.Parked.Until > 0, h.Status == StatusDone && (h.Parked != nil || h.Paused != nil):
		return violation(h, "a %s run that is parked or paused", h.Status)
	case h.Status != StatusDone && (h.Purged != nil || h.Left != nil):
		return violation(h, "a %s run without its history, or with what an ended one has left", h.Status)
	case h.Stop == restText && !h.openAny():
		return violation(h, "rests without an open call")
	}
	for i := range h.Calls {
		if ref, ok := wire.ParseCallRef(h.Calls[i].ID); !ok || !h.hasRound(&h.Calls[i], ref.Step) || h.call(h.Calls[i].ID) != i {
			return violation(h, "call %s does not belong to step %d", h.Calls[i].ID, h.Round)
		}
		if err := h.checkPermission(&h.Calls[i]); err != nil {
			return err
		}
		if err := h.checkAsked(&h.Calls[i]); err != nil {
			return err
		}
	}
	return nil
}

func (h *Head) checkPermission(c *Call) error {
	if (c.Kind == CallPermission) != (c.Permission != nil) || c.Permission != nil && h.call(c.Permission.Call) < 0 {
		return violation(h, "permission request %s is for no call of the round", c.ID)
	}
	if c.Held == "" {
		return nil
	}
	if i := h.call(c.Held); i < 0 || h.Calls[i].Permission == nil || h.Calls[i].Permission.Call != c.ID || h.Calls[i].Closed() && h.Cancel == nil {
		return violation(h, "call %s is held by no open request", c.ID)
	}
	return nil
}
