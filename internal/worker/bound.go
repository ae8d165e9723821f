package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk"
)

// boundFor is how long consumers that were there are taken to be there still: probers ask often.
const boundFor = 15 * time.Second

// bound remembers when the worker's consumers were seen. Its zero value has seen none.
type bound struct {
	mu   sync.Mutex
	seen time.Time
}

// check returns nil when all consumers exist, or which one does not.
func (b *bound) check(ctx context.Context, conn *broker.Conn, refs []streams.ConsumerRef) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if time.Since(b.seen) < boundFor {
		return nil
	}
	refs, err := conn.Divided(ctx, refs...)
	if err != nil {
		return fmt.Errorf("look how streams are divided: %w", err)
	}
	missing, err := provision.MissingConsumers(ctx, conn, refs...)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		return sdk.Errorf(sdk.CodeUnavailable, "consumer %s/%s does not exist; run: agentd provision",
			streams.Name(conn.Subjects(), missing[0].Zone), missing[0].Name)
	}
	b.seen = time.Now()
	return nil
}
