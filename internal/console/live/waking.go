package live

import (
	"context"
	"log/slog"
	"sync"
)

// waking wakes the runs of agents that go on, beside the requests, until it is closed: there may be more runs than a page waits for.
type waking struct {
	// paused wakes the runs that wait by now because an agent was paused.
	paused func(ctx context.Context, agent string) error
	logger *slog.Logger

	ctx    context.Context // it is that of all that are woken, and ends with the console
	stop   context.CancelFunc
	agents sync.WaitGroup

	mu sync.Mutex
	// again has the agents whose runs are being woken, and says of which that was asked for once more: others may wait since then.
	again map[string]bool
}

func newWaking(ctx context.Context, paused func(ctx context.Context, agent string) error, logger *slog.Logger) *waking {
	w := &waking{paused: paused, logger: logger, again: map[string]bool{}}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	return w
}

// close leaves what is not woken to its time.
func (w *waking) close() {
	w.stop()
	w.agents.Wait()
}

// wake begins to wake the runs of an agent, or where that is under way has it done once more.
func (w *waking) wake(agent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil {
		return
	}
	_, underWay := w.again[agent]
	w.again[agent] = underWay
	if underWay {
		return
	}
	w.agents.Go(func() {
		for more := true; more; more = w.more(agent) {
			if err := w.paused(w.ctx, agent); err != nil {
				w.logger.Warn("not all runs of a resumed agent were woken; to wake the others: agentd agents resume", "agent", agent, "error", err)
			}
		}
	})
}

// more reports whether the runs of an agent are to be woken once more.
func (w *waking) more(agent string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.again[agent] && w.ctx.Err() == nil {
		w.again[agent] = false
		return true
	}
	delete(w.again, agent)
	return false
}
