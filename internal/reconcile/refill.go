package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// refilled is what refilling has come to. An agent that cannot be refilled, such as one whose tools are away, keeps no other from it: failed says
// why, by the agent's token. err concerns all.
type refilled struct {
	report Report
	failed map[string]error
	err    error
}

func (r refilled) joined() (Report, error) {
	for _, token := range slices.Sorted(maps.Keys(r.failed)) {
		r.err = errors.Join(r.err, r.failed[token])
	}
	return r.report, r.err
}

// sinceOfAll has all agents, and those that nobody serves, refilled for what happened since one time.
func sinceOfAll(o Options, since time.Time) map[string]time.Time {
	all := map[string]time.Time{broker.Unserved: since}
	for i := range o.Agents {
		all[wire.NameToken(o.Agents[i].Name)] = since
	}
	return all
}

// refillAgents publishes again what the broker may have forgotten of what runs, and refused init events, of the agents have had published since a
// time of each, by its token. Unlike Run it asks the journals what there should be, not the streams what is missing: also voids, and timers that
// were armed anew, are there afterwards. It reads the journals of runs that have changed since then, and of all others the last entry.
func refillAgents(ctx context.Context, o Options, since map[string]time.Time) refilled {
	return refill(ctx, o, since, (*pass).refillRuns, (*pass).refillRefusals)
}

// refill compares the store, surveys the streams and takes steps, for what happened since a time of each agent.
func refill(ctx context.Context, o Options, since map[string]time.Time, steps ...func(*pass, context.Context) error) refilled {
	p := newPass(o)
	p.refillFrom, p.failed = map[string]int64{}, map[string]error{}
	for token, from := range since {
		p.refillFrom[token] = from.UnixMilli()
	}
	for _, step := range append([]func(*pass, context.Context) error{(*pass).right, (*pass).survey}, steps...) {
		if err := step(p, ctx); err != nil {
			return refilled{p.report, p.failed, fmt.Errorf("refill: %w", err)}
		}
	}
	return refilled{p.report, p.failed, nil}
}

// fails notes why an agent cannot be refilled: the rest of it waits for the next attempt.
func (p *pass) fails(ctx context.Context, agent string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil && p.failed[agent] == nil {
		p.failed[agent] = fmt.Errorf("refill %s: %w", cmp.Or(agent, unservedAgents), err)
	}
	return nil
}

func (p *pass) refillRuns(ctx context.Context) error {
	x := newListing(p)
	for cursor := ""; ; {
		stored, after, err := p.Store.Runs(ctx, cursor, page)
		if err != nil {
			return err
		}
		var changed []core.Head
		for _, s := range stored {
			head, err := p.mayMiss(ctx, x, s)
			if err != nil {
				return err
			}
			if head != nil {
				changed = append(changed, *head)
			}
		}
		if err := p.refill(ctx, changed); err != nil {
			return err
		}
		if cursor = after; cursor == "" {
			return nil
		}
	}
}

// mayMiss is the head of a run that has changed since, and may miss something.
func (p *pass) mayMiss(ctx context.Context, x belongings, s runner.StoredRun) (*core.Head, error) {
	e, err := core.DecodeEntry(s.Last.Data)
	if s.Last.Data == nil || err != nil {
		return nil, nil //nolint:nilerr // what cannot be read is for passes that look at all runs
	}
	agent := wire.NameToken(e.Head.Agent)
	_, mine := p.agents[agent]
	if _, failed := p.failed[agent]; !mine || failed || e.At < p.refillFrom[agent] || e.Head.Purged != nil {
		return nil, nil
	}
	p.report.Runs++
	switch e.Head.Status {
	case core.StatusRunning:
		err = p.stalled(ctx, s.Run, &e)
	case core.StatusWaiting:
		// A service that has answered is not to get its call again.
		if coming, err := p.answers(ctx, x, s.Run, &e); err != nil || coming {
			return nil, err
		}
	default:
	}
	return &e.Head, err
}

// refill publishes again what runs have had published.
func (p *pass) refill(ctx context.Context, heads []core.Head) error {
	problems := make([]error, len(heads))
	atOnce(len(heads), func(i int) {
		h := &heads[i]
		agent := wire.NameToken(h.Agent)
		problems[i] = p.Runner.RepairSince(ctx, agent, h.Key(), p.refillFrom[agent])
	})
	for i, err := range problems {
		if err == nil || errors.Is(err, runner.ErrNotFound) { // it was removed meanwhile
			continue
		}
		err = p.unreadable(ctx, heads[i].Agent, heads[i].Run, err)
		if err := p.fails(ctx, wire.NameToken(heads[i].Agent), err); err != nil {
			return err
		}
	}
	return nil
}

// refillRefusals handles the init events again whose terminal event is not there, and that began no run: no journal knows of them.
func (p *pass) refillRefusals(ctx context.Context) error {
	for token := range p.agents {
		from, err := p.Conn.SequenceAt(ctx, streams.Start, time.UnixMilli(p.refillFrom[token]))
		if err != nil {
			return err
		}
		start := p.subjects.Start(token)
		for _, filter := range []string{start, start + ".*"} {
			err := p.unended(ctx, filter, from, func(d broker.Delivery, m runner.Message) error { return p.refillRefusal(ctx, token, d, m) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unended calls a function with each init event under a subject, from a sequence on, that has a sender who could be told how its run ended
// and whose terminal event is not there.
func (p *pass) unended(ctx context.Context, filter string, from uint64, each func(broker.Delivery, runner.Message) error) error {
	for {
		d, err := p.Conn.NextDelivery(ctx, streams.Start, filter, from)
		if err != nil {
			return err
		}
		if d == nil || d.Sequence() > p.states[streams.Start].Last {
			return nil
		}
		from = d.Sequence() + 1
		p.report.Inits++
		m, err := p.Decode(d)
		if err != nil {
			continue // a dead letter, and nobody can be told
		}
		if ended, err := p.ended(ctx, m); err != nil {
			return err
		} else if ended {
			continue
		}
		if err := each(d, m); err != nil {
			return err
		}
	}
}

func (p *pass) refillRefusal(ctx context.Context, agent string, d broker.Delivery, m runner.Message) error {
	if handled, err := p.handled(ctx, streams.Start, agent, d.Sequence(), d.Received()); err != nil || !handled {
		return err
	}
	last, err := p.Store.Head(ctx, m.Address.Run)
	if errors.Is(err, runner.ErrNotFound) && m.Unread == nil {
		return nil // refused, or lost by the store: lostRuns tells them apart
	}
	if err == nil && begun(last, m) {
		return nil
	}
	if err != nil && m.Unread == nil {
		return p.fails(ctx, agent, p.unreadable(ctx, agent, m.Run, err))
	}
	f := Finding{Kind: TerminalLost, Agent: agent, Run: m.Run, What: fmt.Sprintf("%s %d", d.Stream(), d.Sequence()), Action: "refused again"}
	return p.refuseAgain(ctx, agent, f, func(ctx context.Context) error {
		m.Progress = func() {}
		if v := p.Runner.Process(ctx, &m); v.Settlement == runner.Retry || v.Settlement == runner.Leave {
			return errors.New("it could not be handled")
		}
		return nil
	})
}

// refuseAgain deals with a refusal that is not there. Where it cannot be made, its agent cannot be refilled: no other pass looks for it.
func (p *pass) refuseAgain(ctx context.Context, agent string, f Finding, refuse func(context.Context) error) error {
	var problem error
	err := p.deal(ctx, f, func(ctx context.Context) error {
		problem = refuse(ctx)
		return problem
	})
	if err != nil || problem == nil {
		return err
	}
	return p.fails(ctx, agent, fmt.Errorf("refuse %s: %w", f.What, problem))
}

// begun reports whether an init event began what a run's journal tells of, which has its terminal event. So may have one that cannot be read.
func begun(last runner.Record, m runner.Message) bool {
	e, err := core.DecodeEntry(last.Data)
	init := core.NewInit(m.Address, m.Event)
	return err != nil || slices.Contains(e.Head.Generations(), init.Token)
}
