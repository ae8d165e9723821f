package natsstore

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// nearby is how many entries before those that are wanted are read rather than searched for.
const nearby = 64

// Part implements runner.Store. The stream knows of an entry's revision nothing but what its message says, so where the part begins is
// searched for: 30 requests find it among a billion messages.
func (s *Store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	records, err := s.part(ctx, run, max(from, 1), most)
	if err != nil {
		return nil, fmt.Errorf("read %d entries of run %s from %d: %w", most, run, from, err)
	}
	return records, nil
}

func (s *Store) part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	m, err := s.lastOwn(ctx, s.subjects.Journal(run))
	if errors.Is(err, runner.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	head, err := record(m)
	if err != nil || head.Rev < from {
		return nil, err
	}
	if m.Header.Get(headerTombstone) != "" {
		return []runner.Record{head}, nil
	}
	end := min(from+uint64(most)-1, head.Rev)
	last, err := s.before(ctx, run, from, head.Position)
	if err != nil {
		return nil, err
	}
	var records []runner.Record
	for last.Rev < end {
		b, err := s.batch(ctx, run, last, int(min(end-last.Rev, batchEntries)))
		if err != nil {
			return nil, err
		}
		switch {
		case b.purged: // meanwhile
			return s.part(ctx, run, from, most)
		case b.done && len(b.records) == 0: // whoever answered is behind
			return records, nil
		}
		for _, r := range b.records {
			if last = r.Version; r.Rev >= from {
				records = append(records, r)
			}
		}
		last.Position = b.end
	}
	return records, nil
}

// before finds an entry that is not far before the one with the revision from, whose message is before the sequence end. The zero
// Version is the beginning.
func (s *Store) before(ctx context.Context, run wire.RunKey, from, end uint64) (runner.Version, error) {
	var at runner.Version
	subject := s.subjects.Journal(run)
	for from-at.Rev > nearby && end-at.Position > 1 {
		middle := at.Position + (end-at.Position)/2
		m, err := s.next(ctx, subject, middle)
		if err != nil {
			return at, err
		}
		if foreign(m) { // what is after it may be ours, and is read then
			end = middle
			continue
		}
		r, err := record(m)
		if err != nil {
			return at, err
		}
		if r.Rev >= from {
			end = middle
			continue
		}
		at = r.Version
	}
	return at, nil
}
