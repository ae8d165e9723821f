// Package sealed encrypts what a store of runs keeps: entries, blobs and agent specs (docs/encryption.md). It stands
// before another runner.Store, to which everything is opaque bytes.
//
// Entries are sealed with XChaCha20-Poly1305, each for its run, revision and etag, so that none opens in another place.
// The chain of hashes that links entries is over what they say, not over the sealed bytes: whoever has the keys can check
// it, an entry whose first attempt went astray may be sealed again with another nonce, and nothing of it shows outside.
package sealed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The kinds of what is sealed. They are authenticated and may never change.
const (
	kindEntry = "entry"
	kindBlob  = "blob"
	kindSpec  = "spec"
	// kindDocument is a document of the index of runs, which no store keeps.
	kindDocument = "document"
)

// Store implements state.Store over another one. Safe for concurrent use.
type Store struct {
	inner runner.Store
	keys  *Keyring
	log   *slog.Logger

	mu sync.Mutex
	// met are the operator's faults that were met since the start, each key once.
	met map[metFault]*Error
}

type metFault struct {
	fault Fault
	keyID string
}

// maxMet bounds Store.met: who writes to the store can invent key ids.
const maxMet = 16

var _ state.Store = (*Store)(nil)

// New returns a store that keeps in inner what it seals with keys. With the zero Keyring it passes everything on, but
// still refuses what is sealed as such: a worker that was started without the keys must not take it for garbage.
// log may be nil.
func New(inner runner.Store, keys *Keyring, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{inner: inner, keys: keys, log: log, met: map[metFault]*Error{}}
}

// Ready returns nil, or the faults of the configuration that were met since the start: runs that have to wait for a
// worker with their keys.
func (s *Store) Ready() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var faults []error
	for _, e := range s.met {
		faults = append(faults, e)
	}
	return errors.Join(faults...)
}

// Writable implements state.Store.
func (s *Store) Writable(ctx context.Context) error {
	inner, err := s.whole()
	if err != nil {
		return err
	}
	return inner.Writable(ctx)
}

// Archiver is that of the store within: an archive holds what is sealed as it is.
func (s *Store) Archiver() (state.Archiver, bool) { return state.ArchiverOf(s.inner) }

// Mark implements state.Store: a mark holds nothing of a run.
func (s *Store) Mark(ctx context.Context, name, mark string) error {
	inner, err := s.whole()
	if err != nil {
		return err
	}
	return inner.Mark(ctx, name, mark)
}

// Marked implements state.Store.
func (s *Store) Marked(ctx context.Context, name, mark string) (bool, error) {
	inner, err := s.whole()
	if err != nil {
		return false, err
	}
	return inner.Marked(ctx, name, mark)
}

// refused notes an operator's fault, and says it loudly once.
func (s *Store) refused(e *Error) error {
	if e.Fault == FaultAltered {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fault := metFault{e.Fault, e.KeyID}
	if s.met[fault] == nil && len(s.met) < maxMet {
		s.met[fault] = e
		s.log.Error("a run cannot be opened here and waits", "run", e.run.String(), "rev", e.rev, "kid", e.KeyID, "error", e)
	}
	return e
}

func entryAt(run wire.RunKey, v runner.Version) place { return place{kindEntry, run, v.Rev, v.Etag} }

// open opens the records of a run, which are in order and without gaps, in place.
func (s *Store) open(ctx context.Context, run wire.RunKey, records []runner.Record) error {
	if err := s.checkPlaintext(ctx, run, records); err != nil {
		return err
	}
	for i := range records {
		r := &records[i]
		if !isSealed(r.Data) {
			continue
		}
		plain, e := s.keys.open(entryAt(run, r.Version), r.Data)
		if e != nil {
			return s.refused(e)
		}
		r.Data = plain
	}
	return nil
}

// checkPlaintext refuses records in plaintext where everything must be sealed, and everywhere after what is sealed:
// encryption is turned on for a run, and never off.
func (s *Store) checkPlaintext(ctx context.Context, run wire.RunKey, records []runner.Record) error {
	if s.keys.current == nil {
		return nil
	}
	last := -1
	for i, r := range records {
		if isSealed(r.Data) {
			continue
		}
		if last = i; !s.keys.allowPlaintext {
			return s.refused(&Error{place: entryAt(run, r.Version), Fault: FaultPlaintext})
		}
	}
	if last < 0 {
		return nil
	}
	plain, before := records[last].Version, records
	if records[0].Rev > 1 {
		var err error
		if before, err = s.inner.Entries(ctx, run, runner.Version{}); err != nil {
			return err
		}
	}
	for _, r := range before {
		if r.Rev < plain.Rev && isSealed(r.Data) {
			return &Error{place: entryAt(run, plain), Fault: FaultAltered}
		}
	}
	return nil
}

// Head implements runner.Store.
func (s *Store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	r, err := s.inner.Head(ctx, run)
	if err != nil {
		return runner.Record{}, err
	}
	records := []runner.Record{r}
	if err := s.open(ctx, run, records); err != nil {
		return runner.Record{}, fmt.Errorf("read head of run %s: %w", run, err)
	}
	return records[0], nil
}

// Entries implements runner.Store.
func (s *Store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	records, err := s.inner.Entries(ctx, run, after)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx, run, records); err != nil {
		return nil, fmt.Errorf("read entries of run %s: %w", run, err)
	}
	return records, nil
}

// Part implements runner.Store.
func (s *Store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	records, err := s.inner.Part(ctx, run, from, most)
	if err != nil {
		return nil, err
	}
	if err := s.open(ctx, run, records); err != nil {
		return nil, fmt.Errorf("read entries of run %s: %w", run, err)
	}
	return records, nil
}

// Append implements runner.Store. A record that is appended again is sealed again: stores tell it by its etag.
func (s *Store) Append(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	if len(next.Data) > state.MaxEntry {
		return runner.Version{}, sdk.Errorf(sdk.CodeTooLarge,
			"append to run %s: entry %d has %d bytes, more than %d", run, next.Rev, len(next.Data), state.MaxEntry)
	}
	if k := s.keys.current; k != nil {
		next.Data = k.seal(entryAt(run, next.Version), next.Data)
	}
	return s.inner.Append(ctx, run, base, next)
}

// Purge implements state.Store, where the inner store does.
func (s *Store) Purge(
	ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record,
) (runner.Version, error) {
	inner, err := s.whole()
	if err != nil {
		return runner.Version{}, err
	}
	if k := s.keys.current; k != nil {
		keep.Data = k.seal(entryAt(run, keep.Version), keep.Data)
	}
	return inner.Purge(ctx, run, base, keep)
}

// Remove implements state.Store, where the inner store does.
func (s *Store) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	inner, err := s.whole()
	if err != nil {
		return err
	}
	return inner.Remove(ctx, run, base)
}

// whole is the inner store with what a state.Store can do besides.
func (s *Store) whole() (state.Store, error) {
	inner, ok := s.inner.(state.Store)
	if !ok {
		return nil, sdk.Errorf(sdk.CodeConfig, "a store of type %T cannot forget runs, nor read parts of them", s.inner)
	}
	return inner, nil
}

// Barrier implements runner.Store.
func (s *Store) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	return s.inner.Barrier(ctx, run, v)
}

// PutBlob implements runner.Store.
func (s *Store) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	return s.put(place{kind: kindBlob, run: run, name: digest}, data, func(name string, data []byte) error {
		return s.inner.PutBlob(ctx, run, name, data)
	})
}

// Blob implements runner.Store.
func (s *Store) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	return s.content(place{kind: kindBlob, run: run, name: digest}, func(name string) ([]byte, error) {
		return s.inner.Blob(ctx, run, name)
	})
}

// PutSpec implements runner.Store.
func (s *Store) PutSpec(ctx context.Context, digest string, data []byte) error {
	return s.put(place{kind: kindSpec, name: digest}, data, func(name string, data []byte) error {
		return s.inner.PutSpec(ctx, name, data)
	})
}

// Spec implements runner.Store.
func (s *Store) Spec(ctx context.Context, digest string) ([]byte, error) {
	return s.content(place{kind: kindSpec, name: digest}, func(name string) ([]byte, error) {
		return s.inner.Spec(ctx, name)
	})
}

func (s *Store) put(p place, data []byte, put func(name string, data []byte) error) error {
	k := s.keys.current
	if k == nil {
		return put(p.name, data)
	}
	if err := state.CheckDigest(p.name); err != nil {
		return fmt.Errorf("write content: %w", err)
	}
	return put(k.address(p), k.seal(p, data))
}

// content looks for a content under the name that each key gives it, and under its own where plaintext may be read. What
// is in plaintext is authenticated by its digest, which is in the entry that refers to it.
func (s *Store) content(p place, get func(name string) ([]byte, error)) ([]byte, error) {
	if err := state.CheckDigest(p.name); err != nil {
		return nil, fmt.Errorf("read content: %w", err)
	}
	for _, k := range s.keys.keys {
		data, err := get(k.address(p))
		switch {
		case errors.Is(err, runner.ErrNotFound):
			continue
		case err != nil:
			return nil, err
		case !isSealed(data):
			return nil, &Error{place: p, Fault: FaultAltered}
		}
		plain, e := s.keys.open(p, data)
		if e != nil {
			return nil, s.refused(e)
		}
		return plain, nil
	}
	if s.keys.current != nil && !s.keys.allowPlaintext {
		return nil, fmt.Errorf("%s: %w", p.what(), runner.ErrNotFound)
	}
	data, err := get(p.name)
	if err != nil {
		return nil, err
	}
	if s.keys.current != nil && digestOf(data) != p.name {
		return nil, &Error{place: p, Fault: FaultAltered}
	}
	return data, nil
}

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Runs implements runner.Store. A run that cannot be opened is listed without data.
func (s *Store) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	runs, next, err := s.inner.Runs(ctx, cursor, limit)
	if err == nil {
		err = s.openRuns(ctx, runs)
	}
	if err != nil {
		return nil, "", err
	}
	return runs, next, nil
}

// Recent implements state.Store. A run that cannot be opened is told without data.
func (s *Store) Recent(ctx context.Context, each func(some []runner.StoredRun, since int64) (more bool, err error)) (enough bool, err error) {
	inner, err := s.whole()
	if err != nil {
		return false, err
	}
	return inner.Recent(ctx, func(some []runner.StoredRun, since int64) (bool, error) {
		if err := s.openRuns(ctx, some); err != nil {
			return false, err
		}
		return each(some, since)
	})
}

func (s *Store) openRuns(ctx context.Context, runs []runner.StoredRun) error {
	for i := range runs {
		last := []runner.Record{runs[i].Last}
		err := s.open(ctx, runs[i].Run, last)
		if _, refused := errors.AsType[*Error](err); refused {
			last[0].Data = nil
		} else if err != nil {
			return fmt.Errorf("list runs: %w", err)
		}
		runs[i].Last = last[0]
	}
	return nil
}
