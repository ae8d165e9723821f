package worker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/reconcile"
	"agentd/internal/state"
	"agentd/sdk"
)

// Reconcile says how a worker looks after runs that no message would bring back; see package reconcile.
type Reconcile struct {
	// Interval is how often one of the workers makes a pass; 0 is never.
	Interval time.Duration
	// OlderThan is how old something must be before it counts as lost; 0 is sdk.DefaultLostAfter.
	OlderThan time.Duration
	// FullInterval is how often a pass looks at all runs, and not at those alone that have changed; 0 is each time.
	FullInterval time.Duration
	// History is how long a done run keeps its history; 0 is for ever.
	History time.Duration
	// Calls is how long a done run keeps its calls on the broker; 0 is for as long as their stream does.
	Calls time.Duration
	// Hot is how long a done run's journal stays in a store that has archives; 0 is for ever.
	Hot time.Duration
}

// Reconciling are the options of a pass over the runs of the worker's agents, for who does not run the worker. It measures the broker's
// clock, because a pass removes and ends what is old by that. Its error says that it could not, or that the store cannot forget runs, which all
// but those of tests can.
func (w *Worker) Reconciling(ctx context.Context) (reconcile.Options, error) {
	if err := w.Conn.MeasureClock(ctx); err != nil {
		return reconcile.Options{}, fmt.Errorf("measure the broker's clock: %w", err)
	}
	return w.reconciling()
}

func (w *Worker) reconciling() (reconcile.Options, error) {
	store, ok := w.store.(state.Store)
	if !ok {
		return reconcile.Options{}, sdk.Errorf(sdk.CodeConfig, "runs in a store of type %T cannot be reconciled", w.store)
	}
	o := reconcile.Options{
		Conn: w.Conn, Store: store, Runner: w.runner, Decode: w.handler.Decode, Document: w.indexer.document, Refuse: w.refuse,
		Right: w.comparing, Everything: true, Logger: w.Logger,
		OlderThan: w.Reconcile.OlderThan, FullInterval: w.Reconcile.FullInterval, History: w.Reconcile.History, Calls: w.Reconcile.Calls,
		Hot: w.Reconcile.Hot,
	}
	for _, a := range w.agents() {
		o.Agents = append(o.Agents, a.Spec)
	}
	return o, nil
}

// reconcile makes passes until ctx ends, and when a stream is not the one that it was. The returned function waits for the last one.
func (w *Worker) reconcile(ctx context.Context) (wait func(), err error) {
	if w.Reconcile.Interval == 0 {
		return func() {}, nil
	}
	o, err := w.reconciling()
	if err != nil {
		return nil, err
	}
	o.Right = w.settling
	var watched []streams.Zone
	for _, z := range keeping {
		zones, err := w.Conn.Zones(ctx, z)
		if err != nil {
			return nil, err
		}
		watched = append(watched, zones...)
	}
	var passes sync.WaitGroup
	lost := make(chan struct{}, 1)
	passes.Go(func() { reconcile.Periodic(ctx, w.Reconcile.Interval, o) })
	passes.Go(func() { reconcile.Clearing(ctx, w.Reconcile.Interval, o) })
	passes.Go(func() { reconcile.AfterLoss(ctx, o, lost) })
	passes.Go(func() { reconcile.AfterRestarts(ctx, o) })
	passes.Go(func() {
		w.Conn.WatchStreams(ctx, watched, func(z streams.Zone) {
			w.Logger.WarnContext(ctx, "a stream was made anew, or set back to an older copy; runs are reconciled at once",
				"stream", streams.Name(w.Conn.Subjects(), z))
			select {
			case lost <- struct{}{}:
			default: // the pass that is to come sees to it
			}
		})
	})
	return passes.Wait, nil
}

// keeping are the zones without whose messages runs wait for ever, or end unheard.
var keeping = []streams.Zone{
	streams.Start, streams.In, streams.Out, streams.Done, streams.Timer, streams.Run,
}
