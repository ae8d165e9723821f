package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// exhausted are the codes with which JetStream says that a limit of its memory or files, or that of an account, is reached.
var exhausted = []jetstream.ErrorCode{10002, 10023, 10028, 10047}

// errCodeNotStored is how a stream refuses what it could not store, for a reason that the description has. Those that are a limit of the
// stream itself begin with limitReached: its bytes, its messages, or the messages of the subject.
const (
	errCodeNotStored jetstream.ErrorCode = 10077
	limitReached                         = "maximum "
)

// Full reports whether an error says that a stream, or JetStream, has no room for what is written: repeating the write is in vain until
// somebody makes room.
func Full(err error) bool {
	refusal, refused := errors.AsType[*jetstream.APIError](err)
	return refused && (slices.Contains(exhausted, refusal.ErrorCode) || atLimit(refusal))
}

func atLimit(refusal *jetstream.APIError) bool {
	return refusal.ErrorCode == errCodeNotStored && strings.HasPrefix(refusal.Description, limitReached)
}

// Unwritten names why a stream did not take a write: err, which may be nil.
func Unwritten(stream string, err error) error {
	refusal, refused := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return sdk.Errorf(sdk.CodeUnavailable,
			"stream %s does not confirm writes; if the server's disk is or was full, make room and restart the server", stream)
	case refused && slices.Contains(exhausted, refusal.ErrorCode):
		return sdk.Errorf(sdk.CodeUnavailable, "JetStream is full, so that stream %s takes no writes (%s); make room, or raise the limits "+
			"(max_file_store, max_memory_store, the account's)", stream, refusal.Description)
	case refused && atLimit(refusal):
		return sdk.Errorf(sdk.CodeUnavailable, "stream %s takes no writes, because it is at a limit of its own (%s); raise it with: nats stream edit %s",
			stream, refusal.Description, stream)
	}
	return fmt.Errorf("stream %s takes no writes: %w", stream, err)
}
