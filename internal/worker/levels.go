package worker

import (
	"context"
	"maps"
	"slices"
	"time"

	"agentd/internal/broker/streams"
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
		w.showRooms(levels)
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
	reading, err := w.Conn.Divided(ctx, w.reading...)
	if err != nil {
		w.Logger.DebugContext(ctx, "how streams are divided is unknown", "error", err)
		return
	}
	var lag []telemetry.Lag
	for _, ref := range reading {
		b, err := w.Conn.Backlog(ctx, ref)
		if err != nil {
			w.Logger.DebugContext(ctx, "consumer's lag is unknown", "consumer", ref.Name, "error", err)
			continue
		}
		lag = append(lag, telemetry.Lag{
			Stream: streams.Name(w.Conn.Subjects(), ref.Zone), Consumer: ref.Name, Pending: b.Pending, Unacked: b.Unacked,
		})
	}
	levels.SetLag(lag)
}

// showRooms shows what watch has seen last of the streams that others publish to: with many partitions they are too many to be asked twice.
func (w *Worker) showRooms(levels *telemetry.Levels) {
	rooms := w.rooms.Load()
	if rooms == nil {
		return
	}
	full := make(map[string]bool, len(*rooms))
	for _, room := range *rooms {
		full[room.Stream] = room.Full != ""
	}
	levels.SetFull(full)
}

// measureRuns counts the runs that are not done, among the first mostListed of the store.
func (w *Worker) measureRuns(ctx context.Context, levels *telemetry.Levels) {
	ctx, cancel := context.WithTimeout(ctx, lagEvery)
	defer cancel()
	counts := newCensus(w.Env.Now())
	cursor := ""
	for seen := 0; seen < mostListed; {
		runs, next, err := w.Store.Runs(ctx, cursor, listed)
		if err != nil {
			w.Logger.DebugContext(ctx, "runs could not be counted", "error", err)
			return
		}
		for _, r := range runs {
			counts.add(r)
		}
		seen += len(runs)
		if cursor = next; cursor == "" {
			break
		}
	}
	levels.SetRuns(slices.Collect(maps.Values(counts.runs)), slices.Collect(maps.Values(counts.parked)))
}

// census counts runs that are not done, by agent and status, or by agent and what they are parked for.
type census struct {
	now    int64
	runs   map[[2]string]telemetry.Runs
	parked map[[2]string]telemetry.Parked
}

func newCensus(now int64) census {
	return census{now, map[[2]string]telemetry.Runs{}, map[[2]string]telemetry.Parked{}}
}

func (c census) add(stored runner.StoredRun) {
	e, err := core.DecodeEntry(stored.Last.Data)
	if err != nil || e.Head.Status == core.StatusDone {
		return // what cannot be read is reported by who handles it
	}
	h := &e.Head
	k := [2]string{h.Agent, string(h.Status)}
	r := c.runs[k]
	c.runs[k] = telemetry.Runs{Agent: k[0], Status: k[1], Count: r.Count + 1, Oldest: max(r.Oldest, float64(c.now-e.At)/1000)}
	if h.Parked != nil {
		c.park(h.Agent, h.Parked.Why, h.Parked.Since)
	} else if h.Paused != nil {
		c.park(h.Agent, core.ParkPaused, h.Paused.At)
	}
}

func (c census) park(agent string, why core.ParkReason, since int64) {
	k := [2]string{agent, string(why)}
	p := c.parked[k]
	c.parked[k] = telemetry.Parked{Agent: k[0], Why: k[1], Count: p.Count + 1, Oldest: max(p.Oldest, float64(c.now-since)/1000)}
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
