// Package find finds runs for people: whoever has the index of runs is asked which there are, or else the store is read, and the store
// says how each of them is.
package find

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/index/ask"
	"agentd/internal/retry"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/internal/state"
	"agentd/internal/state/sealed"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Finder finds runs.
type Finder struct {
	Conn  *broker.Conn
	Store runner.Store
}

// Run is a run that was found, by its last entry.
type Run struct {
	index.Document
	Row show.RunRow
}

// Found is what was found.
type Found struct {
	// Runs are those that changed last first.
	Runs []Run
	// More says that there are others.
	More bool
	// Index says how far the index had come that was asked, and State how its stream is; nil is that the store was read.
	Index *index.Freshness
	State broker.IndexState
}

// Newest finds the runs that changed last among those that f selects, limit at most; 0 is all.
func (s Finder) Newest(ctx context.Context, f index.Filter, limit int) (Found, error) {
	var found Found
	indexed, err := s.indexed(ctx, f, &found, func(d index.Document) (bool, error) {
		run, still, err := s.Current(ctx, d, f)
		if err != nil || !still {
			return true, err
		}
		found.Runs = append(found.Runs, run)
		return limit == 0 || len(found.Runs) <= limit, nil
	})
	read := false
	if err == nil && !indexed && limit > 0 {
		read, err = s.recent(ctx, f, limit, &found)
	}
	if err == nil && !indexed && !read {
		found.Runs = nil
		err = s.Scan(ctx, f, func(run Run) error {
			found.Runs = append(found.Runs, run)
			if limit > 0 && len(found.Runs) > limit+state.MaxPage {
				found.Keep(limit)
			}
			return nil
		})
	}
	found.Keep(limit)
	return found, err
}

// Keep leaves the limit runs that changed last, 0 is all, in that order.
func (f *Found) Keep(limit int) {
	slices.SortFunc(f.Runs, func(x, y Run) int {
		return cmp.Or(cmp.Compare(y.Changed, x.Changed), cmp.Compare(x.Run, y.Run))
	})
	if limit > 0 && len(f.Runs) > limit {
		f.Runs, f.More = f.Runs[:limit], true
	}
}

// Documents calls each with the runs that f selects, as whoever found them has them, in any order, until each fails.
func (s Finder) Documents(ctx context.Context, f index.Filter, each func(index.Document) error) error {
	indexed, err := s.indexed(ctx, f, &Found{}, func(d index.Document) (bool, error) { return true, each(d) })
	if err == nil && !indexed {
		err = s.Scan(ctx, f, func(run Run) error { return each(run.Document) })
	}
	return err
}

// indexed calls each with the documents that whoever has the index selects, those that changed last first, until each says that this was enough.
// known is false where nobody has it.
func (s Finder) indexed(ctx context.Context, f index.Filter, found *Found, each func(index.Document) (more bool, err error)) (known bool, err error) {
	state, err := s.Conn.IndexState(ctx)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for q := (index.Query{Filter: f, Limit: index.MaxLimit}); ; {
		page, known, err := s.page(ctx, q, state.Last)
		if err != nil || !known {
			return known, err
		}
		found.Index, found.State = &page.Freshness, state
		for _, d := range page.Documents {
			if more, err := each(d); err != nil || !more {
				return true, err
			}
		}
		if q.After = page.Next; q.After == "" {
			return true, nil
		}
	}
}

// upToDate is how long an index may take to read what workers had said when it was asked.
const upToDate = time.Second

// page asks for a page until the index has all documents up to a sequence, for a moment.
func (s Finder) page(ctx context.Context, q index.Query, last uint64) (page index.Page, known bool, err error) {
	waiting, stop := context.WithTimeout(ctx, upToDate)
	defer stop()
	for {
		page, known, err = ask.Query(ctx, s.Conn, q)
		if err != nil || !known || page.Sequence >= last || retry.Sleep(waiting, 20*time.Millisecond) != nil {
			return page, known, err
		}
	}
}

// Current is a run by its last entry. still is false when it is not there any more, or f does not select it as it is now.
func (s Finder) Current(ctx context.Context, d index.Document, f index.Filter) (run Run, still bool, err error) {
	last, err := s.Store.Head(ctx, wire.NewRunKey(d.Run))
	if errors.Is(err, runner.ErrNotFound) {
		return Run{}, false, nil
	}
	_, unopened := errors.AsType[*sealed.Error](err)
	switch {
	case unopened || errors.Is(err, runner.ErrCorrupt):
		run = unreadable(d.Run, last.Rev)
	case err != nil:
		return Run{}, false, err
	default:
		run = of(d.Run, last)
		run.Started, run.Text = d.Started, d.Text // of the first entry
	}
	return run, f.Matches(&run.Document, s.now()), nil
}

func (s Finder) now() time.Time { return time.UnixMilli(s.Conn.Now()) }

// of is a run with that last record.
func of(name string, last runner.Record) Run {
	e, err := core.DecodeEntry(last.Data)
	if err != nil {
		return unreadable(name, last.Rev)
	}
	return Run{index.Of(runner.Indexed{Head: &e.Head, Version: runner.Version{Rev: e.Rev, Etag: e.Etag}, At: e.At}), show.RowOf(&e)}
}

func unreadable(name string, rev uint64) Run {
	return Run{index.Document{Run: name, Rev: rev, Status: show.Unreadable}, show.RunRow{Run: name, Status: show.Unreadable, Revision: rev}}
}

// recent finds more runs than limit that f selects from the end of the store, where it can tell. Those that it does not find changed before
// all of limit that it found.
func (s Finder) recent(ctx context.Context, f index.Filter, limit int, found *Found) (enough bool, err error) {
	store, can := s.Store.(state.Store)
	if !can {
		return false, nil
	}
	return store.Recent(ctx, func(some []runner.StoredRun, since int64) (bool, error) {
		err := s.selected(ctx, f, some, func(run Run) error {
			found.Runs = append(found.Runs, run)
			return nil
		})
		later := 0
		for i := range found.Runs {
			if found.Runs[i].Changed > since { // a history that was removed is written to long after its run changed
				later++
			}
		}
		return later <= limit, err
	})
}

// Scan calls each with the runs of the store that f selects, in any order, until each fails.
func (s Finder) Scan(ctx context.Context, f index.Filter, each func(Run) error) error {
	for cursor := ""; ; {
		page, next, err := s.Store.Runs(ctx, cursor, state.MaxPage)
		if err != nil {
			return err
		}
		if err := s.selected(ctx, f, page, each); err != nil {
			return err
		}
		if cursor = next; cursor == "" {
			return nil
		}
	}
}

// selected calls each with those of some runs that f selects.
func (s Finder) selected(ctx context.Context, f index.Filter, some []runner.StoredRun, each func(Run) error) error {
	begins := f.Uses(index.KeyText, index.KeyStarted, index.KeyDuration)
	others := f.Without(index.KeyText, index.KeyStarted, index.KeyDuration)
	for _, stored := range some {
		run := of(stored.Run.String(), stored.Last)
		if !others.Matches(&run.Document, s.now()) {
			continue
		}
		if begins {
			if err := s.begin(ctx, stored.Run, &run); err != nil {
				return err
			}
		}
		if !begins || f.Matches(&run.Document, s.now()) {
			if err := each(run); err != nil {
				return err
			}
		}
	}
	return nil
}

// begin adds what only the run's first entry has; one whose journal cannot be read stays without it.
func (s Finder) begin(ctx context.Context, key wire.RunKey, run *Run) error {
	entries, err := runner.New(runner.Options{Store: s.Store}).Journal(ctx, key)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil || len(entries) == 0 || run.Purged > 0 {
		return nil //nolint:nilerr // such a run is not selected by what it began with
	}
	last := &entries[len(entries)-1]
	run.Document = index.Of(runner.IndexedIn(&entries[0], last, runner.Version{Rev: last.Rev, Etag: last.Etag}))
	return nil
}
