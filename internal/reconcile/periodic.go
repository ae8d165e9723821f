package reconcile

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"agentd/sdk/wire"
)

// The names of leases: one for each agent, and one for what belongs to no agent.
const (
	leaseOfAgent    = "reconcile_agent_"
	leaseEverything = "reconcile"
)

// Periodic makes a pass every interval, at least a second, until ctx ends. Of all processes that call it, one makes a
// pass for an agent in an interval: the broker gives it a lease that ends by itself. If that one dies in the middle, the
// rest waits for the next pass.
func Periodic(ctx context.Context, interval time.Duration, o Options) {
	log := o.Logger
	o.Found = func(f Finding) { logFinding(log, f) }
	// Processes that start together do not ask together.
	wait := time.Duration(rand.Int64N(int64(interval/4) + 1))
	var mine Options
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = interval / 4
		var err error
		if len(mine.Agents) == 0 && !mine.Everything {
			mine, err = leased(ctx, interval, o)
		}
		if err == nil && (len(mine.Agents) > 0 || mine.Everything) {
			err = logged(ctx, mine)
		}
		if err == nil {
			mine = Options{}
		} else if ctx.Err() == nil {
			log.Warn("runs could not be reconciled; trying again", "in", wait, "error", err)
		}
	}
}

// leased is o with what nobody else has looked after in this interval.
func leased(ctx context.Context, interval time.Duration, o Options) (Options, error) {
	agents := o.Agents
	o.Agents = nil
	for _, a := range agents {
		mine, err := o.Conn.Lease(ctx, leaseOfAgent+wire.NameToken(a.Name), interval)
		if err != nil {
			return o, err
		}
		if mine {
			o.Agents = append(o.Agents, a)
		}
	}
	if !o.Everything {
		return o, nil
	}
	var err error
	o.Everything, err = o.Conn.Lease(ctx, leaseEverything, interval)
	return o, err
}

func logged(ctx context.Context, o Options) error {
	report, err := Run(ctx, o)
	if len(report.Found)+report.Purged+report.Removed > 0 {
		o.Logger.Info("runs are reconciled", "runs", report.Runs, "unrepaired", report.Unrepaired,
			"purged", report.Purged, "removed", report.Removed)
	}
	return err
}

func logFinding(log *slog.Logger, f Finding) {
	attributes := []any{"kind", f.Kind, "agent", f.Agent, "run", f.Run, "what", f.What, "action", f.Action}
	if f.Problem != "" {
		log.Error("something is lost and could not be repaired", append(attributes, "problem", f.Problem)...)
		return
	}
	log.Warn("something was lost", attributes...)
}
