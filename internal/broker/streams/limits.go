package streams

import (
	"cmp"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// LeastRoom is how many bytes a stream must have room for: what a server takes as one message where it is not told otherwise.
const LeastRoom = 1 << 20

// Unbounded is a command that takes a stream's own limits away. perSubject is the one that agentd itself gives it for each subject; 0 is none.
func Unbounded(stream string, perSubject int64) string {
	return fmt.Sprintf("run: nats stream edit %s --max-bytes=-1 --max-msgs=-1 --max-msgs-per-subject=%d", stream, cmp.Or(perSubject, -1))
}

// AtLimit says which limit of its own a stream has reached but for the last so many bytes and messages; "" where it has none such.
func AtLimit(info *jetstream.StreamInfo, bytes, messages uint64) string {
	limits, holds := info.Config, info.State
	switch {
	case limits.MaxBytes > 0 && holds.Bytes+bytes > uint64(limits.MaxBytes):
		return fmt.Sprintf("it has %d of the %d bytes that it may have (max_bytes)", holds.Bytes, limits.MaxBytes)
	case limits.MaxMsgs > 0 && holds.Msgs+messages >= uint64(limits.MaxMsgs):
		return fmt.Sprintf("it has %d of the %d messages that it may have (max_msgs)", holds.Msgs, limits.MaxMsgs)
	}
	return ""
}

// Fullness says that limits of its own leave a stream no room; "" where they do.
func Fullness(info *jetstream.StreamInfo) string {
	limit := AtLimit(info, LeastRoom, 0)
	if limit == "" {
		return ""
	}
	then := "takes no more"
	if info.Config.Discard == jetstream.DiscardOld {
		then = "removes what is oldest, such as what a run waits for"
	}
	return fmt.Sprintf("stream %s %s: %s", info.Config.Name, then, limit)
}
