package reconcile

import (
	"context"
	"errors"
	"fmt"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/runner"
	"agentd/sdk"
)

// lostRuns examines the init events of clients.
func (p *pass) lostRuns(ctx context.Context) error {
	return p.scan(ctx, broker.ZoneStart, func(token string, _ sdk.AgentSpec) []string {
		start := p.subjects.Start(token)
		return []string{start, start + ".*"}
	})
}

// lostDelegations examines calls of agents by agents.
func (p *pass) lostDelegations(ctx context.Context) error {
	return p.scan(ctx, broker.ZoneOut, func(_ string, a sdk.AgentSpec) []string {
		return []string{fmt.Sprintf("%s.%s.*.%s.>", p.subjects.Root(), wire.KindOut, wire.NameToken(a.Contract.Type))}
	})
}

// scan examines the messages of a zone that start runs of each agent, up to the first that is too young.
func (p *pass) scan(ctx context.Context, z broker.Zone, filters func(token string, a sdk.AgentSpec) []string) error {
	for token, a := range p.agents {
		// One filter each: permissions can say which filter somebody may read, but not which several.
		for _, filter := range filters(token, a) {
			var failed error
			err := p.Conn.Deliveries(ctx, z, []string{filter}, func(d broker.Delivery) bool {
				if p.young(d.Received()) {
					return false
				}
				p.report.Inits++
				failed = p.init(ctx, z, token, d)
				return failed == nil
			})
			if err = errors.Join(err, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// init examines one message that starts a run.
func (p *pass) init(ctx context.Context, z broker.Zone, agent string, d broker.Delivery) error {
	m, err := p.Decode(d)
	if err != nil {
		p.Logger.Debug("message cannot be read; it is a dead letter, or becomes one", "subject", d.Subject(), "error", err)
		return nil
	}
	if core.IsQuestion(m.Address, m.Event) {
		return nil // its run has begun otherwise
	}
	_, err = p.Store.Head(ctx, m.Address.Run)
	if err == nil {
		return nil // a run of that name had begun; its own pass sees to it
	}
	if !errors.Is(err, runner.ErrNotFound) {
		return p.unreadable(ctx, agent, m.Run, err)
	}
	handled, err := p.handled(ctx, z, agent, d.Sequence(), d.Received())
	if err != nil || !handled {
		p.unsettled[m.Address.Run] = true
		return err
	}
	ended, err := p.ended(ctx, m)
	if err != nil || ended {
		return err
	}
	letter, err := p.deadLettered(ctx, d)
	if err != nil || letter {
		return err
	}
	return p.runLost(ctx, agent, d, m)
}

// ended reports whether the terminal event of a message that starts a run is there, or can no longer be.
func (p *pass) ended(ctx context.Context, m runner.Message) (bool, error) {
	init := core.NewInit(m.Address, m.Event)
	zone, subject := broker.ZoneDone, outbox.TerminalSubject(p.subjects, m.Address.Agent, m.Address.Run, &init)
	if m.Address.Kind == wire.KindOut {
		zone = broker.ZoneIn
		voided, err := p.Conn.LastDelivery(ctx, broker.ZoneOut, p.subjects.Void(m.Address.Call))
		if err != nil || voided != nil {
			return voided != nil, err // nobody waits for an answer
		}
	}
	last, err := p.Conn.LastDelivery(ctx, zone, subject)
	if err != nil || last != nil {
		return last != nil, err
	}
	return !p.kept(zone, m.Received), nil
}

// messageLost is what a client reads of a run that was lost.
const messageLost = "the store has lost the run after it had begun; what it did until then is not undone"

func (p *pass) runLost(ctx context.Context, agent string, d broker.Delivery, m runner.Message) error {
	f := Finding{Kind: RunLost, Agent: agent, Run: m.Run, What: fmt.Sprintf("%s %d", d.Stream(), d.Sequence()), Action: "ended with state_lost"}
	do := func(ctx context.Context) error {
		_, err := p.Runner.Abandon(ctx, m, core.Ending{Reason: core.ReasonError, Code: sdk.CodeStateLost, Message: messageLost})
		return err
	}
	if p.agents[agent].OnStateLoss == sdk.StateLossRestart {
		f.Action = "restarted"
		do = func(ctx context.Context) error {
			begun, err := p.Runner.Restart(ctx, m)
			if err == nil && begun {
				err = p.Conn.Fire(ctx, agent, m.Address.Run, 0) // no timer is armed yet
			}
			return err
		}
	}
	return p.deal(ctx, f, do)
}

func (p *pass) unreadable(ctx context.Context, agent, run string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !errors.Is(err, runner.ErrCorrupt) && !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		return err // the store, not the run
	}
	return p.deal(ctx, Finding{Kind: RunUnreadable, Agent: agent, Run: run, Problem: err.Error()}, nil)
}
