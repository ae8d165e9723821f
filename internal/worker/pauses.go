package worker

import (
	"context"
	"time"

	"agentd/internal/broker"
	"agentd/sdk/wire"
)

// Paused implements runner.Outages. That an agent is paused is asked for each time, so that no run waits on after it was resumed; one of
// which it cannot be learnt is not paused.
func (o *outages) Paused(ctx context.Context, agent string) time.Duration {
	o.mu.Lock()
	known := time.Since(o.going[agent]) < broker.PauseKnown
	o.mu.Unlock()
	if known {
		return 0
	}
	asked := time.Now()
	p, err := o.askPaused(ctx, agent)
	if err != nil {
		o.logger.DebugContext(ctx, "whether the agent is paused is not known", "agent", agent, "error", err)
		return 0
	}
	if p.Paused() && !p.Drain {
		return p.For
	}
	o.mu.Lock()
	o.going[agent] = asked
	o.mu.Unlock()
	return 0
}

func (o *outages) askPaused(ctx context.Context, agent string) (broker.AgentPause, error) {
	ctx, cancel := context.WithTimeout(ctx, hintTimeout)
	defer cancel()
	return o.conn.AgentPause(ctx, agent)
}

// Unmark implements runner.Outages.
func (o *outages) Unmark(ctx context.Context, key, agent string, run wire.RunKey) error {
	return o.conn.UnmarkParked(ctx, key, broker.ParkedRun{Agent: wire.NameToken(agent), Run: run})
}

// Park implements runner.Outages. Who resumes an agent wakes the runs that have their mark by then, so who marks a run looks once more
// whether the agent is still paused.
func (o *outages) Park(ctx context.Context, key, agent string, run wire.RunKey, left time.Duration) error {
	if err := o.conn.MarkParked(ctx, key, agent, run, left); err != nil {
		return err
	}
	if key != wire.KeyAgentPaused {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.scouts(key)
		return nil
	}
	if p, err := o.askPaused(ctx, agent); err == nil && (!p.Paused() || p.Drain) {
		return o.conn.Unpark(ctx, key, broker.ParkedRun{Agent: wire.NameToken(agent), Run: run})
	}
	return nil
}
