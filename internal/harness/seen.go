package harness

import (
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
)

// place is where a message is stored.
type place struct {
	stream   string
	sequence uint64
}

func placeOf(d broker.Delivery) place { return place{d.Stream(), d.Sequence()} }

func (h *Harness) returned(p place) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seen[p] = true
}

// unseen is the first message on a filter that the test was not given, of all that are stored by now; nil if it was given all of them. What
// is only on its way to the test counts.
func (h *Harness) unseen(z streams.Zone, filter string) (first broker.Delivery) {
	h.t.Helper()
	ctx, cancel := h.context()
	defer cancel()
	h.check("read "+filter, h.conn.Deliveries(ctx, z, []string{filter}, func(d broker.Delivery) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		if !h.seen[placeOf(d)] {
			first = d
		}
		return first == nil
	}))
	return first
}
