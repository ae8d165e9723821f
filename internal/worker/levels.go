package worker

import (
	"context"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/telemetry"
)

const (
	// lagEvery and runsEvery are how often levels are measured, runsEvery in times of lagEvery: listing runs costs more.
	lagEvery  = 15 * time.Second
	runsEvery = 4
	// mostListed bounds how many runs are looked at, a page at a time.
	mostListed, listed = 5000, 500
)

// measure measures levels until ctx ends.
func (w *Worker) measure(ctx context.Context, levels *telemetry.Levels) {
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		w.measureLag(ctx, levels)
		if n%runsEvery == 0 {
			w.measureRuns(ctx, levels)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Worker) measureLag(ctx context.Context, levels *telemetry.Levels) {
	ctx, cancel := context.WithTimeout(ctx, lagEvery)
	defer cancel()
	var lag []telemetry.Lag
	for _, ref := range w.reading {
		b, err := w.Conn.Backlog(ctx, ref)
		if err != nil {
			w.Logger.DebugContext(ctx, "consumer's lag is unknown", "consumer", ref.Name, "error", err)
			continue
		}
		lag = append(lag, telemetry.Lag{
			Stream: broker.StreamName(w.Conn.Subjects(), ref.Zone), Consumer: ref.Name, Pending: b.Pending, Unacked: b.Unacked,
		})
	}
	levels.SetLag(lag)
}

// measureRuns counts the runs that are not done, among the first mostListed of the store.
func (w *Worker) measureRuns(ctx context.Context, levels *telemetry.Levels) {
	ctx, cancel := context.WithTimeout(ctx, lagEvery)
	defer cancel()
	type key struct {
		agent  string
		status core.Status
	}
	counts := map[key]*telemetry.Runs{}
	now := w.Env.Now()
	count := func(r runner.StoredRun) {
		e, err := core.DecodeEntry(r.Last.Data)
		if err != nil || e.Head.Status == core.StatusDone {
			return // what cannot be read is reported by who handles it
		}
		k := key{e.Head.Agent, e.Head.Status}
		if counts[k] == nil {
			counts[k] = &telemetry.Runs{Agent: k.agent, Status: string(k.status)}
		}
		counts[k].Count++
		counts[k].Oldest = max(counts[k].Oldest, float64(now-e.At)/1000)
	}
	cursor := ""
	for seen := 0; seen < mostListed; {
		runs, next, err := w.Store.Runs(ctx, cursor, listed)
		if err != nil {
			w.Logger.DebugContext(ctx, "runs could not be counted", "error", err)
			return
		}
		for _, r := range runs {
			count(r)
		}
		seen += len(runs)
		if cursor = next; cursor == "" {
			break
		}
	}
	var levelsOfRuns []telemetry.Runs
	for _, r := range counts {
		levelsOfRuns = append(levelsOfRuns, *r)
	}
	levels.SetRuns(levelsOfRuns)
}

// level begins to measure; the returned function ends that.
func (w *Worker) level(ctx context.Context) (stop func() error, err error) {
	levels, err := w.Telemetry.Levels()
	if err != nil || levels == nil {
		return func() error { return nil }, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.measure(ctx, levels)
	}()
	return func() error {
		cancel()
		<-ended
		return levels.Close()
	}, nil
}
