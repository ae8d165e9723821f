package sim

import (
	"context"
	"slices"

	"agentd/internal/runner"
	"agentd/sdk"
)

// memory is a run store without faults. It is not safe for concurrent use: the simulator runs one fiber at a time.
type memory struct {
	runs  map[sdk.RunKey][]runner.Record
	blobs map[string][]byte
	specs map[string][]byte
}

var _ runner.Store = (*memory)(nil)

func newMemory() *memory {
	return &memory{
		runs: map[sdk.RunKey][]runner.Record{}, blobs: map[string][]byte{}, specs: map[string][]byte{},
	}
}

// Head implements runner.Store, as do the methods that follow.
func (m *memory) Head(_ context.Context, run sdk.RunKey) (runner.Record, error) {
	records := m.runs[run]
	if len(records) == 0 {
		return runner.Record{}, runner.ErrNotFound
	}
	return records[len(records)-1], nil
}

func (m *memory) Entries(_ context.Context, run sdk.RunKey, after runner.Version) ([]runner.Record, error) {
	records := m.runs[run]
	if after.Rev >= uint64(len(records)) {
		return nil, nil
	}
	return slices.Clone(records[after.Rev:]), nil
}

func (m *memory) Append(
	_ context.Context, run sdk.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	var last runner.Version
	if records := m.runs[run]; len(records) > 0 {
		last = records[len(records)-1].Version
	}
	switch {
	case last.Etag == next.Etag:
		return last, nil
	case last != base || next.Rev != base.Rev+1:
		return runner.Version{}, runner.ErrConflict
	}
	next.Position = next.Rev
	m.runs[run] = append(m.runs[run], next)
	return next.Version, nil
}

func (m *memory) Barrier(_ context.Context, run sdk.RunKey, v runner.Version) error {
	if records := m.runs[run]; len(records) == 0 || records[len(records)-1].Version != v {
		return runner.ErrConflict
	}
	return nil
}

func (m *memory) PutBlob(_ context.Context, run sdk.RunKey, digest string, data []byte) error {
	m.blobs[run.Token+digest] = data
	return nil
}

func (m *memory) Blob(_ context.Context, run sdk.RunKey, digest string) ([]byte, error) {
	data, ok := m.blobs[run.Token+digest]
	if !ok {
		return nil, runner.ErrNotFound
	}
	return data, nil
}

func (m *memory) PutSpec(_ context.Context, digest string, data []byte) error {
	m.specs[digest] = data
	return nil
}

func (m *memory) Spec(_ context.Context, digest string) ([]byte, error) {
	data, ok := m.specs[digest]
	if !ok {
		return nil, runner.ErrNotFound
	}
	return data, nil
}

func (m *memory) Runs(context.Context, string, int) ([]runner.StoredRun, string, error) {
	return nil, "", nil
}
