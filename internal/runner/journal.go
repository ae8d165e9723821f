package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/internal/core"
	"agentd/internal/retry"
	"agentd/sdk/wire"
)

// largeEntry is the size in bytes above which sections of an entry move to blobs. It leaves room below MaxEntry.
const largeEntry = 256 << 10

// point is a place in a journal that the next entry can be appended at.
type point struct {
	Version
	// digest is the hash of the entry, which the next one names.
	digest string
}

// appendEntry writes change as the entry after at. It repeats itself while the store does not answer: an entry that was
// written after all is not written twice. A message for which nothing was read is given back instead, as it is when the store cannot be
// read: its next delivery finds the entry, or writes it. Errors: ErrConflict, with the entry, because it may have been written before
// the one that it conflicts with; or one that repeating does not mend.
func (a *activation) appendEntry(ctx context.Context, at point, change core.Change) (*core.Entry, point, error) {
	entry := &core.Entry{
		V: change.Head.V, Rev: at.Rev + 1, Etag: a.Env.Random(), Prev: at.digest,
		Cause: a.msg.Cause, At: change.At, Change: change,
	}
	a.costs.told = false
	data, err := a.encode(ctx, entry)
	if err != nil {
		return nil, point{}, err
	}
	next := Record{Version: Version{Rev: entry.Rev, Etag: entry.Etag}, Data: data}
	var v Version
	err = appending.Do(ctx, a.Env.Sleep, func() (err error) {
		a.known = a.Env.Now()
		v, err = a.Store.Append(ctx, a.key, at.Version, next)
		a.costs.told = a.costs.told || !errors.Is(err, ErrConflict) && !tooLarge(err)
		if errors.Is(err, ErrAmbiguous) {
			if a.unsure = true; !a.blind {
				return err
			}
		}
		return retry.Final(err)
	})
	if errors.Is(err, ErrConflict) {
		a.stats.Conflicts.Add(1)
	}
	if err != nil {
		a.recent.ends.Forget(a.key)
		return entry, point{}, fmt.Errorf("append entry %d of run %s: %w", entry.Rev, a.key, err)
	}
	a.wrote, a.blind = true, false
	a.stats.Entries.Add(1)
	a.stats.Bytes.Add(int64(len(data)))
	a.Observer.Appended(ctx, entry, len(data))
	end := point{Version: v, digest: core.Digest(data)}
	a.recent.wrote(a.key, entry, end)
	return entry, end, nil
}

// appending is how an entry is written again while the store does not answer.
var appending = retry.Pauses{First: 50 * time.Millisecond, Longest: retryDelay}

// section is a part of an entry that can live in a blob.
type section struct {
	name  string
	value any
	clear func()
}

// sections are those that move in turn, as long as the entry is too large. Versions before layout 10 read no entry without what comes last:
// that stays in every entry that has room for it.
func sections(e *core.Entry) [][]section {
	first := []section{
		{"messages", e.Messages, func() { e.Messages = nil }},
		{"results", e.Results, func() { e.Results = nil }},
		{"requests", e.Requests, func() { e.Requests = nil }},
		{"asks", e.Asks, func() { e.Asks = nil }},
		{"input", e.Input, func() { e.Input = nil }},
	}
	if e.Terminal != nil {
		first = append(first, section{"terminal", e.Terminal, func() { e.Terminal = nil }})
	}
	return [][]section{first, {
		{"inquiries", e.Inquiries, func() { e.Inquiries = nil }},
		{"notes", e.Notes, func() { e.Notes = nil }},
	}}
}

// encode returns the entry's bytes. Blobs are written before the entry that names them.
func (a *activation) encode(ctx context.Context, e *core.Entry) ([]byte, error) {
	data, err := e.Encode()
	if err != nil || len(data) <= largeEntry {
		return data, err
	}
	stored := *e
	for _, some := range sections(&stored) {
		if err := a.putBeside(ctx, &stored, some); err != nil {
			return nil, err
		}
		if data, err = stored.Encode(); err != nil || len(data) <= MaxEntry {
			break
		}
	}
	e.V, e.Head.V, e.Blobs = stored.V, stored.Head.V, stored.Blobs
	return data, err
}

// putBeside moves the large ones of an entry's sections to blobs.
func (a *activation) putBeside(ctx context.Context, e *core.Entry, sections []section) error {
	for _, s := range sections {
		content, err := core.EncodeJSON(s.value)
		if err != nil {
			return fmt.Errorf("encode section %s: %w", s.name, err)
		}
		if len(content) < largeEntry/4 {
			continue
		}
		digest := core.Digest(content)
		if err := a.Store.PutBlob(ctx, a.key, digest, content); err != nil {
			return fmt.Errorf("store section %s of entry %d: %w", s.name, e.Rev, err)
		}
		e.PutBeside(core.Blob{Section: s.name, Digest: digest, Size: len(content)})
		s.clear()
	}
	return nil
}

// decode reads an entry with its blobs, and returns its digest too: the entry is shared, and must not be modified.
// ErrCorrupt, or the store's failure to read a blob.
func (r *Runner) decode(ctx context.Context, run wire.RunKey, rec Record) (*core.Entry, string, error) {
	e, digest, err := r.Entries.Decode(rec.Data)
	if err != nil || len(e.Blobs) == 0 {
		return e, digest, err
	}
	whole := *e
	for _, b := range e.Blobs {
		content, err := r.Store.Blob(ctx, run, b.Digest)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, "", fmt.Errorf("read section %s of entry %d: %w", b.Section, e.Rev, err)
		}
		if err == nil {
			err = whole.Restore(b, content)
		}
		if err != nil {
			return nil, "", fmt.Errorf("%w: section %s of entry %d: %w", ErrCorrupt, b.Section, e.Rev, err)
		}
	}
	return &whole, digest, nil
}

// Journal reads a run's entries in order, with their blobs, and checks the chain of hashes.
func (r *Runner) Journal(ctx context.Context, run wire.RunKey) ([]core.Entry, error) {
	read, _, err := r.readAfter(ctx, run, point{})
	return copies(read), err
}

// Part reads the entries of records that follow one another, with their blobs, and checks the chain of hashes among them.
func (r *Runner) Part(ctx context.Context, run wire.RunKey, records []Record) ([]core.Entry, error) {
	if len(records) == 0 {
		return nil, nil
	}
	first, _, err := r.Entries.Decode(records[0].Data)
	if err != nil {
		return nil, fmt.Errorf("journal of run %s: %w", run, err)
	}
	read, _, err := r.follow(ctx, run, point{Version: Version{Rev: first.Rev - 1}, digest: first.Prev}, records)
	return copies(read), err
}

// copies are entries that their reader may keep. Nil stays nil.
func copies(read []*core.Entry) []core.Entry {
	if read == nil {
		return nil
	}
	entries := make([]core.Entry, len(read))
	for i, e := range read {
		entries[i] = *e
	}
	return entries
}

// readAfter reads the entries after at and the point that they lead to.
func (r *Runner) readAfter(ctx context.Context, run wire.RunKey, at point) ([]*core.Entry, point, error) {
	records, err := r.Store.Entries(ctx, run, at.Version)
	if err != nil {
		return nil, point{}, fmt.Errorf("read journal of run %s: %w", run, err)
	}
	return r.follow(ctx, run, at, records)
}

// follow reads the entries of records, which come after at, and the point that they lead to.
func (r *Runner) follow(ctx context.Context, run wire.RunKey, at point, records []Record) ([]*core.Entry, point, error) {
	entries := make([]*core.Entry, 0, len(records))
	for _, rec := range records {
		e, digest, err := r.decode(ctx, run, rec)
		if err != nil {
			return nil, point{}, fmt.Errorf("journal of run %s: %w", run, err)
		}
		if e.Rev != at.Rev+1 || e.Prev != at.digest {
			return nil, point{}, fmt.Errorf("%w: run %s: entry %d does not follow entry %d", ErrCorrupt, run, e.Rev, at.Rev)
		}
		entries = append(entries, e)
		at = point{Version: rec.Version, digest: digest}
	}
	return entries, at, nil
}

// journal reads the entries after from, up to rev at least, and the point that they lead to. What is known to be written
// is waited for, because a read may be stale; but not for ever, because it may be lost. Only a read from the beginning can
// tell that: one from a later point that stays short is corrupt so that its caller begins anew.
func (a *activation) journal(ctx context.Context, from point, rev uint64) ([]*core.Entry, point, error) {
	for reads := 1; ; reads++ {
		entries, end, err := a.readAfter(ctx, a.key, from)
		if err != nil || end.Rev >= rev || len(entries) > 0 && entries[0].Head.Purged != nil {
			return entries, end, err
		}
		if reads == mostStaleReads {
			err := fmt.Errorf("run %s: entry %d is not to be read, only those up to %d", a.key, rev, end.Rev)
			if from.Rev > 0 {
				err = fmt.Errorf("%w: %w", ErrCorrupt, err)
			}
			return nil, point{}, err
		}
		if err := a.Env.Sleep(ctx, staleReadDelay); err != nil {
			return nil, point{}, err
		}
	}
}

// durable reads the journal up to a.at, which is durable. What others wrote since may vanish in a failover, and what comes
// from a store that has lost one is not the journal: nothing may leave the worker on the strength of either (R1).
func (a *activation) durable(ctx context.Context) ([]*core.Entry, error) {
	for range mostStaleReads {
		a.known = a.Env.Now()
		entries, _, err := a.journal(ctx, point{}, a.at.Rev)
		if err != nil {
			return nil, err
		}
		if len(entries) > 0 && entries[0].Head.Purged != nil {
			return entries, nil // the run is done for so long that nothing of it is missing
		}
		if entries = entries[:a.at.Rev]; len(entries) == 0 || entries[len(entries)-1].Etag == a.at.Etag {
			return entries, nil
		}
		if err := a.Env.Sleep(ctx, staleReadDelay); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("run %s: entry %d is not to be read, only another one in its place", a.key, a.at.Rev)
}

// durableFrom reads the journal from a revision up to a.at, as durable reads all of it: who needs an entry of late reads nothing of the history
// before.
func (a *activation) durableFrom(ctx context.Context, from uint64) ([]core.Entry, error) {
	if from > a.at.Rev {
		return nil, fmt.Errorf("%w: run %s: entry %d names entry %d", ErrCorrupt, a.key, a.at.Rev, from)
	}
	most := int(a.at.Rev - from + 1)
	for range mostStaleReads {
		entries, err := a.part(ctx, from, most)
		switch {
		case err != nil:
			return nil, err
		case len(entries) > 0 && entries[0].Head.Purged != nil:
			return nil, fmt.Errorf("run %s: entry %d is gone, because the run is done", a.key, from)
		case len(entries) == most && entries[most-1].Etag == a.at.Etag:
			return entries, nil
		}
		if err := a.Env.Sleep(ctx, staleReadDelay); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("run %s: entries %d to %d are not to be read, only others, or none, in their place", a.key, from, a.at.Rev)
}

// part reads the entries from a revision on, most of them at most, as they follow one another. They may be of a journal that a store has lost
// since.
func (a *activation) part(ctx context.Context, from uint64, most int) ([]core.Entry, error) {
	records, err := a.Store.Part(ctx, a.key, from, most)
	if err != nil {
		return nil, fmt.Errorf("read journal of run %s from entry %d: %w", a.key, from, err)
	}
	return a.Part(ctx, a.key, records)
}

// fold is core.Fold of a journal.
func fold(s core.State, entries []*core.Entry) (core.State, error) {
	s, err := core.Fold(s, entries)
	if err != nil {
		return s, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return s, nil
}

// staleReadDelay is how long to wait before a read is repeated that did not show what is known to be written, and
// mostStaleReads how many such reads there are: 5 s of them.
const (
	staleReadDelay = 10 * time.Millisecond
	mostStaleReads = 500
)
