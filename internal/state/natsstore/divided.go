package natsstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// divided is a store whose runs are on several streams: each has as many of the runs' partitions, in their order. Specs are on the first.
// Safe for concurrent use.
type divided struct{ parts []*Store }

var _ state.Store = divided{}

// Open returns a store in existing streams as New does, of which each has the runs of as many partitions, in their order. Their number
// divides 256. The first also has the specs.
func Open(js jetstream.JetStream, streams []string, subjects wire.Subjects) state.Store {
	if len(streams) == 1 {
		return New(js, streams[0], subjects)
	}
	var d divided
	for i, stream := range streams {
		s := New(js, stream, subjects)
		s.from, s.to = i*partitions/len(streams), (i+1)*partitions/len(streams)
		d.parts = append(d.parts, s)
	}
	return d
}

// at is the place of the part that has the runs of a partition; of none it is the first.
func (d divided) at(partition string) int {
	p, err := strconv.Atoi(partition)
	if err != nil || p < 0 || p >= partitions {
		return 0
	}
	return p * len(d.parts) / partitions
}

func (d divided) of(run wire.RunKey) *Store { return d.parts[d.at(run.Partition)] }

// noRun is in place of a run's token, which no run has.
const noRun = "none"

// ofNoRun is the subject of a content that is of no run: a spec, or, on streams that have none, a blob in the place of a run's.
func (s *Store) ofNoRun(digest string) string {
	if s.from == 0 {
		return s.subjects.Spec(digest)
	}
	return s.subjects.Blob(wire.RunKey{Partition: fmt.Sprintf("%03d", s.from), Token: noRun}, digest)
}

// Head implements runner.Store.
func (d divided) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	return d.of(run).Head(ctx, run)
}

// Entries implements runner.Store.
func (d divided) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	return d.of(run).Entries(ctx, run, after)
}

// Append implements runner.Store.
func (d divided) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	return d.of(run).Append(ctx, run, base, next)
}

// Barrier implements runner.Store.
func (d divided) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	return d.of(run).Barrier(ctx, run, v)
}

// PutBlob implements runner.Store.
func (d divided) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	return d.of(run).PutBlob(ctx, run, digest, data)
}

// Blob implements runner.Store.
func (d divided) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	return d.of(run).Blob(ctx, run, digest)
}

// PutSpec implements runner.Store.
func (d divided) PutSpec(ctx context.Context, digest string, data []byte) error {
	return d.parts[0].PutSpec(ctx, digest, data)
}

// Spec implements runner.Store.
func (d divided) Spec(ctx context.Context, digest string) ([]byte, error) {
	return d.parts[0].Spec(ctx, digest)
}

// Part implements runner.Store.
func (d divided) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	return d.of(run).Part(ctx, run, from, most)
}

// Purge implements state.Store.
func (d divided) Purge(ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record) (runner.Version, error) {
	return d.of(run).Purge(ctx, run, base, keep)
}

// Remove implements state.Store.
func (d divided) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	return d.of(run).Remove(ctx, run, base)
}

// Writable implements state.Store.
func (d divided) Writable(ctx context.Context) error {
	for _, part := range d.parts {
		if err := part.Writable(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Mark implements state.Store: each stream can be lost by itself.
func (d divided) Mark(ctx context.Context, name, mark string) error {
	for _, part := range d.parts {
		if err := part.Mark(ctx, name, mark); err != nil {
			return err
		}
	}
	return nil
}

// Marked implements state.Store.
func (d divided) Marked(ctx context.Context, name, mark string) (bool, error) {
	for _, part := range d.parts {
		if marked, err := part.Marked(ctx, name, mark); err != nil || !marked {
			return false, err
		}
	}
	return true, nil
}

// Runs implements runner.Store: the streams have the runs in the order of a listing, so a page is the rest of one and the beginning of
// the next.
func (d divided) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	after, err := state.ParseCursor(cursor)
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", err)
	}
	size := state.PageSize(limit)
	var runs []runner.StoredRun
	for i := d.at(after.Partition); i < len(d.parts); i++ {
		some, next, err := d.parts[i].Runs(ctx, cursor, size-len(runs))
		if err != nil {
			return nil, "", err
		}
		runs = append(runs, some...)
		switch {
		case next != "":
			return runs, next, nil
		case len(runs) >= size && i+1 < len(d.parts):
			return runs, runs[len(runs)-1].Run.String(), nil
		}
		cursor = "" // the next stream from its beginning
	}
	return runs, "", nil
}
