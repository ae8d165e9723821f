package core

import (
	"slices"

	"agentd/sdk/wire"
)

// Lanes are the domains that the call goes to, one event each; "" is the local lane.
func (f Effect) Lanes() []string { return lanes(f.Domains) }

func lanes(domains []string) []string {
	if len(domains) == 0 {
		return []string{""}
	}
	return domains
}

// Published reports whether the effect is an event on the broker.
func (f Effect) Published() bool {
	return f.Kind == EffectCall || f.Kind == EffectVoid || f.Kind == EffectAnswer || f.Kind == EffectTerminal
}

// Addresses are where the attempt at a call that f makes, or takes back, is to be found: one for each of its Lanes. h is the
// head of any entry of the run.
func (f Effect) Addresses(h *Head) []wire.CallAddress {
	return h.addresses(f.Call, f.Attempt, f.Type, f.Domains)
}

// Addresses are where the last attempt at the call is to be found, one for each domain. h is the head that has the call.
func (c *Call) Addresses(h *Head) []wire.CallAddress {
	return h.addresses(c.Event(), c.Attempt, c.Type, c.Domains)
}

// addresses of an attempt at a call: the first domain's event has the bare id, each other one's names its domain.
func (h *Head) addresses(id string, attempt int, contractType string, domains []string) []wire.CallAddress {
	key := h.Key()
	list := make([]wire.CallAddress, 0, 1)
	for i, domain := range lanes(domains) {
		ref := wire.CallRef{ID: id, Attempt: max(attempt, 1)}
		if i > 0 {
			ref.Domain = wire.DomainToken(domain)
		}
		list = append(list, wire.CallAddress{
			Domain: wire.DomainToken(domain), Type: wire.NameToken(contractType), Agent: wire.NameToken(h.Agent), Run: key,
			Call: ref.EventID(),
		})
	}
	return list
}

// Awaited reports whether an answer from outside is awaited.
func (c *Call) Awaited() bool {
	return c.Status == CallSuspended && c.Kind != CallInline && c.Held == ""
}

// expects reports whether ev comes from where an attempt at c was sent, and does not claim to answer something else.
func (h *Head) expects(c *Call, ev Answered) bool {
	if c.Kind == CallInline || c.Held != "" || c.Queued || ev.Ref.Attempt <= c.Voided || ev.Ref.Attempt > c.attempt() {
		return false
	}
	if ref, ok := wire.ParseCallRef(ev.ParentID); ev.ParentID != "" && (!ok || ref.ID != c.Event()) {
		return false
	}
	return slices.Contains(h.addresses(c.Event(), ev.Ref.Attempt, c.Type, c.Domains), ev.Address)
}
