package reconcile

import (
	"context"
	"fmt"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/sdk/wire"
)

const (
	// maxAnswers bounds how many messages on one reply subject are looked at.
	maxAnswers = 32
	// maxCopies is how often an answer is delivered again before that is given up.
	maxCopies = 3
)

// answers finds answers to open calls that were handled and that the run does not know: its journal was set back to before
// them. It reports whether the run has yet to be brought one that it does not know.
func (p *pass) answers(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) (coming bool, err error) {
	received, err := x.runOf(ctx, wire.KindIn, run)
	if err != nil || len(received) == 0 {
		return false, err
	}
	awaited := map[string]*core.Call{}
	for i := range e.Head.Calls {
		if c := &e.Head.Calls[i]; c.Awaited() {
			awaited[c.Event()] = c
		}
	}
	var absorbed map[uint64]bool
	for _, subject := range received {
		address, err := p.subjects.Parse(subject)
		if err != nil {
			continue // nothing that a worker reads
		}
		ref, ok := wire.ParseCallRef(address.Call.Call)
		if c := awaited[ref.ID]; !ok || c == nil || ref.Attempt <= c.Voided {
			continue
		}
		if absorbed == nil {
			if absorbed, err = p.absorbed(ctx, run); err != nil {
				return false, p.unreadable(ctx, e.Head.Agent, e.Head.Run, err)
			}
		}
		comes, err := p.answer(ctx, subject, absorbed, e)
		if err != nil {
			return coming, err
		}
		coming = coming || comes
	}
	return coming, nil
}

// absorbed are the answers that the run's journal knows, by their sequence in the stream of answers: all are on one.
func (p *pass) absorbed(ctx context.Context, run wire.RunKey) (map[uint64]bool, error) {
	entries, err := p.Runner.Journal(ctx, run)
	if err != nil {
		return nil, err
	}
	ours := map[string]bool{}
	for _, z := range p.layout.Zones(streams.In) {
		ours[streams.Name(p.subjects, z)] = true
	}
	known := map[uint64]bool{}
	for i := range entries {
		if c := entries[i].Cause; ours[c.Stream] {
			known[c.Sequence] = true
		}
	}
	return known, nil
}

// answer delivers the answers on one subject again that are dealt with neither themselves nor as a copy. It reports whether workers have one
// of them before them.
func (p *pass) answer(ctx context.Context, subject string, absorbed map[uint64]bool, e *core.Entry) (coming bool, err error) {
	agent := wire.NameToken(e.Head.Agent)
	var originals []broker.Delivery
	settled, copies := map[uint64]bool{}, map[uint64]int{}
	for from, n := uint64(1), 0; n < maxAnswers; n++ {
		d, err := p.Conn.NextDelivery(ctx, streams.In, subject, from)
		if err != nil {
			return coming, err
		}
		if d == nil {
			break
		}
		from = d.Sequence() + 1
		of := broker.Original(d)
		if of == 0 {
			of = d.Sequence()
			originals = append(originals, d)
		} else {
			copies[of]++
		}
		if !settled[of] {
			var unread bool
			if settled[of], unread, err = p.settledAnswer(ctx, agent, d, absorbed); err != nil {
				return coming, err
			}
			coming = coming || unread
		}
	}
	for _, d := range originals {
		if settled[d.Sequence()] {
			continue
		}
		f := found(AnswerLost, e, fmt.Sprintf("%s (%s %d)", subject, d.Stream(), d.Sequence()), "delivered again")
		do := func(ctx context.Context) error { return p.Conn.Redeliver(ctx, d) }
		if copies[d.Sequence()] >= maxCopies {
			f.Action, f.Problem, do = "", fmt.Sprintf("it was delivered again %d times, and the run did not take it", maxCopies), nil
		}
		if err := p.deal(ctx, f, do); err != nil {
			return coming, err
		}
		coming = coming || do != nil
	}
	return coming, nil
}

// settledAnswer reports whether the run knows a message, will see it, or has refused it; unread that it will see it.
func (p *pass) settledAnswer(ctx context.Context, agent string, d broker.Delivery, absorbed map[uint64]bool) (settled, unread bool, err error) {
	if absorbed[d.Sequence()] {
		return true, false, nil
	}
	handled, err := p.handledDelivery(ctx, agent, d)
	if err != nil || handled && p.young(d.Received()) {
		return true, false, err
	}
	refused, err := p.deadLettered(ctx, d)
	return refused || !handled, !handled && !refused, err
}
