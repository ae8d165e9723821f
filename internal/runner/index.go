package runner

import (
	"context"
	"encoding/json"

	"agentd/internal/core"
)

// Indexer is told how runs get on, for an index of runs. It is a hint: what it is not told, or loses, is found by reconciliation. Its methods do not
// block, and are safe for concurrent use.
type Indexer interface {
	// Wanted reports whether there is an index. Nothing is noted where there is none.
	Wanted() bool
	// Note says how a run is after an entry that is durable. What it is given must not be modified.
	Note(Indexed)
}

// Indexed is a run after an entry.
type Indexed struct {
	Head *core.Head
	Version
	// At is when the entry was made, and Started when the run's first entry was, in Unix milliseconds.
	At, Started int64
	// Input is the data of the run's init event.
	Input json.RawMessage
}

// noIndex is the Indexer of brokers without an index.
type noIndex struct{}

func (noIndex) Wanted() bool { return false }
func (noIndex) Note(Indexed) {}

// noteDriven notes the run that the activation drives, after the entry that was made at that time.
func (a *activation) noteDriven(at int64) {
	if !a.Index.Wanted() {
		return
	}
	head := a.state.Head
	a.Index.Note(Indexed{Head: &head, Version: a.at.Version, At: at, Started: a.state.Started, Input: a.state.Input})
}

// changesSides reports whether those who look for the run by what it does would look for it elsewhere.
func changesSides(before, after *core.Head) bool {
	return before.Status != after.Status || before.Tags != after.Tags || (before.Paused == nil) != (after.Paused == nil)
}

// noteAbsorbed notes an entry of a run that the activation does not drive: what began the run has to be read.
func (a *activation) noteAbsorbed(ctx context.Context, e *core.Entry) {
	entries, err := a.durable(ctx)
	if err != nil || len(entries) == 0 {
		a.Logger.DebugContext(ctx, "the index of runs is not told of an entry", "run", a.head.Run, "entry", e.Rev, "error", err)
		return
	}
	a.Index.Note(IndexedIn(entries[0], e, a.at.Version))
}

// IndexedIn is a run after its entry last; first is its first one.
func IndexedIn(first, last *core.Entry, v Version) Indexed {
	return Indexed{Head: &last.Head, Version: v, At: last.At, Started: first.At, Input: first.Input}
}
