package runner

import (
	"context"
	"fmt"
	"time"

	"agentd/internal/core"
	"agentd/internal/memo"
	"agentd/sdk/wire"
)

// recent remembers what this worker has written lately, so that it does not ask the store for it. Safe for concurrent use.
type recent struct {
	// ends are the ends of journals, as this worker wrote them: others may have written since.
	ends *memo.Memo[wire.RunKey, end]
	// specs are when specs were stored, in Unix milliseconds, by digest.
	specs *memo.Memo[string, int64]
}

func newRecent() recent {
	return recent{memo.New[wire.RunKey, end](mostRecent), memo.New[string, int64](mostRecent)}
}

// end is the last entry of a journal. Its head is shared, and must not be modified.
type end struct {
	head core.Head
	at   point
	// since is when the entry was made, in Unix milliseconds.
	since int64
}

const (
	// mostRecent is how many ends are remembered, and how many specs, before all are forgotten.
	mostRecent = 1024
	// specFor is for how long a spec that was stored is taken to be stored still. A store may lose what it took.
	specFor = time.Minute
)

// wrote remembers an entry, unless nothing goes on from it.
func (r *recent) wrote(run wire.RunKey, e *core.Entry, at point) {
	if e.Head.Status == core.StatusDone {
		r.ends.Forget(run)
		return
	}
	r.ends.Keep(run, end{e.Head, at, e.At}, 1)
}

// foresee is absorb without a look at the store, for an answer to a run that this worker wrote to last, and for an init event that nobody
// had before: the compare-and-set judges whether the run has moved on, or is there. Nothing but a new entry may follow from it (R4): ok is
// false when the message comes to anything else, and the run is to be read.
func (a *activation) foresee(ctx context.Context) (change core.Change, ok bool) {
	last, ok := a.recall()
	if !ok || a.msg.Delivered > 1 || a.msg.Unread != nil {
		return core.Change{}, false
	}
	a.head, a.at, a.since = last.head, last.at, last.since
	if a.findAgent(ctx) != nil || a.foreign() || a.ahead() {
		return core.Change{}, false
	}
	if a.msg.starts() && len(a.agent.Phases) > 0 { // hooks may do more than look, and are not run for a run that may be there
		return core.Change{}, false
	}
	a.trace = a.Observer.Loaded(ctx, &a.head, a.since)
	event, problem, err := a.input(ctx)
	if err != nil || problem != nil {
		return core.Change{}, false
	}
	change, err = core.Step(a.agent.Core, a.head, a.in(event))
	return change, err == nil
}

// recall is the end of the run's journal as it most likely is: none where the message begins the run, if the store was not asked yet, or
// what this worker wrote last, if that waits for what the message may be.
func (a *activation) recall() (end, bool) {
	if a.msg.starts() {
		return end{}, !a.msg.Backlog && a.known == 0
	}
	last, known := a.recent.ends.Get(a.key)
	return last, known && a.msg.Address.Kind == wire.KindIn && last.head.Status == core.StatusWaiting
}

// putSpec stores the agent's spec, unless that was done a moment ago.
func (a *activation) putSpec(ctx context.Context) error {
	digest, now := a.agent.Core.Digest, a.Env.Now()
	if stored, known := a.recent.specs.Get(digest); known && now-stored < specFor.Milliseconds() {
		return nil
	}
	if err := a.Store.PutSpec(ctx, digest, a.agent.SpecJSON); err != nil {
		return fmt.Errorf("store spec of agent %s: %w", a.agent.Core.Name, err)
	}
	a.recent.specs.Keep(digest, now, 1)
	return nil
}
