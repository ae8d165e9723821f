package reconcile

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The names of leases: one for each agent, and one for what belongs to no agent. Those of passes after a loss are others.
const (
	leaseOfAgent    = "reconcile_agent_"
	leaseEverything = "reconcile"
	leaseOfCalls    = "reconcile_calls"
	afterLoss       = "lost_"
)

const (
	// soonLost is how old something must be to be examined after a loss: longer than a worker takes to carry out what it has written.
	soonLost = time.Minute
	// lossAgain is how soon a pass is tried again that failed, as it does while the servers elect a leader.
	lossAgain = 5 * time.Second
)

// Periodic makes a pass every interval, at least a second, until ctx ends. Of all processes that call it, one makes a
// pass for an agent in an interval: the broker gives it a lease that ends by itself. If that one dies in the middle, the
// rest waits for the next pass.
func Periodic(ctx context.Context, interval time.Duration, o Options) {
	log := o.Logger
	o.Found = func(f Finding) { logFinding(log, f) }
	// Processes that start together do not ask together.
	wait := time.Duration(rand.Int64N(int64(interval/4) + 1))
	usual := interval / 4
	pauses := tryingAgain(usual).Start()
	var mine Options
	for retry.Sleep(ctx, wait) == nil {
		var err error
		if len(mine.Agents) == 0 && !mine.Everything {
			if mine, err = leased(ctx, "", interval, o); err != nil {
				mine = o // that others may make the pass too is harmless
			}
		}
		if err == nil && (len(mine.Agents) > 0 || mine.Everything) {
			err = scheduled(ctx, mine)
		}
		if err == nil {
			mine, wait = Options{}, usual
			pauses.Reset()
			continue
		}
		wait = pauses.Next()
		tellFailed(ctx, log, err, wait)
	}
}

// tryingAgain is how a pass is made again that failed: soon, each time later, because it may have met the election of a leader, and no later than
// the next one would be.
func tryingAgain(usual time.Duration) retry.Pauses {
	return retry.Pauses{First: min(lossAgain, usual), Longest: usual}
}

// tellFailed says why a pass failed. What only the operator can mend, such as a store that is not the one that runs are kept in, is an error.
func tellFailed(ctx context.Context, log *slog.Logger, err error, again time.Duration) {
	level := slog.LevelWarn
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		level = slog.LevelError
	}
	if ctx.Err() == nil {
		log.Log(ctx, level, "runs could not be reconciled; trying again", "in", again, "error", err)
	}
}

// Clearing removes what runs that have ended leave on the broker, four times an interval, until ctx ends. Of all processes that call it, one
// does: see Periodic. What one that dies leaves is found by the next.
func Clearing(ctx context.Context, interval time.Duration, o Options) {
	if o.Calls == 0 {
		return
	}
	o.Found = func(f Finding) { logFinding(o.Logger, f) }
	every := max(interval/4, time.Second).Truncate(time.Second)
	wait := time.Duration(rand.Int64N(int64(every/4) + 1))
	for retry.Sleep(ctx, wait) == nil {
		wait = every / 4
		mine, err := o.Conn.Lease(ctx, leaseOfCalls, every)
		if err == nil && mine {
			var report Report
			if report, err = Clear(ctx, o); report.Cleared > 0 {
				o.Logger.Info("calls of runs that have ended are removed", "runs", report.Cleared)
			}
		}
		if err != nil && ctx.Err() == nil {
			o.Logger.Warn("calls of runs that have ended could not be removed; trying again", "in", every, "error", err)
		}
	}
}

// AfterLoss makes passes whenever something is noticed to be lost, until ctx ends: one at once, and one for what was too young for that
// one. Of all processes that notice it, one makes them for an agent; where no lease can be had, several do, which is harmless.
func AfterLoss(ctx context.Context, o Options, noticed <-chan struct{}) {
	log := o.Logger
	o.Found = func(f Finding) { logFinding(log, f) }
	o.OlderThan = min(cmp.Or(o.OlderThan, sdk.DefaultLostAfter), soonLost)
	for {
		select {
		case <-ctx.Done():
			return
		case <-noticed:
		}
		mine, err := leased(ctx, afterLoss, soonLost, o)
		if err != nil {
			mine = o
		}
		if len(mine.Agents) > 0 || mine.Everything {
			twice(ctx, mine)
		}
	}
}

// twice makes two passes, as far apart as something must be old to be examined. One that fails is made again.
func twice(ctx context.Context, o Options) {
	noticed := newPass(o).now
	pauses := tryingAgain(sdk.DefaultLostAfter).Start()
	for passes, wait := 0, time.Duration(0); passes < 2 && retry.Sleep(ctx, wait) == nil; {
		come := refillAgents(ctx, o, sinceOfAll(o, noticed.Add(-forgotten)))
		if come.err == nil {
			come.err = logged(ctx, o)
		}
		if _, err := come.joined(); err != nil {
			wait = pauses.Next()
			tellFailed(ctx, o.Logger, err, wait)
			continue
		}
		passes++
		wait = o.OlderThan + lossAgain
		pauses.Reset()
	}
}

// leased is o with what nobody else has looked after in this interval. The names of the leases begin with kind.
func leased(ctx context.Context, kind string, interval time.Duration, o Options) (Options, error) {
	agents := o.Agents
	o.Agents = nil
	for _, a := range agents {
		mine, err := o.Conn.Lease(ctx, kind+leaseOfAgent+wire.NameToken(a.Name), interval)
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
	o.Everything, err = o.Conn.Lease(ctx, kind+leaseEverything, interval)
	return o, err
}

func logged(ctx context.Context, o Options) error {
	p := newPass(o)
	err := p.all(ctx)
	p.log()
	return err
}

// log says what a pass has done, if it has done anything.
func (p *pass) log() {
	if r := p.report; len(r.Found)+r.Purged+r.Removed+r.Archived+r.Thinned > 0 {
		p.Logger.Info("runs are reconciled", "runs", r.Runs, "unrepaired", r.Unrepaired, "purged", r.Purged, "removed", r.Removed,
			"archived", r.Archived, "thinned", r.Thinned)
	}
}

func logFinding(log *slog.Logger, f Finding) {
	attributes := []any{"kind", f.Kind, "agent", f.Agent, "run", f.Run, "what", f.What, "action", f.Action}
	if f.Kind == CallsKept {
		log.Warn("calls of runs that have ended cannot be removed", append(attributes, "problem", f.Problem)...)
		return
	}
	if f.Kind == HistoryHot {
		log.Warn("a journal cannot leave Redis", append(attributes, "problem", f.Problem)...)
		return
	}
	if f.Problem != "" {
		log.Error("something is lost and could not be repaired", append(attributes, "problem", f.Problem)...)
		return
	}
	log.Warn("something was lost", attributes...)
}
