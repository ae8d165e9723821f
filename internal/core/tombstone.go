package core

// Tombstone is the entry that takes the place of a done run's whole journal. It holds no content, only what must be known
// for as long as a message of the run may be delivered again: that the run was, which event began it and how it ended.
// last is the journal's last entry, digest the hash of its bytes, now in Unix milliseconds.
func Tombstone(last *Entry, digest, etag string, now int64) (Entry, error) {
	h := last.Head
	if h.Status != StatusDone || h.Purged != nil {
		return Entry{}, violation(&h, "a %s run cannot be purged", h.Status)
	}
	return Entry{
		V: h.V, Rev: 1, Etag: etag, Cause: last.Cause, At: last.At,
		Change: Change{Kind: KindPurged, Head: Head{
			V: h.V, Run: h.Run, Agent: h.Agent, Spec: h.Spec, Init: h.Init, Status: h.Status, Reason: h.Reason,
			ReasonCode: h.ReasonCode,
			Lifecycle:  h.Lifecycle, Round: h.Round, Turns: h.Turns, Units: h.Units, Usage: h.Usage,
			Deadline: h.Deadline, Fence: h.Fence, Retry: h.Retry, Base: 1,
			Purged: &Purged{At: now, Rev: last.Rev, Digest: digest},
		}},
	}, nil
}
