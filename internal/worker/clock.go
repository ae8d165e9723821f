package worker

import (
	"context"
	"fmt"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
)

const (
	// measureClockEvery is how often the broker's clock is measured.
	measureClockEvery = 15 * time.Second
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

// watchClock measures the broker's clock, before anything is dated by it, and then again and again until ctx ends. The returned
// function ends that.
func (w *Worker) watchClock(ctx context.Context) (stop func()) {
	measure := func() error {
		ctx, cancel := context.WithTimeout(ctx, measureClockEvery)
		defer cancel()
		return w.Conn.MeasureClock(ctx)
	}
	pauses := retry.Pauses{First: 250 * time.Millisecond, Longest: 5 * time.Second}
	ended := pauses.Do(ctx, retry.Sleep, func() error {
		err := measure()
		if err != nil {
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
		wrong := false
		for {
			problem := clockProblem(w.Conn.Ahead())
			switch {
			case problem != nil && !wrong:
				w.Logger.ErrorContext(ctx, "clock is wrong", "error", problem)
			case problem == nil && wrong:
				w.Logger.InfoContext(ctx, "clock is right again")
			}
			wrong = problem != nil
			if retry.Sleep(ctx, measureClockEvery) != nil {
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
