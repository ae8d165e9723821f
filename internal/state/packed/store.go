package packed

import (
	"context"
	"fmt"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/sealed"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Store is a sealed.Store that packs what it is given before it is sealed, when nothing could be packed any more. Safe for concurrent use.
type Store struct {
	*sealed.Store
	plain bool
}

var _ state.Store = Store{}

// New returns a store that keeps in inner what it packs; with plain it only reads what others have packed.
func New(inner *sealed.Store, plain bool) Store { return Store{inner, plain} }

func (s Store) packed(entry []byte) []byte {
	if s.plain {
		return entry
	}
	return pack(entry)
}

// Head implements runner.Store.
func (s Store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	r, err := s.Store.Head(ctx, run)
	if err != nil {
		return runner.Record{}, err
	}
	records, err := opened(run, []runner.Record{r}, nil)
	if err != nil {
		return runner.Record{}, err
	}
	return records[0], nil
}

// Entries implements runner.Store.
func (s Store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	records, err := s.Store.Entries(ctx, run, after)
	return opened(run, records, err)
}

// Part implements runner.Store.
func (s Store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	records, err := s.Store.Part(ctx, run, from, most)
	return opened(run, records, err)
}

// opened unpacks records in place.
func opened(run wire.RunKey, records []runner.Record, err error) ([]runner.Record, error) {
	if err != nil {
		return nil, err
	}
	for i := range records {
		plain, err := unpack(records[i].Data)
		if err != nil {
			return nil, fmt.Errorf("read entry %d of run %s: %w", records[i].Rev, run, err)
		}
		records[i].Data = plain
	}
	return records, nil
}

// Append implements runner.Store. A record that is appended again may be packed otherwise by another version: stores tell it by its etag.
func (s Store) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	if len(next.Data) > state.MaxEntry {
		return runner.Version{}, sdk.Errorf(sdk.CodeTooLarge,
			"append to run %s: entry %d has %d bytes, more than %d", run, next.Rev, len(next.Data), state.MaxEntry)
	}
	next.Data = s.packed(next.Data)
	return s.Store.Append(ctx, run, base, next)
}

// Purge implements state.Store.
func (s Store) Purge(ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record) (runner.Version, error) {
	keep.Data = s.packed(keep.Data)
	return s.Store.Purge(ctx, run, base, keep)
}

// Runs implements runner.Store.
func (s Store) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	runs, next, err := s.Store.Runs(ctx, cursor, limit)
	listed(runs)
	return runs, next, err
}

// Recent implements state.Store.
func (s Store) Recent(ctx context.Context, each func(some []runner.StoredRun, since int64) (more bool, err error)) (enough bool, err error) {
	return s.Store.Recent(ctx, func(some []runner.StoredRun, since int64) (bool, error) {
		listed(some)
		return each(some, since)
	})
}

// listed unpacks the records of runs in place. One that is not whole stays as it is: it must not hide the others, and whoever decodes it
// notices.
func listed(runs []runner.StoredRun) {
	for i := range runs {
		if plain, err := unpack(runs[i].Last.Data); err == nil {
			runs[i].Last.Data = plain
		}
	}
}
