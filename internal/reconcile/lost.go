package reconcile

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// lostRuns examines the init events of clients.
func (p *pass) lostRuns(ctx context.Context) error { return p.scan(ctx, streams.Start, p.inits) }

// inits are where clients start runs of an agent.
func (p *pass) inits(token string, _ sdk.AgentSpec) []string {
	start := p.subjects.Start(token)
	return []string{start, start + ".*"}
}

// lostDelegations examines calls of agents by agents.
func (p *pass) lostDelegations(ctx context.Context) error {
	for _, z := range p.layout.Zones(streams.Out) {
		if err := p.scan(ctx, z, p.delegations); err != nil {
			return err
		}
	}
	return nil
}

// delegations are where other agents start runs of an agent.
func (p *pass) delegations(_ string, a sdk.AgentSpec) []string {
	return []string{fmt.Sprintf("%s.%s.*.%s.>", p.subjects.Root(), wire.KindOut, wire.NameToken(a.Contract.Type))}
}

// starting is a message that starts a run, and what came of looking for the run.
type starting struct {
	d    broker.Delivery
	m    runner.Message
	last runner.Record
	head error
}

// headsAtOnce is how many runs are looked for at a time: there are as many messages that started one as runs.
const headsAtOnce = 16

// scan examines the messages of a zone that start runs of each agent, up to the first that is too young.
func (p *pass) scan(ctx context.Context, z streams.Zone, filters func(token string, a sdk.AgentSpec) []string) error {
	for token, a := range p.agents {
		// What workers have handled is asked before whether there is a run: one that begins meanwhile is not lost.
		if _, err := p.consumed(ctx, z, token); err != nil {
			return err
		}
		// One filter each: permissions can say which filter somebody may read, but not which several.
		for _, filter := range filters(token, a) {
			var some []starting
			var failed error
			err := p.Conn.DeliveriesSince(ctx, z, []string{filter}, time.UnixMilli(p.since), func(d broker.Delivery) bool {
				if p.young(d.Received()) {
					return false
				}
				p.report.Inits++
				if m, starts := p.starts(d); starts {
					some = append(some, starting{d: d, m: m})
				}
				if len(some) == page {
					failed = p.started(ctx, z, token, some)
					some = some[:0]
				}
				return failed == nil
			})
			if err == nil && failed == nil {
				failed = p.started(ctx, z, token, some)
			}
			if err = errors.Join(err, failed); err != nil {
				return err
			}
		}
	}
	return nil
}

// starts reports whether a message starts a run.
func (p *pass) starts(d broker.Delivery) (runner.Message, bool) {
	m, err := p.Decode(d)
	if err != nil {
		p.Logger.Debug("message cannot be read; it is a dead letter, or becomes one", "subject", d.Subject(), "error", err)
		return m, false
	}
	return m, !core.IsQuestion(m.Address, m.Event) // which is asked of a run that has begun otherwise
}

// atOnce calls look with each number below n, headsAtOnce of them at a time.
func atOnce(n int, look func(i int)) {
	var looking sync.WaitGroup
	for first := range min(n, headsAtOnce) {
		looking.Go(func() {
			for i := first; i < n; i += headsAtOnce {
				look(i)
			}
		})
	}
	looking.Wait()
}

// started examines some messages that start runs.
func (p *pass) started(ctx context.Context, z streams.Zone, agent string, some []starting) error {
	atOnce(len(some), func(i int) { some[i].last, some[i].head = p.Store.Head(ctx, some[i].m.Address.Run) })
	for i := range some {
		if err := p.init(ctx, z, agent, &some[i]); err != nil {
			return err
		}
	}
	return nil
}

// init examines one message that starts a run.
func (p *pass) init(ctx context.Context, z streams.Zone, agent string, s *starting) error {
	d, m, err := s.d, s.m, s.head
	if errors.Is(err, runner.ErrNotFound) { // or it has begun meanwhile: another of these messages may have been the same run's
		s.last, err = p.Store.Head(ctx, m.Address.Run)
	}
	if err == nil { // a run of that name had begun
		return p.changed(ctx, m.Address.Run, s.last)
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
	zone, subject := streams.Done, outbox.TerminalSubject(p.subjects, m.Address.Agent, m.Address.Run, &init)
	if m.Address.Kind == wire.KindOut {
		zone = streams.In
		voided, err := p.Conn.LastDelivery(ctx, streams.Out, p.subjects.Void(m.Address.Call))
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
	if err := p.right(ctx); err != nil {
		return err
	}
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
