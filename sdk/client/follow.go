package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// followBuffer is how many live events wait for whoever follows; what is more is asked for later.
	followBuffer = 256
	// askAgain is the pause after a question about a run that no worker answered.
	askAgain = time.Second
)

// Following listens to a run. Live events are lossy: the milestones that it missed, it asks for.
type Following struct {
	c      *Client
	run    Run
	events chan wire.Live
	// held was taken from events, and comes later than what was told.
	held *wire.Live
	// missed has a token when events may have been dropped.
	missed chan struct{}
	// refused has the error of live events that do not come.
	refused chan error
	stop    func() error
}

// Listen listens to a run from now on, whether it exists or is about to be started; Following.Events tells what happens. The
// caller closes it.
func (c *Client) Listen(run Run) (*Following, error) {
	if err := run.check(); err != nil {
		return nil, err
	}
	f := &Following{
		c: c, run: run, events: make(chan wire.Live, followBuffer), missed: make(chan struct{}, 1), refused: make(chan error, 1),
	}
	stop, err := c.conn.WatchLive(run.Agent, run.key(), func(l wire.Live) {
		select {
		case f.events <- l:
		default:
			f.Missed()
		}
	}, f.lacks)
	if err = coded(context.Background(), err); err != nil {
		return nil, fmt.Errorf("listen to run %s: %w", run.Name, err)
	}
	f.Missed() // what is between the mark and now
	f.stop = sync.OnceValue(stop)
	return f, nil
}

// listen is Listen, again and again while the broker is away.
func (c *Client) listen(ctx context.Context, run Run) (*Following, error) {
	for {
		f, err := c.Listen(run)
		if !isUnavailable(err) {
			return f, err
		}
		if err := retry.Sleep(ctx, askAgain); err != nil {
			return nil, fmt.Errorf("listen to run %s: %w", run.Name, err)
		}
	}
}

// Close ends listening. It may be repeated.
func (f *Following) Close() error { return f.stop() }

// Missed makes it ask for what it has not seen.
func (f *Following) Missed() {
	select {
	case f.missed <- struct{}{}:
	default: // it is known already
	}
}

// Follow yields every milestone of a run after the mark, each once and in order, and the ephemeral events (fragments of
// replies, progress) as they come, some of which may be lost. It ends after the run's end. Whoever was interrupted goes on with
// the mark of the last milestone. The error, after which it ends too, is the context's, sdk.CodeUnknownRun for a run whose history was
// removed, sdk.CodePermissionDenied for one that the client may not see, sdk.CodeUnavailable after Close, or what else no further question
// would mend; while workers, or what they need, are away, it waits.
func (c *Client) Follow(ctx context.Context, run Run, after wire.Mark) iter.Seq2[wire.Live, error] {
	return func(yield func(wire.Live, error) bool) {
		f, err := c.listen(ctx, run)
		if err != nil {
			yield(wire.Live{}, err)
			return
		}
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		wanted := true
		err = f.Events(ctx, after, func(l wire.Live) {
			if wanted && !yield(l, nil) {
				wanted = false
				stop()
			}
		})
		err = errors.Join(err, f.Close())
		if wanted && err != nil {
			yield(wire.Live{}, fmt.Errorf("follow run %s: %w", run.Name, err))
		}
	}
}

// Events calls handle with every milestone after the mark, each once and in order, and with the ephemeral events that are
// not lost, until the run's end was handled, or with an error: see Follow.
func (f *Following) Events(ctx context.Context, after wire.Mark, handle func(wire.Live)) error {
	at := place{Mark: after, whole: after == wire.Mark{}}
	var again <-chan time.Time
	for {
		l, err := f.hear(ctx, again)
		switch {
		case err != nil:
			return err
		case l == nil: // something may have been missed
		case l.Ephemeral:
			handle(*l)
			continue
		case !at.Before(*l):
			continue
		case at.next(*l):
			if at.tell(*l, handle) {
				return nil
			}
			continue
		}
		done, err := f.ask(ctx, &at, handle)
		if done {
			return nil
		}
		if err != nil && !passes(err) {
			return err
		}
		if again = nil; err != nil {
			again = time.After(askAgain) // a later milestone asks, too
		}
	}
}

// passes reports whether a question about a run may be answered later: who answers is away, or what it needs is. An answer that cannot be
// read, and whatever else has no code, would be the same each time.
func passes(err error) bool {
	return isUnavailable(err) || errors.Is(err, &sdk.Error{Code: sdk.CodeInternal})
}

// hear returns the next live event, or nil when something may have been missed.
func (f *Following) hear(ctx context.Context, again <-chan time.Time) (*wire.Live, error) {
	if l := f.held; l != nil {
		f.held = nil
		return l, nil
	}
	select {
	case <-f.missed: // what the history tells comes before a refusal
		return nil, ctx.Err()
	default:
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case err := <-f.refused:
		return nil, err
	case l := <-f.events:
		return &l, nil
	case <-f.missed:
	case <-again:
	}
	return nil, nil
}

// lacks is told that live events may have been missed, or that none come.
func (f *Following) lacks(refused error) {
	if refused == nil {
		f.Missed()
		return
	}
	select {
	case f.refused <- refused:
	default: // it is known already
	}
}

// upTo handles the ephemeral events that were heard and come before a milestone, which the run's history tells.
func (f *Following) upTo(milestone wire.Live, handle func(wire.Live)) {
	for {
		if f.held == nil {
			select {
			case l := <-f.events:
				f.held = &l
			default:
				return
			}
		}
		l := f.held
		if l.Revision > milestone.Revision || l.Revision == milestone.Revision && (l.Ephemeral || l.Index > milestone.Index) {
			return
		}
		f.held = nil
		if l.Ephemeral {
			handle(*l)
		}
	}
}

// ask handles the milestones after the mark and reports whether the run's end was among them. The error is unknown_run where there are none
// any more.
func (f *Following) ask(ctx context.Context, at *place, handle func(wire.Live)) (done bool, err error) {
	for {
		var s wire.RunStatus
		err := f.c.ask(ctx, f.run.Agent, wire.Query{Run: f.run.Name, After: at.Mark}, &s)
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
			return false, nil // it has not begun
		}
		if err != nil {
			return false, fmt.Errorf("ask for what was missed: %w", err)
		}
		if s.Purged > 0 {
			return false, purged(f.run, &s)
		}
		for _, l := range s.Milestones {
			if at.Before(l) && ctx.Err() == nil {
				f.upTo(l, handle)
				done = at.tell(l, handle) // a run that was retried goes on after an end
			}
		}
		if done || !s.More || ctx.Err() != nil {
			return done, ctx.Err()
		}
	}
}

// place is how far a run was followed: to a milestone, and whether that was the last of its revision.
type place struct {
	wire.Mark
	whole bool
}

// next reports whether nothing can be between the place and a later milestone. After a revision without milestones it does
// not know.
func (p place) next(l wire.Live) bool {
	if l.Revision == p.Revision {
		return l.Index == p.Index+1
	}
	return p.whole && l.Revision == p.Revision+1 && l.Index == 0
}

// tell handles a milestone and reports whether it is the run's end.
func (p *place) tell(l wire.Live, handle func(wire.Live)) (done bool) {
	*p = place{Mark: wire.Mark{Revision: l.Revision, Index: l.Index}, whole: l.Index+1 == l.Count}
	handle(l)
	return l.Type == wire.MilestoneFinished
}

// History yields the milestones of a run after the mark, up to now. It ends after an error, which is that of Status.
func (c *Client) History(ctx context.Context, run Run, after wire.Mark) iter.Seq2[wire.Live, error] {
	return func(yield func(wire.Live, error) bool) {
		for {
			var s wire.RunStatus
			if err := c.ask(ctx, run.Agent, wire.Query{Run: run.Name, After: after}, &s); err != nil {
				yield(wire.Live{}, fmt.Errorf("ask for the history of run %s: %w", run.Name, err))
				return
			}
			for _, l := range s.Milestones {
				if !yield(l, nil) {
					return
				}
				after = wire.Mark{Revision: l.Revision, Index: l.Index}
			}
			if !s.More {
				return
			}
		}
	}
}
