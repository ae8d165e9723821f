package provision

import (
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
)

// spare is the part of a limit, one in so many, that a stream must have left where it is to take nothing new at the limit. One that removes
// what is oldest stays at its limit for ever.
const spare = 10

// bounded reports whether a stream has limits of its own for all of it, besides age.
func bounded(got jetstream.StreamConfig) bool { return got.MaxBytes > 0 || got.MaxMsgs > 0 }

// keepsDiscard is why a stream that removes what is oldest goes on doing so, though it is to take nothing new at its limits: it is at one, and
// would take nothing from then on. "" is that it does not.
func keepsDiscard(info *jetstream.StreamInfo, want jetstream.StreamConfig) string {
	got := info.Config
	if got.Discard != jetstream.DiscardOld || want.Discard != jetstream.DiscardNew {
		return ""
	}
	bytes, messages := uint64(max(got.MaxBytes, 0)), uint64(max(got.MaxMsgs, 0))
	limit := streams.AtLimit(info, max(bytes/spare, streams.LeastRoom), messages/spare)
	if limit == "" {
		return ""
	}
	return "it goes on removing what is oldest, because with discard new it would soon take nothing: " + limit
}

// remedyLimit is how a stream is mended that keepsDiscard.
func remedyLimit(want jetstream.StreamConfig) string {
	return "raise its limits, or " + streams.Unbounded(want.Name, want.MaxMsgsPerSubject) + "; then " + streams.Remedy
}
