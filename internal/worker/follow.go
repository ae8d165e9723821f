package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/sdk"
)

// Following is a client that sees what a run does. Live events are lossy: what it missed, it asks for.
type Following struct {
	conn   *broker.Conn
	agent  string
	run    string
	events chan wire.Live
	// missed has a token when events may have been dropped.
	missed chan struct{}
	stop   func() error
}

// followBuffer is how many live events wait for whoever follows; what is more is asked for later.
const followBuffer = 256

// askAgain is the pause after a question about a run that no worker answered.
const askAgain = time.Second

// Follow listens to a run from now on; Events tells what happens. The run need not exist yet. The caller must call Close.
func Follow(conn *broker.Conn, agent, run string) (*Following, error) {
	f := &Following{
		conn: conn, agent: agent, run: run, events: make(chan wire.Live, followBuffer), missed: make(chan struct{}, 1),
	}
	unsubscribe, err := conn.WatchLive(conn.Subjects().Live(agent, wire.NewRunKey(run)), func(l wire.Live) {
		select {
		case f.events <- l:
		default:
			f.Missed()
		}
	})
	if err != nil {
		return nil, err
	}
	f.Missed() // what is between the mark and now
	forget := conn.OnReconnect(f.Missed)
	f.stop = func() error {
		forget()
		return unsubscribe()
	}
	return f, nil
}

// Close ends listening.
func (f *Following) Close() error { return f.stop() }

// Missed makes it ask for what it has not seen.
func (f *Following) Missed() {
	select {
	case f.missed <- struct{}{}:
	default: // it is known already
	}
}

// Events calls handle with every milestone after the mark, each once and in order, and with the ephemeral events that are
// not lost, until the run's end was handled or ctx ends. Who comes back continues with the mark of the last milestone that
// was handled.
func (f *Following) Events(ctx context.Context, after Mark, handle func(wire.Live)) error {
	at := place{Mark: after, whole: after == Mark{}}
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l := <-f.events:
			if l.Ephemeral {
				handle(l)
				continue
			}
			if !at.before(l) {
				continue
			}
			if at.next(l) {
				if at.tell(l, handle) {
					return nil
				}
				continue
			}
		case <-f.missed:
		case <-retry:
		}
		done, err := f.ask(ctx, &at, handle)
		if done {
			return nil
		}
		if retry = nil; err != nil {
			retry = time.After(askAgain) // a later milestone asks, too
		}
	}
}

// ask handles the milestones after the mark and reports whether the run's end was among them.
func (f *Following) ask(ctx context.Context, at *place, handle func(wire.Live)) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for {
		var s RunStatus
		err := f.conn.Ask(ctx, f.conn.Subjects().Get(f.agent), Query{Run: f.run, After: at.Mark}, &s)
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
			return false, nil // it has not begun
		}
		if err != nil {
			return false, fmt.Errorf("ask for what was missed: %w", err)
		}
		for _, l := range s.Milestones {
			if at.before(l) {
				done = at.tell(l, handle) || done
			}
		}
		if done || !s.More {
			return done, nil
		}
	}
}

// place is how far a run was followed: to a milestone, and whether that was the last of its revision.
type place struct {
	Mark
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
	*p = place{Mark: Mark{Revision: l.Revision, Index: l.Index}, whole: l.Index+1 == l.Count}
	handle(l)
	return l.Type == core.MilestoneFinished
}
