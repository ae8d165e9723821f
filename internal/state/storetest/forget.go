package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// forgetful is the store as one that can forget, which all are.
func forgetful(t *testing.T, s runner.Store) state.Store {
	t.Helper()
	f, ok := s.(state.Store)
	if !ok {
		t.Fatalf("a store of type %T cannot forget runs", s)
	}
	return f
}

// withBlobs appends n entries and puts a small and a large blob.
func withBlobs(t *testing.T, s runner.Store, run wire.RunKey, n int) []runner.Record {
	t.Helper()
	for _, data := range contents() {
		if err := s.PutBlob(testContext(t), run, Digest(data), data); err != nil {
			t.Fatalf("put blob: %v", err)
		}
	}
	return AppendN(t, s, run, runner.Version{}, n)
}

func checkNoBlobs(t *testing.T, s runner.Store, run wire.RunKey) {
	t.Helper()
	for _, data := range contents() {
		_, err := s.Blob(testContext(t), run, Digest(data))
		wantError(t, fmt.Sprintf("blob of %d bytes of run %s", len(data), run), err, runner.ErrNotFound)
	}
}

// Purged replaces the journal that ends at base by a tombstone, and returns it.
func Purged(t *testing.T, s state.Store, run wire.RunKey, base runner.Version) runner.Record {
	t.Helper()
	keep := NextRecord(runner.Version{}, "tombstone of "+run.String())
	v, err := s.Purge(testContext(t), run, base, keep)
	if err != nil {
		t.Fatalf("purge: %v", err)
	}
	if v.Rev != 1 || v.Etag != keep.Etag {
		t.Fatalf("purge returned version %+v for %+v", v, keep.Version)
	}
	keep.Version = v
	return keep
}

// purge removes a journal that is longer than one read, and leaves a run beside it as it is.
func purge(t *testing.T, s runner.Store) {
	f, run, other := forgetful(t, s), wire.NewRunKey("trip"), wire.NewRunKey("other trip")
	records, kept := withBlobs(t, s, run, 300), withBlobs(t, s, other, 3)
	last := records[len(records)-1]
	keep := Purged(t, f, run, last.Version)
	CheckJournal(t, s, run, []runner.Record{keep})
	checkNoBlobs(t, s, run)
	for _, after := range []runner.Version{keep.Version, records[1].Version, last.Version} {
		if rest, err := s.Entries(testContext(t), run, after); err != nil || len(rest) != 0 {
			t.Errorf("entries after %+v: %v, %v, want none", after, rest, err)
		}
	}
	if err := s.Barrier(testContext(t), run, keep.Version); err != nil {
		t.Errorf("barrier of the tombstone: %v", err)
	}
	CheckJournal(t, s, other, kept)
	if got, err := s.Blob(testContext(t), other, Digest([]byte("small"))); err != nil || string(got) != "small" {
		t.Errorf("the other run's blob: %q, %v", got, err)
	}
	want := map[wire.RunKey]string{run: keep.Etag, other: kept[2].Etag}
	got := map[wire.RunKey]string{}
	for _, r := range readAll(t, s, 10) {
		got[r.Run] = r.Last.Etag
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func purgeConflict(t *testing.T, s runner.Store) {
	f, run := forgetful(t, s), wire.NewRunKey("trip")
	keep := NextRecord(runner.Version{}, "tombstone")
	_, err := f.Purge(testContext(t), run, absent, keep)
	wantError(t, "purge of a run that is not there", err, runner.ErrConflict)
	records := withBlobs(t, s, run, 3)
	for _, base := range []runner.Version{absent, records[0].Version, records[1].Version} {
		_, err := f.Purge(testContext(t), run, base, keep)
		wantError(t, fmt.Sprintf("purge at entry %d", base.Rev), err, runner.ErrConflict)
	}
	_, err = f.Purge(testContext(t), run, runner.Version{}, keep)
	wantError(t, "purge of a run without entries", err, &sdk.Error{Code: sdk.CodeInternal})
	second := NextRecord(records[0].Version, "no tombstone")
	_, err = f.Purge(testContext(t), run, records[2].Version, second)
	wantError(t, "purge with a second entry", err, &sdk.Error{Code: sdk.CodeInternal})
	CheckJournal(t, s, run, records)
	if _, err := s.Blob(testContext(t), run, Digest([]byte("small"))); err != nil {
		t.Errorf("a blob after purges that were refused: %v", err)
	}
}

// purgeRepeat repeats a purge of which nobody knows whether it was finished.
func purgeRepeat(t *testing.T, s runner.Store) {
	f, run := forgetful(t, s), wire.NewRunKey("trip")
	last := withBlobs(t, s, run, 3)[2]
	keep := Purged(t, f, run, last.Version)
	// A blob that came between: of a worker that was stopped and went on.
	if err := s.PutBlob(testContext(t), run, Digest([]byte("small")), []byte("small")); err != nil {
		t.Fatal(err)
	}
	for _, base := range []runner.Version{last.Version, keep.Version} {
		if v, err := f.Purge(testContext(t), run, base, keep); err != nil || v != keep.Version {
			t.Errorf("repeat: %+v, %v, want %+v", v, err, keep.Version)
		}
	}
	checkNoBlobs(t, s, run)
	_, err := f.Purge(testContext(t), run, last.Version, NextRecord(runner.Version{}, "another tombstone"))
	wantError(t, "another purge at the same entry", err, runner.ErrConflict)
	CheckJournal(t, s, run, []runner.Record{keep})
}

// purgeFences: whoever knows the run as it was can neither go on with it nor begin it again.
func purgeFences(t *testing.T, s runner.Store) {
	f, run := forgetful(t, s), wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 3)
	keep := Purged(t, f, run, records[2].Version)
	stale := append([]runner.Record{{}}, records...)
	check := func(when string) {
		for _, base := range stale {
			_, err := s.Append(testContext(t), run, base.Version, NextRecord(base.Version, "zombie"))
			wantError(t, fmt.Sprintf("append after entry %d %s", base.Rev, when), err, runner.ErrConflict)
		}
	}
	check("of a run that was purged")
	_, err := s.Append(testContext(t), run, runner.Version{}, records[0])
	wantError(t, "repeat of the first entry", err, runner.ErrConflict)
	wantError(t, "barrier of the last entry", s.Barrier(testContext(t), run, records[2].Version), runner.ErrConflict)
	CheckJournal(t, s, run, []runner.Record{keep})
	if err := f.Remove(testContext(t), run, keep.Version); err != nil {
		t.Fatal(err)
	}
	stale = append(stale[1:], keep) // a run of that name may begin again
	check("of a run that was removed")
	_, err = s.Head(testContext(t), run)
	wantError(t, "head", err, runner.ErrNotFound)
}

func remove(t *testing.T, s runner.Store) {
	f, run, other := forgetful(t, s), wire.NewRunKey("trip"), wire.NewRunKey("other trip")
	whole, kept := withBlobs(t, s, run, 300), withBlobs(t, s, other, 3)
	if err := f.Remove(testContext(t), run, whole[len(whole)-1].Version); err != nil {
		t.Fatalf("remove: %v", err)
	}
	for range 2 {
		if err := f.Remove(testContext(t), run, absent); err != nil {
			t.Errorf("remove of a run that is not there: %v", err)
		}
	}
	_, err := s.Head(testContext(t), run)
	wantError(t, "head", err, runner.ErrNotFound)
	if rest, err := s.Entries(testContext(t), run, runner.Version{}); err != nil || len(rest) != 0 {
		t.Errorf("entries: %d, %v, want none", len(rest), err)
	}
	checkNoBlobs(t, s, run)
	CheckJournal(t, s, other, kept)
	if all := readAll(t, s, 10); len(all) != 1 || all[0].Run != other {
		t.Errorf("runs: %v, want the other one", all)
	}
}

func removeConflict(t *testing.T, s runner.Store) {
	f, run := forgetful(t, s), wire.NewRunKey("trip")
	records := withBlobs(t, s, run, 2)
	wantError(t, "remove at an older entry", f.Remove(testContext(t), run, records[0].Version), runner.ErrConflict)
	CheckJournal(t, s, run, records)
	if got, err := s.Blob(testContext(t), run, Digest([]byte("small"))); err != nil || !bytes.Equal(got, []byte("small")) {
		t.Errorf("blob: %q, %v", got, err)
	}
}

// beginsAnew: the name of a run that was removed is free, and who still wants to remove the former run does the new one
// no harm.
func beginsAnew(t *testing.T, s runner.Store) {
	f, run := forgetful(t, s), wire.NewRunKey("trip")
	keep := Purged(t, f, run, withBlobs(t, s, run, 3)[2].Version)
	if err := f.Remove(testContext(t), run, keep.Version); err != nil {
		t.Fatal(err)
	}
	records := withBlobs(t, s, run, 2)
	wantError(t, "late remove", f.Remove(testContext(t), run, keep.Version), runner.ErrConflict)
	_, err := f.Purge(testContext(t), run, keep.Version, NextRecord(runner.Version{}, "late tombstone"))
	wantError(t, "late purge", err, runner.ErrConflict)
	CheckJournal(t, s, run, records)
	if _, err := s.Blob(testContext(t), run, Digest([]byte("small"))); err != nil {
		t.Errorf("blob of the new run: %v", err)
	}
}

// forgetAfterEnd is contextEnded for Purge and Remove.
func forgetAfterEnd(ctx context.Context, t *testing.T, s runner.Store, run wire.RunKey, base runner.Version) map[string]error {
	t.Helper()
	f := forgetful(t, s)
	_, err := f.Purge(ctx, run, base, NextRecord(runner.Version{}, "tombstone"))
	return map[string]error{"Purge": err, "Remove": f.Remove(ctx, run, base)}
}

// AmbiguousPurge tests a store behind proxy: whoever gets no answer purges again, with the same tombstone.
func AmbiguousPurge(t *testing.T, s state.Store, proxy *Proxy) {
	t.Helper()
	run := wire.NewRunKey("trip")
	last := withBlobs(t, s, run, 2)[1]
	keep := NextRecord(runner.Version{}, "tombstone")
	proxy.CutNext()
	_, err := s.Purge(testContext(t), run, last.Version, keep)
	select {
	case <-proxy.Lost():
	default:
		t.Error("no answer was lost")
	}
	Await(t, "purge", func(ctx context.Context) bool {
		keep.Version, err = s.Purge(ctx, run, last.Version, keep)
		return err == nil
	})
	CheckJournal(t, s, run, []runner.Record{keep})
	checkNoBlobs(t, s, run)
	if errors.Is(err, runner.ErrConflict) {
		t.Errorf("a repeat conflicts: %v", err)
	}
}
