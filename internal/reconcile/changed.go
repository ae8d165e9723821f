package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// lately is a pass over what has changed: the init events, and the calls of agents, that were stored since a time, in Unix milliseconds,
// and the runs that any message was stored for since then. It costs by how many these are, and not by how many runs there are. What belongs to
// no agent, and retention, are left to Run.
func (p *pass) lately(ctx context.Context, since int64) error {
	p.Everything, p.since, p.seen = false, max(since, 1), map[wire.RunKey]bool{}
	for _, step := range []func(context.Context) error{p.right, p.survey, p.lostRuns, p.lostDelegations, p.toldRuns} {
		if err := step(ctx); err != nil {
			return fmt.Errorf("reconcile what has changed: %w", err)
		}
	}
	return nil
}

// mostSeen bounds the runs whose names are in memory at once: beyond, a run may be looked at once more.
const mostSeen = 50_000

// first reports whether a pass has not looked at a run yet.
func (p *pass) first(run wire.RunKey) bool {
	if p.seen[run] {
		return false
	}
	if len(p.seen) == mostSeen {
		clear(p.seen)
	}
	p.seen[run] = true
	return true
}

// changed examines a run of which a message was found, unless all runs are looked at anyway.
func (p *pass) changed(ctx context.Context, run wire.RunKey, last runner.Record) error {
	if p.since == 0 || !p.first(run) {
		return nil
	}
	p.report.Runs++
	_, err := p.run(ctx, lookup{p}, runner.StoredRun{Run: run, Last: last})
	return err
}

// told are the messages for runs that have begun, by the zone that has them.
func (p *pass) told(agent string) map[streams.Zone][]string {
	return map[streams.Zone][]string{
		streams.In: {
			fmt.Sprintf("%s.%s.*.*.%s.>", p.subjects.Root(), wire.KindIn, agent), fmt.Sprintf("%s.%s.*.%s.>", p.subjects.Root(), wire.KindCtl, agent),
		},
		streams.Timer: {fmt.Sprintf("%s.%s.%s.>", p.subjects.Root(), wire.KindFire, agent)},
	}
}

// toldRuns examines the runs that answers, control messages and timers came for.
func (p *pass) toldRuns(ctx context.Context) error {
	for agent := range p.agents {
		for whole, filters := range p.told(agent) {
			for _, zone := range p.layout.Zones(whole) {
				if err := p.toldIn(ctx, zone, filters); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (p *pass) toldIn(ctx context.Context, zone streams.Zone, filters []string) error {
	from, err := p.Conn.SequenceAt(ctx, zone, time.UnixMilli(p.since))
	if err != nil {
		return err
	}
	for _, filter := range filters {
		if err := p.toldOn(ctx, zone, filter, from); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) toldOn(ctx context.Context, zone streams.Zone, filter string, from uint64) error {
	var runs []wire.RunKey
	err := p.Conn.Scan(ctx, zone, filter, from, func(m broker.Stored) (bool, error) {
		if p.young(m.At) {
			return false, nil
		}
		if a, err := p.subjects.Parse(m.Subject); err == nil && p.first(a.Run) {
			runs = append(runs, a.Run)
		}
		var err error
		if len(runs) == page {
			err = p.runsOf(ctx, runs)
			runs = runs[:0]
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	return p.runsOf(ctx, runs)
}

// runsOf examines some runs.
func (p *pass) runsOf(ctx context.Context, runs []wire.RunKey) error {
	last, failed := make([]runner.Record, len(runs)), make([]error, len(runs))
	atOnce(len(runs), func(i int) { last[i], failed[i] = p.Store.Head(ctx, runs[i]) })
	for i, run := range runs {
		err := failed[i]
		switch {
		case errors.Is(err, runner.ErrNotFound):
			continue // what is lost is found by what began it
		case err != nil:
			err = p.unreadable(ctx, "", run.String(), err)
		default:
			p.report.Runs++
			_, err = p.run(ctx, lookup{p}, runner.StoredRun{Run: run, Last: last[i]})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// open is from when on messages for an agent's runs are not dealt with, in Unix milliseconds: they are too young for this pass, or workers
// are not through with them.
func (p *pass) open(ctx context.Context, a sdk.AgentSpec) (from int64, err error) {
	if p.layout, err = p.Conn.Layout(ctx); err != nil {
		return 0, err
	}
	agent := wire.NameToken(a.Name)
	from = p.limit.UnixMilli()
	filters := p.told(agent)
	filters[streams.Start], filters[streams.Out] = p.inits(agent, a), p.delegations(agent, a)
	for whole, list := range filters {
		for _, zone := range p.layout.Zones(whole) {
			since, err := p.openIn(ctx, zone, agent, list)
			if err != nil {
				return 0, err
			}
			from = min(from, since)
		}
	}
	return from, nil
}

// openIn is open of one stream; without such messages it is the end of time.
func (p *pass) openIn(ctx context.Context, zone streams.Zone, agent string, filters []string) (int64, error) {
	from := int64(math.MaxInt64)
	c, err := p.consumed(ctx, zone, agent)
	if err != nil || !c.known {
		return from, err
	}
	for _, filter := range filters {
		d, err := p.Conn.NextDelivery(ctx, zone, filter, c.Floor+1)
		if err != nil {
			return 0, err
		}
		if d != nil {
			from = min(from, d.Received())
		}
	}
	return from, nil
}

// leave notes that a run changed so lately that it was left alone: the next pass has to find the message that changed it.
func (p *pass) leave(ctx context.Context, e *core.Entry) error {
	zone, ok := p.zoneOf(e.Cause.Stream)
	if !ok {
		return nil
	}
	m, err := p.Conn.At(ctx, zone, e.Cause.Sequence)
	if errors.Is(err, broker.ErrNotStored) {
		return nil
	}
	if err != nil {
		return err
	}
	agent := wire.NameToken(e.Head.Agent)
	if at, left := p.left[agent]; !left || m.At < at {
		p.left[agent] = m.At
	}
	return nil
}
