package reconcile

import (
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
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Over reports whether a run has been done for so long, now being in Unix milliseconds, that nobody makes or gives up its calls again.
func Over(e *core.Entry, kept time.Duration, now int64) bool {
	return e.Head.Status == core.StatusDone && now-e.At >= kept.Milliseconds()
}

// Clear removes what runs that have ended leave on the broker and nobody needs: their calls and the voids of these, of each run by one
// request, and the timers that have fired, of each agent by one. It reads the heads of the runs that have calls there.
//
// It may be interrupted anywhere and made by several at once: what there is to do is found on the broker, and nothing published meanwhile
// is removed, because a run whose head says that it is done had published all that it had by then.
func Clear(ctx context.Context, o Options) (Report, error) {
	p := newPass(o)
	if p.Calls == 0 {
		return p.report, nil
	}
	for _, step := range []func(context.Context) error{p.right, p.survey, p.over, p.fired} {
		err := step(ctx)
		if errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			return p.report, p.deal(ctx, Finding{Kind: CallsKept, Problem: err.Error() + unpermitted}, nil)
		}
		if err != nil {
			return p.report, fmt.Errorf("clear: %w", err)
		}
	}
	return p.report, nil
}

// unpermitted is what to do about a user who may not remove anything.
const unpermitted = ": give workers the rights that `agentd nats-config` prints, or set retention.calls to 0, which keeps calls as long as their stream does"

// forgetting removes the messages of a stream on a filter, up to a sequence.
type forgetting = func(ctx context.Context, filter string, through uint64) error

// over removes the calls of runs that have ended.
func (p *pass) over(ctx context.Context) error {
	forget := map[streams.Zone]forgetting{}
	for _, z := range p.layout.Zones(streams.Out) {
		var err error
		if forget[z], err = p.Conn.Forgetting(ctx, z); err != nil {
			return err
		}
	}
	x := newListing(p)
	for n := range partitions {
		partition := fmt.Sprintf("%03d", n)
		calls, err := x.of(ctx, wire.KindOut, partition)
		if err != nil {
			return err
		}
		voids, err := x.of(ctx, wire.KindVoid, partition)
		if err != nil {
			return err
		}
		tokens := maps.Clone(voids)
		if tokens == nil {
			tokens = map[string][]string{}
		}
		maps.Copy(tokens, calls)
		for _, token := range slices.Sorted(maps.Keys(tokens)) {
			if err := p.clear(ctx, wire.RunKey{Partition: partition, Token: token}, calls[token], voids[token], forget); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear removes the calls of a run, if it has ended.
func (p *pass) clear(ctx context.Context, run wire.RunKey, calls, voids []string, forget map[streams.Zone]forgetting) error {
	last, err := p.Store.Head(ctx, run)
	if errors.Is(err, runner.ErrNotFound) || errors.Is(err, runner.ErrCorrupt) {
		return nil // passes over runs say so
	}
	if err != nil {
		return err
	}
	e, err := core.DecodeEntry(last.Data)
	if err != nil || !Over(&e, p.Calls, p.now.UnixMilli()) {
		return nil //nolint:nilerr // an entry that cannot be read here is looked after by others
	}
	if refilled, err := p.refilled(ctx, &e); err != nil || !refilled {
		return err
	}
	z := p.layout.OfRun(streams.Out, run)
	if needed, err := p.needed(ctx, &e, z, calls, voids); err != nil || needed {
		return err
	}
	if !p.DryRun {
		if err := p.notePurged(ctx); err != nil {
			return err
		}
		filter := fmt.Sprintf("%s.*.*.*.%s.%s.%s.>", p.subjects.Root(), wire.NameToken(e.Head.Agent), run.Partition, run.Token)
		// The end of the stream was read before the head: what was published later is of a run that was taken up again.
		if err := forget[z](ctx, filter, p.states[z].Last); err != nil {
			return err
		}
	}
	p.report.Cleared++
	return nil
}

// refilled reports whether nothing is missing on the broker that a run has had published lately. After a restart of the server a void may be
// missing whose call is there: who has that call in hand is told before it is removed.
func (p *pass) refilled(ctx context.Context, e *core.Entry) (bool, error) {
	here := p.Conn.Server()
	if here == "" {
		return true, nil
	}
	token := wire.NameToken(e.Head.Agent)
	seen, ok := p.refilledTo[token]
	if !ok {
		var err error
		if seen, err = p.Conn.Refilled(ctx, token); err != nil {
			return false, err
		}
		p.refilledTo[token] = seen
	}
	return seen.Server == here || e.At < since(seen, p.now).UnixMilli(), nil
}

// notePurged notes, once a pass, whose calls it removes.
func (p *pass) notePurged(ctx context.Context) error {
	if p.noted {
		return nil
	}
	if err := p.Conn.NotePurged(ctx, p.now.Add(-p.Calls).UnixMilli()); err != nil {
		return err
	}
	p.noted = true
	return nil
}

// needed reports whether somebody is not through with what has to do with the end of a run: the message that it ended with, an agent that it
// called, or whoever was told that a call is given up. Of all else its absence says as much. The run's calls are on the stream of z.
func (p *pass) needed(ctx context.Context, e *core.Entry, z streams.Zone, calls, voids []string) (bool, error) {
	// A stream that was made anew does not have the message.
	if zone, ok := p.zoneOf(e.Cause.Stream); ok && e.Cause.Sequence <= p.states[zone].Last {
		readers, err := p.readersOf(ctx, zone)
		if err != nil {
			return false, err
		}
		ref := streams.AgentConsumers(e.Head.Agent)[0] // they have one name on all streams
		for i := range readers {
			if readers[i].Name == ref.Name && !p.through(&readers[i], e.Cause.Sequence, e.At) {
				return true, nil
			}
		}
	}
	readers, err := p.readersOf(ctx, z)
	if err != nil {
		return false, err
	}
	sequences := map[string]uint64{}
	for i := range readers {
		r, read := &readers[i], voids
		if r.OfAgent() {
			read = slices.Concat(calls, voids)
		}
		for _, subject := range read {
			if !r.Reads(subject) {
				continue
			}
			if sequences[subject] == 0 {
				// One that is gone meanwhile has sequence 0, which all are through with.
				if last, err := p.Conn.LastDelivery(ctx, streams.Out, subject); err != nil {
					return false, err
				} else if last != nil {
					sequences[subject] = last.Sequence()
				}
			}
			if !p.through(r, sequences[subject], e.At) {
				return true, nil
			}
		}
	}
	return false, nil
}

// through reports whether the readers of a consumer are done with all up to a sequence, or will never be: it was stored before that time.
func (p *pass) through(r *broker.Reader, sequence uint64, before int64) bool {
	stale := sequence <= r.Delivered && before < p.now.Add(-settledAfter).UnixMilli()
	return stale || r.All(sequence)
}

// readersOf are the consumers of a zone, as they were when they were first asked for: they are further by now.
func (p *pass) readersOf(ctx context.Context, z streams.Zone) ([]broker.Reader, error) {
	if readers, ok := p.readers[z]; ok {
		return readers, nil
	}
	readers, err := p.Conn.Readers(ctx, z)
	if err == nil {
		p.readers[z] = readers
	}
	return readers, err
}

// fired removes the timers that have fired and that workers have dealt with: a run never needs one again.
func (p *pass) fired(ctx context.Context) error {
	for _, z := range p.layout.Zones(streams.Timer) {
		if err := p.firedIn(ctx, z); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) firedIn(ctx context.Context, z streams.Zone) error {
	readers, err := p.readersOf(ctx, z)
	if err != nil {
		return err
	}
	forget, err := p.Conn.Forgetting(ctx, z)
	if err != nil {
		return err
	}
	fires := p.subjects.All(wire.KindFire)
	for i := range readers {
		r := &readers[i]
		through := r.Floor
		if r.Pending == 0 {
			through = r.Delivered
		}
		if through == 0 || p.DryRun || !r.OfAgent() || len(r.Filters) != 1 || !broker.Under(r.Filters[0], fires) {
			continue
		}
		if err := forget(ctx, r.Filters[0], through); err != nil {
			return err
		}
	}
	return nil
}
