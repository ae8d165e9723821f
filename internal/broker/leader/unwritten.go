package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// exhausted are the codes with which JetStream says that a limit of its memory or files, or that of an account, is reached.
var exhausted = []jetstream.ErrorCode{10023, 10028, 10047}

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
	}
	return fmt.Errorf("stream %s takes no writes: %w", stream, err)
}
