package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// refillUnserved refuses init events again whose agents nobody serves, and whose refusals the broker may have forgotten since the time of
// broker.Unserved: there are no workers of these agents whom refillAgents could have look for them.
func refillUnserved(ctx context.Context, o Options, since map[string]time.Time) refilled {
	return refill(ctx, o, since, (*pass).refillUnserved)
}

func (p *pass) refillUnserved(ctx context.Context) error {
	subjects, err := p.Conn.SubjectsUnder(ctx, streams.Start, p.subjects.All(wire.KindStart))
	if err != nil {
		return err
	}
	from, err := p.Conn.SequenceAt(ctx, streams.Start, time.UnixMilli(p.refillFrom[broker.Unserved]))
	if err != nil {
		return err
	}
	served := map[string]bool{}
	for _, subject := range subjects {
		address, err := p.subjects.Parse(subject)
		if err != nil {
			continue // a dead letter
		}
		agent := address.Agent
		if _, known := served[agent]; !known {
			if served[agent], err = p.Conn.HasConsumer(ctx, streams.InitConsumer(agent)); err != nil {
				return err
			}
		}
		if served[agent] {
			continue
		}
		if err := p.unended(ctx, subject, from, func(d broker.Delivery, m runner.Message) error { return p.refuse(ctx, d, m) }); err != nil {
			return err
		}
	}
	return nil
}

// refuse refuses an init event, unless the agent was served once and its run has begun.
func (p *pass) refuse(ctx context.Context, d broker.Delivery, m runner.Message) error {
	last, err := p.Store.Head(ctx, m.Address.Run)
	switch {
	case errors.Is(err, runner.ErrNotFound):
		if err := p.right(ctx); err != nil {
			return err
		}
	case err != nil:
		return p.unreadable(ctx, m.Address.Agent, m.Run, err)
	case begun(last, m):
		return nil
	}
	f := Finding{Kind: TerminalLost, Agent: m.Address.Agent, Run: m.Run, What: fmt.Sprintf("%s %d", d.Stream(), d.Sequence()), Action: "refused again"}
	return p.refuseAgain(ctx, broker.Unserved, f, func(ctx context.Context) error { return p.Refuse(ctx, m.Address, m.Event) })
}
