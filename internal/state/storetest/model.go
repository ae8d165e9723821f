package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"agentd/internal/runner"
	"agentd/internal/state/memory"
	"agentd/sdk/wire"
)

// samePlaces ignores what each store sets on its own.
var samePlaces = cmp.Options{cmpopts.IgnoreFields(runner.Version{}, "Position"), cmpopts.EquateEmpty()}

// equalsModel does the same to the store and to the one in memory, at random, and compares all that they answer.
func equalsModel(t *testing.T, s runner.Store) {
	var history atomic.Uint64
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{ctx: context.Background(), store: s, model: memory.New(), known: map[wire.RunKey][]pair{}}
		n := history.Add(1) // a store is not emptied between histories
		for i := range 3 {
			m.runs = append(m.runs, wire.NewRunKey(fmt.Sprintf("history %d run %d", n, i)))
		}
		m.touched = m.runs[0]
		t.Repeat(map[string]func(*rapid.T){
			"append": m.append, "repeat": m.repeat, "entries": m.entries, "barrier": m.barrier, "blob": m.blob, "": m.head,
		})
	})
}

// pair is a record as the store and the model address it.
type pair struct {
	base, at [2]runner.Version
	record   runner.Record
}

type machine struct {
	ctx   context.Context
	store runner.Store
	model *memory.Store
	runs  []wire.RunKey
	// touched is the run that the last step was about.
	touched wire.RunKey
	// known are the records that were appended to each run, in order.
	known map[wire.RunKey][]pair
}

// class is what a caller may tell errors apart by.
func class(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, runner.ErrConflict):
		return "conflict"
	case errors.Is(err, runner.ErrNotFound):
		return "not found"
	}
	return err.Error()
}

func same(t *rapid.T, what string, got, want error) bool {
	t.Helper()
	if class(got) != class(want) {
		t.Fatalf("%s: %v, the model says %v", what, got, want)
	}
	return want == nil
}

func (m *machine) run(t *rapid.T) wire.RunKey {
	m.touched = rapid.SampledFrom(m.runs).Draw(t, "run")
	return m.touched
}

func (m *machine) point(t *rapid.T, run wire.RunKey) pair {
	points := append([]pair{{}}, m.known[run]...)
	// The last one is what most callers build on.
	i := rapid.OneOf(rapid.Just(len(points)-1), rapid.IntRange(0, len(points)-1)).Draw(t, "point")
	return points[i]
}

func (m *machine) append(t *rapid.T) {
	run := m.run(t)
	base := m.point(t, run)
	next := NextRecord(base.at[0], rapid.String().Draw(t, "data"))
	p := pair{base: base.at, record: next}
	var got, want error
	p.at[0], got = m.store.Append(m.ctx, run, base.at[0], next)
	p.at[1], want = m.model.Append(m.ctx, run, base.at[1], next)
	if same(t, "append", got, want) {
		m.known[run] = append(m.known[run], p)
	}
}

func (m *machine) repeat(t *rapid.T) {
	run := m.run(t)
	p := m.point(t, run)
	if p.record.Rev == 0 {
		t.Skip("the run has no entry")
	}
	v, got := m.store.Append(m.ctx, run, p.base[0], p.record)
	_, want := m.model.Append(m.ctx, run, p.base[1], p.record)
	if same(t, "repeat", got, want) && v != p.at[0] {
		t.Fatalf("repeat returned %+v, not %+v", v, p.at[0])
	}
}

func (m *machine) entries(t *rapid.T) {
	run := m.run(t)
	after := m.point(t, run)
	got, gotErr := m.store.Entries(m.ctx, run, after.at[0])
	want, wantErr := m.model.Entries(m.ctx, run, after.at[1])
	same(t, "entries", gotErr, wantErr)
	if diff := cmp.Diff(want, got, samePlaces); diff != "" {
		t.Fatalf("entries after %d (-model +store):\n%s", after.at[0].Rev, diff)
	}
}

func (m *machine) barrier(t *rapid.T) {
	run := m.run(t)
	p := m.point(t, run)
	if p.record.Rev == 0 {
		t.Skip("the run has no entry")
	}
	same(t, "barrier", m.store.Barrier(m.ctx, run, p.at[0]), m.model.Barrier(m.ctx, run, p.at[1]))
}

func (m *machine) blob(t *rapid.T) {
	run := m.run(t)
	data := []byte(rapid.StringN(0, 3, -1).Draw(t, "content"))
	digest := Digest(data)
	if rapid.Bool().Draw(t, "put") {
		same(t, "put blob", m.store.PutBlob(m.ctx, run, digest, data), m.model.PutBlob(m.ctx, run, digest, data))
	}
	got, gotErr := m.store.Blob(m.ctx, run, digest)
	want, wantErr := m.model.Blob(m.ctx, run, digest)
	if same(t, "blob", gotErr, wantErr) && !bytes.Equal(got, want) {
		t.Fatalf("blob %q, the model says %q", got, want)
	}
}

// head is also compared after every step, of the run that the step was about.
func (m *machine) head(t *rapid.T) {
	run := m.touched
	got, gotErr := m.store.Head(m.ctx, run)
	want, wantErr := m.model.Head(m.ctx, run)
	same(t, "head", gotErr, wantErr)
	if diff := cmp.Diff(want, got, samePlaces); diff != "" {
		t.Fatalf("head (-model +store):\n%s", diff)
	}
	if known := m.known[run]; len(known) > 0 && got.Version != known[len(known)-1].at[0] {
		t.Fatalf("head is at %+v, Append said %+v", got.Version, known[len(known)-1].at[0])
	}
}
