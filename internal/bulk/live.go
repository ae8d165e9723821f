package bulk

import (
	"context"
	"fmt"

	"agentd/internal/broker"
	"agentd/internal/broker/buckets"
	"agentd/internal/index/find"
	"agentd/internal/reconcile"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// Live implements Runs on a broker.
type Live struct {
	find.Finder
	*broker.Conn
	// Histories is the store of runs.
	Histories state.Store
}

// Purge implements Runs.
func (l Live) Purge(ctx context.Context, run wire.RunKey) error {
	return reconcile.Purge(ctx, l.Conn, l.Histories, run)
}

// Open is a Bulk on a broker. Who has a job in hand, and what is long ago, goes by the broker's clock, which it measures.
func Open(ctx context.Context, conn *broker.Conn, store state.Store) (Bulk, error) {
	if err := conn.MeasureClock(ctx); err != nil {
		return Bulk{}, fmt.Errorf("measure the broker's clock: %w", err)
	}
	jobs, err := buckets.OpenJobs(ctx, conn)
	if err != nil {
		return Bulk{}, err
	}
	return New(jobs, Live{find.Finder{Conn: conn, Store: store}, conn, store}, conn.Now), nil
}
