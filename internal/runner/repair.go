package runner

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/sdk/wire"
)

// Repair carries out again what a run waits for, from its journal as it is now. agent is the token of the run's agent. It
// is for what got lost outside and no message of the run would bring back; repeating it is harmless.
func (r *Runner) Repair(ctx context.Context, agent string, run wire.RunKey) error {
	a, err := r.taken(ctx, agent, run)
	if err != nil {
		return err
	}
	v, err := a.repeat(ctx)
	if err == nil && v.Problem != nil {
		return v.Problem
	}
	return err
}

// RepairSince carries out again what the entries of a run have had published since a time, in Unix milliseconds, and what it waits for: the
// broker has forgotten the end of its streams, and nobody knows which of it. Calls that the journal has closed are left out. Repeating it is
// harmless.
func (r *Runner) RepairSince(ctx context.Context, agent string, run wire.RunKey, since int64) error {
	a, err := r.taken(ctx, agent, run)
	if err != nil {
		return err
	}
	entries, err := a.confirmed(ctx)
	if err != nil {
		return err
	}
	a.entries = entries
	for i, e := range entries {
		if e.At < since {
			continue
		}
		for _, f := range unclosed(e.Effects, waited(entries[i:])) {
			if !f.Published() {
				continue
			}
			if err := a.carryOutAgain(ctx, e, []core.Effect{f}); err != nil {
				return err
			}
		}
	}
	if last := entries[len(entries)-1]; last.Head.Status == core.StatusDone {
		return nil
	}
	return a.carryOutstanding(ctx, entries)
}

// End is the entry that ended the generation of a run with that token, of core.Head.Generations.
func (r *Runner) End(ctx context.Context, run wire.RunKey, generation string) (*core.Entry, error) {
	entries, _, err := r.readAfter(ctx, run, point{})
	if err != nil {
		return nil, err
	}
	return endOf(entries, generation)
}

func endOf(entries []*core.Entry, generation string) (*core.Entry, error) {
	for _, e := range entries {
		if e.Head.Status == core.StatusDone && e.Head.Generation().Token == generation {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w: no entry ended generation %s", ErrCorrupt, generation)
}

// RepairEnd publishes the terminal event of a generation again that another one followed. Repeating it is harmless.
func (r *Runner) RepairEnd(ctx context.Context, agent string, run wire.RunKey, generation string) error {
	a, err := r.taken(ctx, agent, run)
	if err != nil {
		return err
	}
	entries, err := a.confirmed(ctx)
	if err != nil {
		return err
	}
	end, err := endOf(entries, generation)
	if err != nil {
		return err
	}
	return a.carryOutAgain(ctx, end, []core.Effect{{Kind: core.EffectTerminal}})
}

// taken is an activation for what no message asks of a run. ErrNotFound is that the agent has no such run.
func (r *Runner) taken(ctx context.Context, agent string, run wire.RunKey) (*activation, error) {
	m := Message{Address: wire.Address{Agent: agent, Run: run}}
	a := &activation{Runner: r, msg: &m, key: run, owner: r.Env.Random()}
	if err := a.loadHead(ctx); err != nil {
		return nil, err
	}
	if a.head.Status == "" || a.foreign() {
		return nil, fmt.Errorf("run %s of agent %s: %w", run, agent, ErrNotFound)
	}
	return a, a.findAgent(ctx)
}

// confirmed are the run's entries, when the store has confirmed the last of them.
func (a *activation) confirmed(ctx context.Context) ([]*core.Entry, error) {
	if err := a.Store.Barrier(ctx, a.key, a.at.Version); err != nil {
		return nil, fmt.Errorf("confirm run %s: %w", a.key, err)
	}
	return a.durable(ctx)
}

// Restart begins the run of an init event that a worker had handled and that has left no journal: its first entry is made
// as of the time when the event arrived, so that the run ends no later than it would have. The run is driven when the
// event, or a timer, is delivered. begun is false when there is a journal, or when the event was refused.
func (r *Runner) Restart(ctx context.Context, m Message) (begun bool, err error) {
	a, err := r.lost(ctx, m)
	if a == nil || err != nil {
		return false, err
	}
	event, problem, err := a.started(ctx)
	if err != nil {
		return false, err
	}
	if problem != nil {
		return false, a.publishRefusal(ctx, problem)
	}
	in := a.in(event)
	in.At = m.Received
	change, err := core.Step(a.agent.Core, a.head, in)
	if err != nil {
		return false, err
	}
	return a.begin(ctx, change)
}

// Abandon ends the run of an init event that a worker had handled and that has left no journal, with an error event. The
// journal that it gets has one entry, which ends it, so that whatever else still arrives for the run finds it done.
// ended is false when there is a journal.
func (r *Runner) Abandon(ctx context.Context, m Message, e core.Ending) (ended bool, err error) {
	a, err := r.lost(ctx, m)
	if a == nil || err != nil {
		return false, err
	}
	if err := a.putSpec(ctx); err != nil {
		return false, err
	}
	in := a.in(core.Started{Run: m.Run, Init: a.init()})
	in.At = m.Received
	begun, err := core.Step(a.agent.Core, a.head, in)
	if err != nil {
		return false, err
	}
	ending, err := core.Step(a.agent.Core, begun.Head, a.in(core.Ended{Ending: e}))
	if err != nil {
		return false, err
	}
	return a.begin(ctx, ending)
}

// lost returns an activation for an init event without a journal; nil if there is one, or none can come of it.
func (r *Runner) lost(ctx context.Context, m Message) (*activation, error) {
	if m.Unread != nil {
		return nil, nil //nolint:nilerr // it is about the message, which is a dead letter
	}
	a := &activation{Runner: r, msg: &m, key: m.Address.Run, owner: r.Env.Random()}
	if err := a.loadHead(ctx); err != nil {
		return nil, err
	}
	if a.head.Status != "" {
		return nil, nil
	}
	return a, a.findAgent(ctx)
}

// begin commits the first entry of a run and carries out its effects. It reports false when somebody else was first.
func (a *activation) begin(ctx context.Context, change core.Change) (bool, error) {
	entry, _, err := a.appendEntry(ctx, point{}, change)
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	a.announce(entry)
	return true, a.carryOut(ctx, entry, entry.Effects)
}
