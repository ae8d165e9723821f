package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// leastRoom is how many bytes a stream must have room for: what a server takes as one message where it is not told otherwise.
const leastRoom = 1 << 20

// unbounded is a command that takes a stream's own limits away.
func unbounded(stream string) string {
	return "run: nats stream edit " + stream + " --max-bytes=-1 --max-msgs=-1"
}

// bounded reports whether a stream has limits of its own besides age. Only what is meant for one message a subject may have that one.
func bounded(got, want jetstream.StreamConfig) bool {
	return got.MaxBytes > 0 || got.MaxMsgs > 0 || got.MaxMsgsPerSubject > 0 && want.MaxMsgsPerSubject <= 0
}

// fullness says that limits of its own leave a stream no room; "" where they do.
func fullness(info *jetstream.StreamInfo) string {
	limits, holds := info.Config, info.State
	then := "takes no more"
	if limits.Discard == jetstream.DiscardOld {
		then = "removes what is oldest, such as what a run waits for"
	}
	switch {
	case limits.MaxBytes > 0 && holds.Bytes+leastRoom > uint64(limits.MaxBytes):
		return fmt.Sprintf("stream %s %s: it has %d of the %d bytes that it may have (max_bytes)", limits.Name, then, holds.Bytes, limits.MaxBytes)
	case limits.MaxMsgs > 0 && holds.Msgs >= uint64(limits.MaxMsgs):
		return fmt.Sprintf("stream %s %s: it has the %d messages that it may have (max_msgs)", limits.Name, then, limits.MaxMsgs)
	}
	return ""
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
		return sdk.Errorf(sdk.CodeUnavailable, "%s; give it room, or %s", full, unbounded(name))
	}
	return nil
}
