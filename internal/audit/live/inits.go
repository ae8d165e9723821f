package live

import (
	"context"
	"errors"
	"time"

	"agentd/internal/audit"
	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// inits checks that every settled init event has a run of its own, or was answered, or is a dead letter. What becomes of
// the runs is seen from their journals.
func (a *Auditor) inits(ctx context.Context, since time.Time, found func(Violation) error) error {
	from := uint64(0)
	if !since.IsZero() {
		var err error
		if from, err = a.conn.SequenceAt(ctx, streams.Start, since); err != nil {
			return err
		}
	}
	return a.conn.Scan(ctx, streams.Start, a.conn.Subjects().All(wire.KindStart), from, func(m broker.Stored) (bool, error) {
		violations, err := a.init(ctx, m)
		for _, v := range violations {
			if err := found(Violation{Violation: v}); err != nil {
				return false, err
			}
		}
		return err == nil, err
	})
}

func (a *Auditor) init(ctx context.Context, m broker.Stored) ([]audit.Violation, error) {
	a.Inits++
	subjects := a.conn.Subjects()
	checker := audit.New(subjects)
	in := message(subjects, m)
	checker.Input(in)
	address, err := subjects.Parse(m.Subject)
	consumer := streams.ConsumerRef{Zone: streams.Start, Name: streams.UnroutedConsumer}
	if err == nil {
		agents := streams.AgentConsumers(address.Agent)[0]
		exists, err := a.conn.HasConsumer(ctx, agents)
		if err != nil {
			return nil, err
		}
		if exists {
			consumer = agents
		}
	}
	floor, err := a.floor(ctx, consumer)
	if err != nil || m.Sequence > floor {
		if err == nil {
			a.Unsettled++
		}
		return nil, err
	}
	settled, err := a.answered(ctx, checker, address.Agent, in)
	if err != nil || settled {
		return nil, err
	}
	reason, err := a.conn.DeadLettered(ctx, m.Stream, m.Sequence)
	if err != nil {
		return nil, err
	}
	if reason != "" {
		checker.DeadLettered(m.Stream, m.Sequence, reason)
	}
	checker.Removed(m.Stream, m.Sequence)
	return checker.Violations(), nil
}

// startedBy reports whether the init event started the run with that last entry. One that cannot be read is reported by
// the audit of the run.
func startedBy(last runner.Record, token string) bool {
	entry, err := core.DecodeEntry(last.Data)
	return err != nil || entry.Head.Init.Token == token
}

// answered reports whether the init event started its run; if not, it tells the checker what the event was answered.
func (a *Auditor) answered(ctx context.Context, checker *audit.Checker, agent string, in audit.Message) (bool, error) {
	if in.Event == nil {
		return false, nil
	}
	token := wire.InitToken(in.Event.Source, in.Event.ID)
	name := in.Event.Subject
	if name == "" {
		name = wire.DefaultSubject(token)
	}
	key := wire.NewRunKey(name)
	last, err := a.store.Head(ctx, key)
	switch {
	case err == nil && startedBy(last, token), errors.Is(err, runner.ErrCorrupt):
		return true, nil
	case err == nil:
	case !errors.Is(err, runner.ErrNotFound):
		return false, err
	}
	m, err := a.conn.Last(ctx, a.conn.Subjects().Done(agent, key, token))
	if errors.Is(err, broker.ErrNotStored) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	event, err := wire.DecodeEvent(m.Headers, m.Data)
	if err == nil {
		a.Events++
		checker.Published(m.Subject, event, m.Data)
	}
	return false, nil
}
