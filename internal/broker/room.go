package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// leastRoom is how many bytes a stream must have room for: what a server takes as one message where it is not told otherwise.
const leastRoom = 1 << 20

// spare is the part of a limit, one in so many, that a stream must have left where it is to take nothing new at the limit. One that removes
// what is oldest stays at its limit for ever.
const spare = 10

// unbounded is a command that takes a stream's own limits away. perSubject is the one that agentd itself gives it for each subject; 0 is none.
func unbounded(stream string, perSubject int64) string {
	return fmt.Sprintf("run: nats stream edit %s --max-bytes=-1 --max-msgs=-1 --max-msgs-per-subject=%d", stream, cmp.Or(perSubject, -1))
}

// bounded reports whether a stream has limits of its own for all of it, besides age.
func bounded(got jetstream.StreamConfig) bool { return got.MaxBytes > 0 || got.MaxMsgs > 0 }

// atLimit says which limit of its own a stream has reached but for the last so many bytes and messages; "" where it has none such.
func atLimit(info *jetstream.StreamInfo, bytes, messages uint64) string {
	limits, holds := info.Config, info.State
	switch {
	case limits.MaxBytes > 0 && holds.Bytes+bytes > uint64(limits.MaxBytes):
		return fmt.Sprintf("it has %d of the %d bytes that it may have (max_bytes)", holds.Bytes, limits.MaxBytes)
	case limits.MaxMsgs > 0 && holds.Msgs+messages >= uint64(limits.MaxMsgs):
		return fmt.Sprintf("it has %d of the %d messages that it may have (max_msgs)", holds.Msgs, limits.MaxMsgs)
	}
	return ""
}

// keepsDiscard is why a stream that removes what is oldest goes on doing so, though it is to take nothing new at its limits: it is at one, and
// would take nothing from then on. "" is that it does not.
func keepsDiscard(info *jetstream.StreamInfo, want jetstream.StreamConfig) string {
	got := info.Config
	if got.Discard != jetstream.DiscardOld || want.Discard != jetstream.DiscardNew {
		return ""
	}
	bytes, messages := uint64(max(got.MaxBytes, 0)), uint64(max(got.MaxMsgs, 0))
	limit := atLimit(info, max(bytes/spare, leastRoom), messages/spare)
	if limit == "" {
		return ""
	}
	return "it goes on removing what is oldest, because with discard new it would soon take nothing: " + limit
}

// remedyLimit is how a stream is mended that keepsDiscard.
func remedyLimit(want jetstream.StreamConfig) string {
	return "raise its limits, or " + unbounded(want.Name, want.MaxMsgsPerSubject) + "; then " + remedyProvision
}

// fullness says that limits of its own leave a stream no room; "" where they do.
func fullness(info *jetstream.StreamInfo) string {
	limit := atLimit(info, leastRoom, 0)
	if limit == "" {
		return ""
	}
	then := "takes no more"
	if info.Config.Discard == jetstream.DiscardOld {
		then = "removes what is oldest, such as what a run waits for"
	}
	return fmt.Sprintf("stream %s %s: %s", info.Config.Name, then, limit)
}

// checkRoom returns the first of the streams of runs that has no room left: CodeUnavailable.
func (c *Conn) checkRoom(ctx context.Context) error {
	var zones []Zone
	for _, z := range []Zone{ZoneStart, ZoneIn, ZoneOut, ZoneDone, ZoneTimer, ZoneRun, ZoneCold} {
		zones = append(zones, c.knownLayout().Zones(z)...)
	}
	_, err := atOnce(len(zones), func(i int) (struct{}, error) {
		return struct{}{}, c.noRoom(ctx, StreamName(c.subjects, zones[i]))
	})
	return err
}

// noRoom is why a stream has no room; nil where it has, where there is no such stream, and where this user may not look at it.
func (c *Conn) noRoom(ctx context.Context, name string) error {
	s, err := c.look(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return nil
	case err != nil:
		return fmt.Errorf("look at stream %s: %w", name, err)
	}
	if full := fullness(s.CachedInfo()); full != "" {
		return sdk.Errorf(sdk.CodeUnavailable, "%s; give it room, or %s", full, unbounded(name, 0))
	}
	return nil
}
