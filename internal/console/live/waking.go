package live

import (
	"context"
	"log/slog"
	"sync"

	"agentd/internal/broker"
)

// waking wakes the runs of agents that go on, beside the requests, until it is closed: there may be more runs than a page waits for.
type waking struct {
	conn   *broker.Conn
	logger *slog.Logger

	ctx    context.Context // it is that of all that are woken, and ends with the console
	stop   context.CancelFunc
	agents sync.WaitGroup

	mu sync.Mutex
	// mine are the agents whose runs are being woken.
	mine map[string]bool
}

func newWaking(ctx context.Context, conn *broker.Conn, logger *slog.Logger) *waking {
	w := &waking{conn: conn, logger: logger, mine: map[string]bool{}}
	w.ctx, w.stop = context.WithCancel(context.WithoutCancel(ctx))
	return w
}

// close leaves what is not woken to its time.
func (w *waking) close() {
	w.stop()
	w.agents.Wait()
}

// wake begins to wake the runs of an agent, unless that is under way.
func (w *waking) wake(agent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || w.mine[agent] {
		return
	}
	w.mine[agent] = true
	w.agents.Go(func() {
		_, err := permitted(w.ctx, w.conn, func(ctx context.Context) (int, error) { return w.conn.WakePaused(ctx, agent) })
		w.mu.Lock()
		delete(w.mine, agent)
		w.mu.Unlock()
		if err != nil {
			w.logger.Warn("not all runs of a resumed agent were woken; to wake the others: agentd agents resume", "agent", agent, "error", err)
		}
	})
}
