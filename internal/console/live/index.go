package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/internal/index"
	"agentd/internal/index/sqlite"
	"agentd/internal/setup"
	"agentd/internal/worker"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// openIndex is the index of runs that the console's pages read: the one in Options.Index, or else what workers tell. lacking says which runs it
// does not have; stop ends it.
func openIndex(ctx context.Context, o Options, store worker.OpenedStore, asking *client.Client) (x index.Index, lacking func() string, stop func() error, err error) {
	if o.Index == "" {
		return askWorkers(ctx, o, asking)
	}
	file, stop, err := sqlite.Start(ctx, o.Index, sqlite.Source{Conn: o.Conn, Open: store.OpenDocument, Logger: o.Logger})
	if err != nil {
		return nil, nil, nil, err
	}
	state, err := o.Conn.IndexState(ctx)
	if err != nil {
		return nil, nil, nil, errors.Join(err, stop())
	}
	return file, func() string {
		if !state.Lacks(o.Config().Reconcile.Interval, o.Conn.Now()) {
			return ""
		}
		return fmt.Sprintf("Runs from before %s, when the index of runs was made, may not be here yet: agentd reconcile takes them up, as workers do from time to time.",
			time.Unix(0, state.Created).UTC().Format("2006-01-02 15:04 UTC"))
	}, stop, nil
}

// askWorkers is what workers tell of runs.
func askWorkers(ctx context.Context, o Options, asking *client.Client) (x index.Index, lacking func() string, stop func() error, err error) {
	listed := newRuns(o.Conn, asking, func() []string { return setup.AgentNames(o.Config()) })
	// What is missed is in the next listing.
	unwatch, err := o.Conn.WatchLive("", wire.RunKey{}, listed.hear, func(error) {})
	if err != nil {
		return nil, nil, nil, err
	}
	following, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		listed.follow(following)
	}()
	return listed, listed.Lacking, func() error {
		cancel()
		err := unwatch()
		<-done
		return err
	}, nil
}
