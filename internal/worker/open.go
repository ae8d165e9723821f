package worker

import (
	"context"

	"agentd/internal/broker"
	"agentd/internal/runner"
	"agentd/internal/state/natsstore"
	"agentd/sdk"
)

// OpenedStore is a store of runs with what was found out about it.
type OpenedStore struct {
	runner.Store
	// Warnings say in what the store falls short.
	Warnings []broker.Finding
	close    func() error
}

// Close releases what OpenStore opened.
func (s OpenedStore) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}

// OpenStore opens the store of runs at redisURL or, without one, in the connection's JetStream.
func OpenStore(ctx context.Context, conn *broker.Conn, redisURL string) (OpenedStore, error) {
	if redisURL == "" {
		stream := broker.StreamName(conn.Subjects(), broker.ZoneRun)
		return OpenedStore{Store: natsstore.New(conn.JetStream(), stream, conn.Subjects())}, nil
	}
	return openRedis(ctx, conn.Subjects(), redisURL)
}

func openRedis(context.Context, sdk.Subjects, string) (OpenedStore, error) {
	return OpenedStore{}, sdk.Errorf(sdk.CodeConfig, "this build has no Redis store")
}
