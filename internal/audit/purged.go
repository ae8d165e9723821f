package audit

import (
	"encoding/json"

	"agentd/internal/core"
	"agentd/sdk"
)

// purged takes the tombstone of a run. Of a journal that was told before it must be the tombstone; otherwise all that can
// be checked is that the run is done, that each of its messages found that out, and that it has its terminal event.
func (c *Checker) purged(r *run, digest string, e *core.Entry) {
	last := r.last()
	p := e.Head.Purged
	switch {
	case e.Rev != 1 || e.Prev != "" || last.Head.Purged != nil:
		c.violate("I6", r.key, "a tombstone is entry %d, after %q", e.Rev, e.Prev)
	case len(r.entries) > 0 && (p.Rev != last.Rev || p.Digest != r.digest):
		c.violate("I6", r.key, "the tombstone is of a journal of %d entries with digest %s", p.Rev, p.Digest)
	case len(r.entries) > 0 && (last.Head.Status != core.StatusDone || last.Head.Reason != e.Head.Reason):
		c.violate("I7", r.key, "the run was %s (%s), and its tombstone says %s", last.Head.Status, last.Head.Reason, e.Head.Reason)
	}
	if err := e.Head.Check(); err != nil {
		c.violate("I7", r.key, "tombstone: %v", err)
	}
	if e.Head.Key() != r.key {
		c.violate("I15", r.key, "the tombstone is of run %q", e.Head.Run)
	}
	c.cause(r, e)
	c.begun(r, e)
	r.entries, r.digest = append(r.entries, e), digest
}

// unknown reports whether entries of the run are gone for a reason that its last entry gives: what they asked for cannot be
// told from what nobody asked for.
func (r *run) unknown() bool {
	last := r.last()
	return len(r.entries) == 1 && (last.Head.Purged != nil || stateLost(last))
}

// stateLost reports whether an entry is all that there is of a run whose journal the store has lost.
func stateLost(e *core.Entry) bool {
	if e.Rev != 1 || e.Head.Status != core.StatusDone || e.Terminal == nil {
		return false
	}
	var data struct {
		Code sdk.Code `json:"code"`
	}
	return json.Unmarshal(e.Terminal.Data, &data) == nil && data.Code == sdk.CodeStateLost
}
