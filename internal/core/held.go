package core

import (
	"slices"

	"agentd/sdk"
)

// awaitsRuling reports whether a call of a service is to be ruled on once more before it is sent: it was held and is allowed, or its
// turn has come.
func (c *Call) awaitsRuling() bool { return c.Kind == CallService && c.Status == CallResuming }

// Consent is what people have allowed of a call that was held; ok is false for every other.
func (s *State) Consent(call string) (consent sdk.Consent, ok bool) {
	i := slices.IndexFunc(s.Calls, func(c Call) bool { return c.Permission != nil && c.Permission.Call == call })
	if i < 0 {
		return sdk.Consent{}, false
	}
	decided := &s.Calls[i]
	r := s.result(decided.ID)
	if r != nil && r.Kind == ResultGranted { // by a decision on another
		if i = s.call(r.Event); i < 0 {
			if g := slices.IndexFunc(s.Grants, func(g Grant) bool { return g.Request == r.Event }); g >= 0 {
				return s.Grants[g].Consent(), true
			}
			return sdk.Consent{}, true
		}
		decided = &s.Calls[i]
		r = s.result(decided.ID)
	}
	if r == nil || r.Error {
		return sdk.Consent{}, true
	}
	by := decided.Permission.Allowed
	if len(by) == 0 {
		by = []string{r.Who}
	}
	return sdk.Consent{Scope: scopeTold(r.Data), By: by, Signed: decided.Permission.Signed, Domains: decided.askedDomains()}, true
}

// passed lets the calls be made that were ruled on once more: those of services are sent. Those that a message overtook, which is not to wait, are given up instead.
func (t *transition) passed(calls []string) error {
	h := &t.Head
	for _, id := range calls {
		if h.outrun(id) {
			continue
		}
		i := h.call(id)
		if i < 0 || !h.Calls[i].awaitsRuling() || h.Calls[i].Queued {
			return violation(h, "call %s is not to be ruled on once more", id)
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
