package memory

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// Purge implements state.Store.
func (s *Store) Purge(
	ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record,
) (runner.Version, error) {
	err := ctx.Err()
	if err == nil {
		err = state.CheckTombstone(base, keep)
	}
	if err != nil {
		return runner.Version{}, fmt.Errorf("purge run %s: %w", run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, _ := s.last(run)
	switch {
	case last.Etag == keep.Etag:
		s.removeBlobs(run)
		return last.Version, nil
	case last.Etag != base.Etag:
		return runner.Version{}, fmt.Errorf("purge run %s: %w", run, runner.ErrConflict)
	}
	s.removeBlobs(run)
	keep.Position = keep.Rev
	s.runs[run] = []runner.Record{clone(keep)}
	return keep.Version, nil
}

// Remove implements state.Store.
func (s *Store) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remove run %s: %w", run, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last(run)
	switch {
	case !ok:
		return nil
	case last.Etag != base.Etag:
		return fmt.Errorf("remove run %s: %w", run, runner.ErrConflict)
	}
	s.removeBlobs(run)
	delete(s.runs, run)
	return nil
}

// removeBlobs removes the blobs of a run; s.mu is held.
func (s *Store) removeBlobs(run wire.RunKey) {
	for key := range s.blobs {
		if key.run == run {
			delete(s.blobs, key)
		}
	}
}

// Writable implements state.Store.
func (s *Store) Writable(ctx context.Context) error { return ctx.Err() }

// Mark implements state.Store.
func (s *Store) Mark(ctx context.Context, name, mark string) error {
	if err := errors.Join(ctx.Err(), state.CheckMark(name, mark)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.marks[name] = mark
	return nil
}

// Marked implements state.Store.
func (s *Store) Marked(ctx context.Context, name, mark string) (bool, error) {
	if err := errors.Join(ctx.Err(), state.CheckMark(name, mark)); err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.marks[name] == mark, nil
}
