package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// page is how many runs are read at once: each comes with its last entry.
const page = 64

// partitions is how many there are; each is the first byte of a hash.
const partitions = 256

// known is what calls of a run are compared with.
type known struct {
	status core.Status
	step   int
	calls  []string
	// round says that a round is open, so that calls has all of its calls.
	round, young bool
}

// runs examines all runs in the store, partition after partition, and after each one the calls that its runs have on the
// broker.
func (p *pass) runs(ctx context.Context) error {
	x := newListing(p)
	next := 0
	runs := map[string]known{}
	closeTo := func(partition int) error {
		for ; next < partition; next++ {
			if p.Everything {
				if err := p.orphans(ctx, x, fmt.Sprintf("%03d", next), runs); err != nil {
					return err
				}
			}
			clear(runs)
		}
		return nil
	}
	for cursor := ""; ; {
		stored, after, err := p.Store.Runs(ctx, cursor, page)
		if err != nil {
			return err
		}
		for _, s := range stored {
			var partition int
			if _, err := fmt.Sscanf(s.Run.Partition, "%d", &partition); err != nil {
				return fmt.Errorf("partition of run %s: %w", s.Run, err)
			}
			if err := closeTo(partition); err != nil {
				return err
			}
			p.report.Runs++
			if runs[s.Run.Token], err = p.run(ctx, x, s); err != nil {
				return err
			}
		}
		if err := p.archive(ctx); err != nil {
			return err
		}
		if cursor = after; cursor == "" {
			return closeTo(partitions)
		}
	}
}

// run examines one run.
func (p *pass) run(ctx context.Context, x belongings, s runner.StoredRun) (known, error) {
	k := known{young: true}
	if s.Last.Data == nil { // it cannot be opened with the keys that are configured here
		_, err := p.Store.Head(ctx, s.Run)
		if err != nil {
			err = p.unreadable(ctx, "", s.Run.String(), err)
		}
		return k, err
	}
	entry, err := core.DecodeEntry(s.Last.Data)
	if errors.Is(err, core.ErrLaterLayout) {
		return k, nil // its own workers look after it
	}
	if err != nil {
		return k, p.deal(ctx, Finding{Kind: RunUnreadable, Run: s.Run.String(), Problem: err.Error()}, nil)
	}
	k = known{status: entry.Head.Status, step: entry.Head.Round, round: entry.Head.RoundOpen(), young: p.young(entry.At)}
	for _, c := range entry.Head.Calls {
		k.calls = append(k.calls, c.ID)
	}
	if k.young {
		if entry.Head.Status != core.StatusDone {
			p.report.Young++
		}
		return k, p.leave(ctx, &entry)
	}
	missing := false
	if _, mine := p.agents[wire.NameToken(entry.Head.Agent)]; mine {
		if missing, err = p.examine(ctx, x, s.Run, &entry); err != nil {
			return k, err
		}
		if err := p.document(ctx, x, s.Run, &entry); err != nil {
			return k, err
		}
	}
	if p.Everything && entry.Head.Status == core.StatusDone && !missing {
		err = p.retain(ctx, s, &entry)
	}
	return k, err
}

// examine looks for what a run of one of the agents misses, and reports whether it is its terminal event.
func (p *pass) examine(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) (bool, error) {
	missing, err := p.formerEnds(ctx, x, run, e)
	if err != nil {
		return missing, err
	}
	switch e.Head.Status {
	case core.StatusRunning:
		return missing, p.stalled(ctx, run, e)
	case core.StatusWaiting:
		if coming, err := p.answers(ctx, x, run, e); err != nil || coming {
			return missing, err // what the run makes of these may need neither its timer nor its calls: the next pass sees
		}
		return missing, errors.Join(p.timer(ctx, x, run, e), p.calls(ctx, x, run, e))
	case core.StatusDone:
		last, err := p.terminal(ctx, x, run, e)
		return missing || last, err
	}
	return missing, nil
}

func found(kind Kind, e *core.Entry, what, action string) Finding {
	return Finding{Kind: kind, Agent: e.Head.Agent, Run: e.Head.Run, What: what, Action: action}
}

// repair has the runner carry out again what the run waits for.
func (p *pass) repair(run wire.RunKey, e *core.Entry) func(context.Context) error {
	return func(ctx context.Context) error { return p.Runner.Repair(ctx, wire.NameToken(e.Head.Agent), run) }
}

// stalled wakes a running run whose driving message is gone. The message is a fired timer, which takes the run over when
// its driver has been silent for longer than any step may take, and changes nothing of importance otherwise.
func (p *pass) stalled(ctx context.Context, run wire.RunKey, e *core.Entry) error {
	d := e.Head.Driver
	agent := wire.NameToken(e.Head.Agent)
	zone, ok := p.zoneOf(d.Stream)
	young := p.young(d.Since)
	if !ok || young && p.refillFrom == nil { // who refills does not come back for it
		return nil
	}
	gone, err := p.replaced(ctx, zone, d)
	if err == nil && !gone && !young {
		gone, err = p.handled(ctx, zone, agent, d.Sequence, d.Since)
	}
	if err != nil || !gone {
		return err
	}
	if waits, err := p.willFire(ctx, agent, run); err != nil || waits {
		return err
	}
	f := found(RunStalled, e, fmt.Sprintf("%s %d", d.Stream, d.Sequence), "woken")
	return p.deal(ctx, f, func(ctx context.Context) error { return p.Conn.Fire(ctx, agent, run, e.Head.Timer) })
}

// replaced reports whether the stream does not have the message any more whose delivery covers a run: it was set back to an older copy, and has
// none, or another, under its sequence.
func (p *pass) replaced(ctx context.Context, zone streams.Zone, d *core.Driver) (bool, error) {
	m, err := p.Conn.At(ctx, zone, d.Sequence)
	if errors.Is(err, broker.ErrNotStored) {
		return true, nil
	}
	if err != nil || d.EventID == "" {
		return false, err
	}
	id := m.Subject // of a timer
	if a, err := p.subjects.Parse(m.Subject); err != nil || a.Kind != wire.KindFire {
		ev, err := wire.DecodeEvent(m.Headers, m.Data)
		if err != nil {
			return false, nil //nolint:nilerr // an init event that its sender alone identifies
		}
		id = ev.ID
	}
	return id != d.EventID, nil
}

func (p *pass) zoneOf(stream string) (streams.Zone, bool) {
	for z := range p.states {
		if streams.Name(p.subjects, z) == stream {
			return z, true
		}
	}
	return "", false
}

// willFire reports whether a fired timer of the run waits to be handled.
func (p *pass) willFire(ctx context.Context, agent string, run wire.RunKey) (bool, error) {
	last, err := p.Conn.LastDelivery(ctx, streams.Timer, p.subjects.Fire(agent, run))
	if err != nil || last == nil {
		return false, err
	}
	handled, err := p.handledDelivery(ctx, agent, last)
	return !handled, err
}

// timer finds a run whose timer is not armed, or should have fired.
func (p *pass) timer(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) error {
	armed, err := x.runOf(ctx, wire.KindTimer, run)
	if err != nil || len(armed) > 0 && p.young(e.Head.Timer) {
		return err
	}
	agent := wire.NameToken(e.Head.Agent)
	if waits, err := p.willFire(ctx, agent, run); err != nil || waits {
		return err
	}
	return p.deal(ctx, found(TimerLost, e, p.subjects.Timer(agent, run), "armed again"), p.repair(run, e))
}

// calls finds a run whose calls are not on the broker.
func (p *pass) calls(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) error {
	sent, err := x.runOf(ctx, wire.KindOut, run)
	if err != nil {
		return err
	}
	var missing []string
	for i := range e.Head.Calls {
		c := &e.Head.Calls[i]
		if !c.Awaited() || c.RetryAt > 0 {
			continue // where there is a time for the next attempt, the one before is over
		}
		for _, at := range c.Addresses(&e.Head) {
			if subject := p.subjects.Call(at); !slices.Contains(sent, subject) && !slices.Contains(missing, subject) {
				missing = append(missing, subject)
			}
		}
	}
	for i, subject := range missing {
		do := p.repair(run, e)
		if i > 0 {
			do = func(context.Context) error { return nil } // the first one repaired the run as a whole
		}
		if err := p.deal(ctx, found(CallLost, e, subject, "sent again"), do); err != nil {
			return err
		}
	}
	return nil
}

// terminal finds a done run whose terminal event is not there.
func (p *pass) terminal(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) (bool, error) {
	generation := e.Head.Generation()
	if e.Head.Purged != nil || !p.kept(zoneOfEnd(&generation), e.At) {
		return false, nil // where it is not kept, it was there for as long as it had to be
	}
	subject := outbox.TerminalSubject(p.subjects, e.Head.Agent, run, &generation)
	if there, err := p.ends(ctx, x, run, zoneOfEnd(&generation), subject); err != nil || there {
		return false, err
	}
	return true, p.deal(ctx, found(TerminalLost, e, subject, "published again"), p.repair(run, e))
}

// formerEnds finds the generations of a run that others followed, and whose terminal events are not there.
func (p *pass) formerEnds(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) (missing bool, err error) {
	generations := e.Head.Generations()
	if e.Head.Purged != nil || len(generations) == 1 {
		return false, nil
	}
	for _, token := range generations[:len(generations)-1] {
		init := e.Head.Init
		if token != init.Token {
			init.Token, init.Reply = token, nil
		}
		zone, subject := zoneOfEnd(&init), outbox.TerminalSubject(p.subjects, e.Head.Agent, run, &init)
		if there, err := p.ends(ctx, x, run, zone, subject); err != nil || there {
			if err != nil {
				return missing, err
			}
			continue
		}
		end, err := p.Runner.End(ctx, run, token)
		if err != nil {
			return missing, p.unreadable(ctx, e.Head.Agent, e.Head.Run, err)
		}
		if !p.kept(zone, end.At) {
			continue
		}
		missing = true
		err = p.deal(ctx, found(TerminalLost, e, subject, "published again"), func(ctx context.Context) error {
			return p.Runner.RepairEnd(ctx, wire.NameToken(e.Head.Agent), run, token)
		})
		if err != nil {
			return missing, err
		}
	}
	return missing, nil
}

// zoneOfEnd is where the terminal event of the generation with that init event belongs.
func zoneOfEnd(init *core.Init) streams.Zone {
	if init.Reply != nil {
		return streams.In
	}
	return streams.Done
}

// ends reports whether a terminal event is on its subject.
func (p *pass) ends(ctx context.Context, x belongings, run wire.RunKey, zone streams.Zone, subject string) (bool, error) {
	if zone == streams.Done {
		there, err := x.runOf(ctx, wire.KindDone, run)
		return slices.Contains(there, subject), err
	}
	last, err := p.Conn.LastDelivery(ctx, zone, subject) // in the caller's partition
	return last != nil, err
}
