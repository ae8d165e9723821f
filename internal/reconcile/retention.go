package reconcile

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/internal/broker/streams"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state"
)

// tombstoneMargin is how much longer a tombstone lasts than any message that could be delivered again or redriven.
const tombstoneMargin = 7 * 24 * time.Hour

// retain removes the history of a run that has been done for long enough, and its tombstone when nothing can arrive for it
// any more. What stays is noted for the store to archive.
func (p *pass) retain(ctx context.Context, s runner.StoredRun, e *core.Entry) error {
	if p.History == 0 {
		p.cool(s, e)
		return nil
	}
	ended := time.UnixMilli(e.At)
	var err error
	switch {
	case e.Head.Purged == nil && p.now.Sub(ended) > p.History:
		if err = p.purge(ctx, s, e); err == nil {
			p.report.Purged++
			err = p.withdraw(e)
		}
	case e.Head.Purged != nil && p.outlived(e):
		if err = p.remove(ctx, s); err == nil {
			p.report.Removed++
		}
	default:
		p.cool(s, e)
	}
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return p.deal(ctx, Finding{Kind: HistoryKept, Agent: e.Head.Agent, Run: e.Head.Run, Problem: err.Error()}, nil)
	}
	return nil
}

// outlived reports whether no message of the run can be delivered any more: none is kept that long.
func (p *pass) outlived(e *core.Entry) bool {
	var longest time.Duration
	for _, whole := range []streams.Zone{streams.Start, streams.In, streams.Out, streams.DLQ} {
		for _, z := range p.layout.Zones(whole) {
			age := p.states[z].MaxAge
			if age == 0 {
				return false // messages are kept for ever, so the tombstone is
			}
			longest = max(longest, age)
		}
	}
	return p.now.Sub(time.UnixMilli(max(e.At, e.Head.Deadline))) > longest+tombstoneMargin
}

func (p *pass) purge(ctx context.Context, s runner.StoredRun, e *core.Entry) error {
	if p.DryRun {
		return nil
	}
	return moved(purge(ctx, p.Store, s, e, p.Runner.Env.Random(), p.now), "purge")
}

// purge puts a tombstone in the place of a run's history; etag is the tombstone's.
func purge(ctx context.Context, store state.Store, s runner.StoredRun, e *core.Entry, etag string, now time.Time) error {
	tombstone, err := core.Tombstone(e, core.Digest(s.Last.Data), etag, now.UnixMilli())
	if err != nil {
		return err
	}
	data, err := tombstone.Encode()
	if err != nil {
		return err
	}
	keep := runner.Record{Version: runner.Version{Rev: tombstone.Rev, Etag: tombstone.Etag}, Data: data}
	// A second time with the same tombstone: the first one's answer may have been lost, or it may have stopped half-way.
	for range 2 {
		if _, err = store.Purge(ctx, s.Run, s.Last.Version, keep); !errors.Is(err, runner.ErrAmbiguous) {
			break
		}
	}
	return err
}

func (p *pass) remove(ctx context.Context, s runner.StoredRun) error {
	if p.DryRun {
		return nil
	}
	return moved(p.Store.Remove(ctx, s.Run, s.Last.Version), "remove")
}

// moved passes over what another worker has done meanwhile.
func moved(err error, doing string) error {
	if err == nil || errors.Is(err, runner.ErrConflict) || errors.Is(err, runner.ErrNotFound) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
