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

// ownZones are those of runs to which nobody but workers publishes: without room there, no run goes on. sharedZones are those that others
// publish to: any of them may fill one, which is not for them to make workers unready with.
var (
	ownZones    = []Zone{ZoneOut, ZoneDone, ZoneTimer, ZoneRun, ZoneCold}
	sharedZones = []Zone{ZoneStart, ZoneIn}
)

// checkRoom returns the first of the streams that workers write which has no room left: CodeUnavailable.
func (c *Conn) checkRoom(ctx context.Context) error {
	streams := c.streamsOfZones(ownZones)
	_, err := atOnce(len(streams), func(i int) (struct{}, error) {
		full, err := c.noRoom(ctx, streams[i])
		if err == nil && full != "" {
			err = sdk.Errorf(sdk.CodeUnavailable, "%s", full)
		}
		return struct{}{}, err
	})
	return err
}

// Room is whether a stream has room.
type Room struct {
	Stream string
	// Full says which limit of its own leaves it none, and what to do; "" is that it has room.
	Full string
}

// Rooms are those of the streams that others than workers publish to: without room there nobody starts, answers or steers a run.
func (c *Conn) Rooms(ctx context.Context) ([]Room, error) {
	streams := c.streamsOfZones(sharedZones)
	return atOnce(len(streams), func(i int) (Room, error) {
		full, err := c.noRoom(ctx, streams[i])
		return Room{streams[i], full}, err
	})
}

func (c *Conn) streamsOfZones(zones []Zone) []string {
	var names []string
	for _, z := range zones {
		for _, part := range c.knownLayout().Zones(z) {
			names = append(names, StreamName(c.subjects, part))
		}
	}
	return names
}

// noRoom is why a stream has no room, and what to do; "" where it has, where there is no such stream, and where this user may not look at it.
func (c *Conn) noRoom(ctx context.Context, name string) (string, error) {
	s, err := c.look(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at stream %s: %w", name, err)
	}
	full := fullness(s.CachedInfo())
	if full != "" {
		full += "; give it room, or " + unbounded(name, 0)
	}
	return full, nil
}
