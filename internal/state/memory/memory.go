// Package memory keeps runs in memory, for tests.
package memory

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// Store implements runner.Store. Safe for concurrent use.
type Store struct {
	mu    sync.Mutex
	runs  map[wire.RunKey][]runner.Record
	blobs map[blobKey][]byte
	specs map[string][]byte
	marks map[string]string
}

type blobKey struct {
	run    wire.RunKey
	digest string
}

var _ state.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{
		runs: map[wire.RunKey][]runner.Record{}, blobs: map[blobKey][]byte{}, specs: map[string][]byte{},
		marks: map[string]string{},
	}
}

// clone copies what the caller may change.
func clone(r runner.Record) runner.Record {
	r.Data = bytes.Clone(r.Data)
	return r
}

// Head implements runner.Store.
func (s *Store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	if err := ctx.Err(); err != nil {
		return runner.Record{}, fmt.Errorf("read head of run %s: %w", run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last(run)
	if !ok {
		return runner.Record{}, fmt.Errorf("run %s: %w", run, runner.ErrNotFound)
	}
	return clone(last), nil
}

// last is the run's last record; s.mu is held.
func (s *Store) last(run wire.RunKey) (runner.Record, bool) {
	records := s.runs[run]
	if len(records) == 0 {
		return runner.Record{}, false
	}
	return records[len(records)-1], true
}

// Entries implements runner.Store.
func (s *Store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read entries of run %s: %w", run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []runner.Record
	for i, r := range s.runs[run] {
		if uint64(i) >= after.Rev {
			records = append(records, clone(r))
		}
	}
	return records, nil
}

// Recent implements state.Store: there are not many runs.
func (s *Store) Recent(context.Context, func([]runner.StoredRun, int64) (more bool, err error)) (enough bool, err error) {
	return false, nil
}

// Part implements runner.Store.
func (s *Store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	records, err := s.Entries(ctx, run, runner.Version{Rev: max(from, 1) - 1})
	return records[:min(len(records), most)], err
}

// Append implements runner.Store.
func (s *Store) Append(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	err := ctx.Err()
	if err == nil {
		err = state.CheckRecord(base, next)
	}
	if err != nil {
		return runner.Version{}, fmt.Errorf("append to run %s: %w", run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, _ := s.last(run)
	switch {
	case last.Etag == next.Etag:
		return last.Version, nil
	case last.Etag != base.Etag:
		return runner.Version{}, fmt.Errorf("append to run %s: %w", run, runner.ErrConflict)
	}
	next.Position = next.Rev
	s.runs[run] = append(s.runs[run], clone(next))
	return next.Version, nil
}

// Barrier implements runner.Store.
func (s *Store) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("barrier of run %s: %w", run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, _ := s.last(run); last.Etag != v.Etag {
		return fmt.Errorf("barrier of run %s: %w", run, runner.ErrConflict)
	}
	return nil
}

// PutBlob implements runner.Store.
func (s *Store) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	return put(ctx, s, s.blobs, blobKey{run, digest}, digest, data)
}

// Blob implements runner.Store.
func (s *Store) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	return get(ctx, s, s.blobs, blobKey{run, digest}, digest)
}

// PutSpec implements runner.Store.
func (s *Store) PutSpec(ctx context.Context, digest string, data []byte) error {
	return put(ctx, s, s.specs, digest, digest, data)
}

// Spec implements runner.Store.
func (s *Store) Spec(ctx context.Context, digest string) ([]byte, error) {
	return get(ctx, s, s.specs, digest, digest)
}

func put[K comparable](ctx context.Context, s *Store, m map[K][]byte, key K, digest string, data []byte) error {
	err := ctx.Err()
	if err == nil {
		err = state.CheckDigest(digest)
	}
	if err != nil {
		return fmt.Errorf("write content %s: %w", digest, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m[key] = append([]byte{}, data...)
	return nil
}

func get[K comparable](ctx context.Context, s *Store, m map[K][]byte, key K, digest string) ([]byte, error) {
	err := ctx.Err()
	if err == nil {
		err = state.CheckDigest(digest)
	}
	if err != nil {
		return nil, fmt.Errorf("read content %s: %w", digest, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := m[key]
	if !ok {
		return nil, fmt.Errorf("content %s: %w", digest, runner.ErrNotFound)
	}
	return bytes.Clone(data), nil
}

// Runs implements runner.Store.
func (s *Store) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	_, err := state.ParseCursor(cursor)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []wire.RunKey
	for key := range s.runs {
		if key.String() > cursor {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b wire.RunKey) int { return strings.Compare(a.String(), b.String()) })
	next := ""
	if size := state.PageSize(limit); len(keys) > size {
		keys = keys[:size]
		next = keys[size-1].String()
	}
	var runs []runner.StoredRun
	for _, key := range keys {
		last, _ := s.last(key)
		runs = append(runs, runner.StoredRun{Run: key, Last: clone(last)})
	}
	return runs, next, nil
}
