package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/retry"
	"agentd/internal/state"
	"agentd/sdk"
)

const (
	// watchEvery is how often the broker's clock is measured, and whether broker and store take writes.
	watchEvery = 15 * time.Second
	// MostAhead is how wrong the clock of a worker's machine may be before the worker is not ready. What it writes is dated by the
	// broker's clock, but certificates, tokens and signatures go by the machine's.
	MostAhead = 5 * time.Minute
)

// Vital is what a worker tells of itself in the statistics of its services.
type Vital struct {
	// Ahead is how far the clock of its machine is ahead of the broker's, in milliseconds.
	Ahead int64 `json:"clock_ahead_ms"`
}

func (w *Worker) vital() Vital { return Vital{Ahead: w.Conn.Ahead().Milliseconds()} }

// ClockText says how wrong a clock is.
func ClockText(ahead time.Duration) string {
	direction := "ahead of"
	if ahead < 0 {
		direction = "behind"
	}
	return fmt.Sprintf("the clock of its machine is %s %s the broker's", ahead.Abs().Round(time.Second), direction)
}

func clockProblem(ahead time.Duration) error {
	if ahead.Abs() <= MostAhead {
		return nil
	}
	return sdk.Errorf(sdk.CodeUnavailable, "%s; set it: the worker is not ready while they are more than %s apart",
		ClockText(ahead), MostAhead)
}

// watch measures the broker's clock, before anything is dated by it, and then looks again and again at the clock and at whether
// broker and store take writes, until ctx ends. The returned function ends that.
func (w *Worker) watch(ctx context.Context) (stop func()) {
	measure := func() error {
		ctx, cancel := context.WithTimeout(ctx, watchEvery)
		defer cancel()
		return w.Conn.MeasureClock(ctx)
	}
	pauses := retry.Pauses{First: 250 * time.Millisecond, Longest: 5 * time.Second}
	ended := pauses.Do(ctx, retry.Sleep, func() error {
		err := measure()
		if err != nil && ctx.Err() == nil {
			w.Logger.WarnContext(ctx, "the broker's clock cannot be measured; trying again", "error", err)
		}
		return err
	})
	if ended != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			w.tellRooms(ctx)
			w.diagnosis.set(ctx, w.Logger, errors.Join(clockProblem(w.Conn.Ahead()), w.writeProblem(ctx)))
			if retry.Sleep(ctx, watchEvery) != nil {
				return
			}
			if err := measure(); err != nil {
				w.Logger.DebugContext(ctx, "the broker's clock was not measured", "error", err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// tellRooms looks at the streams that others publish to, and logs which have become full since it looked last, or have room again. Workers are
// ready all the same: what is there is handled.
func (w *Worker) tellRooms(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, watchEvery/2)
	defer cancel()
	rooms, err := w.Conn.Rooms(ctx)
	if err != nil {
		w.Logger.DebugContext(ctx, "whether streams have room is unknown", "error", err)
		return
	}
	var before []broker.Room
	if last := w.rooms.Swap(&rooms); last != nil {
		before = *last
	}
	for _, room := range rooms {
		was := slices.ContainsFunc(before, func(b broker.Room) bool { return b.Stream == room.Stream && b.Full != "" })
		switch {
		case room.Full != "" && !was:
			w.Logger.WarnContext(ctx, "stream is full: who publishes there is refused", "stream", room.Stream, "problem", room.Full)
		case room.Full == "" && was:
			w.Logger.InfoContext(ctx, "stream has room again", "stream", room.Stream)
		}
	}
}

// writeProblem is why the broker or the store takes no writes, or is not the one that runs are kept in; nil when all is well.
func (w *Worker) writeProblem(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, watchEvery/2)
	defer cancel()
	err := w.Conn.Writable(ctx)
	if s, ok := w.store.(state.Store); ok {
		err = errors.Join(err, s.Writable(ctx))
	}
	if another := w.comparing(ctx); errors.Is(another, ErrOtherStore) {
		err = errors.Join(err, another)
	}
	return err
}

// diagnosis is what a worker last found out about what it needs. The zero value has found out nothing.
type diagnosis struct {
	mu      sync.Mutex
	known   bool
	problem error
}

// set replaces the diagnosis, and logs a problem that is new or gone.
func (d *diagnosis) set(ctx context.Context, log *slog.Logger, problem error) {
	if ctx.Err() != nil {
		return // it says nothing any more
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case problem != nil && (d.problem == nil || d.problem.Error() != problem.Error()):
		log.ErrorContext(ctx, "worker is not ready", "error", problem)
	case problem == nil && d.problem != nil:
		log.InfoContext(ctx, "worker is ready again")
	}
	d.known, d.problem = true, problem
}

// check returns the problem.
func (d *diagnosis) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.known {
		return sdk.Errorf(sdk.CodeUnavailable, "the worker is still looking whether it can work")
	}
	return d.problem
}
