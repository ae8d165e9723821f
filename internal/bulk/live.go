package bulk

import (
	"context"

	"agentd/internal/index/find"
	"agentd/internal/reconcile"
	"agentd/internal/state"
	"agentd/sdk/wire"

	"agentd/internal/broker"
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

// Open is a Bulk on a broker.
func Open(ctx context.Context, conn *broker.Conn, store state.Store) (Bulk, error) {
	jobs, err := conn.Jobs(ctx)
	if err != nil {
		return Bulk{}, err
	}
	return New(jobs, Live{find.Finder{Conn: conn, Store: store}, conn, store}, conn.Now), nil
}
