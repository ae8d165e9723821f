// Package storetest is the suite that every runner.Store passes, and the tools to test how one behaves when the network
// fails.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// Run tests the stores that open returns. Each call opens an empty store, which its test closes.
func Run(t *testing.T, open func(t *testing.T) runner.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, runner.Store){
		"UnknownRun":          unknownRun,
		"Create":              create,
		"DuplicateCreate":     duplicateCreate,
		"ConflictLeavesTrace": conflict,
		"Repeat":              repeat,
		"Concurrent":          concurrent,
		"EntriesAfter":        entriesAfter,
		"LongJournal":         longJournal,
		"Part":                part,
		"PartOfPurged":        partOfPurged,
		"RunsAreSeparate":     separate,
		"BytesAreCopies":      copies,
		"TooLarge":            tooLarge,
		"IllegalRecord":       illegal,
		"Barrier":             barrier,
		"Blobs":               blobs,
		"Specs":               specs,
		"BadDigest":           badDigest,
		"ListRuns":            ListRuns,
		"ListNothing":         listNothing,
		"BadCursor":           badCursor,
		"ContextEnded":        contextEnded,
		"Purge":               purge,
		"PurgeConflict":       purgeConflict,
		"PurgeRepeat":         purgeRepeat,
		"PurgeFences":         purgeFences,
		"Remove":              remove,
		"RemoveConflict":      removeConflict,
		"BeginsAnew":          beginsAnew,
		"Marks":               marks,
		"EqualsModel":         equalsModel,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

// timeout bounds one subtest.
const timeout = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// Await polls until done reports true, and fails the test when it never does.
func Await(t testing.TB, what string, done func(ctx context.Context) bool) {
	t.Helper()
	ctx := testContext(t)
	poll.Until(t, timeout, what, func() bool { return done(ctx) })
}

var etags atomic.Uint64

// NextRecord returns a record with an etag of its own that may follow base.
func NextRecord(base runner.Version, data string) runner.Record {
	etag := fmt.Sprintf("etag-%d", etags.Add(1))
	return runner.Record{Version: runner.Version{Rev: base.Rev + 1, Etag: etag}, Data: []byte(data)}
}

// AppendN appends n entries to the run's journal after base, and returns their records.
func AppendN(t testing.TB, s runner.Store, run wire.RunKey, base runner.Version, n int) []runner.Record {
	t.Helper()
	records := make([]runner.Record, 0, n)
	for range n {
		r := NextRecord(base, fmt.Sprintf("entry %d of %s", base.Rev+1, run))
		v, err := s.Append(testContext(t), run, base, r)
		if err != nil {
			t.Fatalf("append entry %d: %v", r.Rev, err)
		}
		if v.Rev != r.Rev || v.Etag != r.Etag {
			t.Fatalf("append entry %d with etag %s returned version %+v", r.Rev, r.Etag, v)
		}
		r.Version, base = v, v
		records = append(records, r)
	}
	return records
}

// wholeBytes compares contents as wholes: byte by byte cmp would take minutes for large ones.
var wholeBytes = cmp.Comparer(bytes.Equal)

// CheckJournal fails the test if the run's journal is not exactly want, by Head and by Entries.
func CheckJournal(t testing.TB, s runner.Store, run wire.RunKey, want []runner.Record) {
	t.Helper()
	head, err := s.Head(testContext(t), run)
	if err != nil {
		t.Fatalf("head: %v", err)
	}
	if diff := cmp.Diff(want[len(want)-1], head, wholeBytes); diff != "" {
		t.Errorf("head (-want +got):\n%s", diff)
	}
	got, err := s.Entries(testContext(t), run, runner.Version{})
	if err != nil {
		t.Fatalf("entries: %v", err)
	}
	if diff := cmp.Diff(want, got, wholeBytes); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func wantError(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// absent is a version that no run has.
var absent = runner.Version{Rev: 1, Etag: "absent", Position: 1}

func unknownRun(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("nobody")
	_, err := s.Head(testContext(t), run)
	wantError(t, "head", err, runner.ErrNotFound)
	entries, err := s.Entries(testContext(t), run, runner.Version{})
	if err != nil || len(entries) != 0 {
		t.Errorf("entries: %v, %v, want none", entries, err)
	}
	wantError(t, "barrier", s.Barrier(testContext(t), run, absent), runner.ErrConflict)
	_, err = s.Append(testContext(t), run, absent, NextRecord(absent, "second"))
	wantError(t, "append after an entry that is not there", err, runner.ErrConflict)
}

func create(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	CheckJournal(t, s, run, AppendN(t, s, run, runner.Version{}, 1))
}

func duplicateCreate(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 1)
	_, err := s.Append(testContext(t), run, runner.Version{}, NextRecord(runner.Version{}, "another first"))
	wantError(t, "second create", err, runner.ErrConflict)
	CheckJournal(t, s, run, records)
}

func conflict(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 3)
	for _, base := range []runner.Version{{}, records[0].Version, records[1].Version} {
		_, err := s.Append(testContext(t), run, base, NextRecord(base, "late"))
		wantError(t, fmt.Sprintf("append after entry %d", base.Rev), err, runner.ErrConflict)
	}
	CheckJournal(t, s, run, records)
}

func repeat(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 2)
	for i, base := range []runner.Version{{}, records[0].Version} {
		v, err := s.Append(testContext(t), run, base, records[i])
		if i == 1 && (err != nil || v != records[1].Version) {
			t.Errorf("repeat of the last entry: %+v, %v, want %+v", v, err, records[1].Version)
		}
		if i == 0 {
			wantError(t, "repeat of an entry that others followed", err, runner.ErrConflict)
		}
	}
	CheckJournal(t, s, run, records)
}

// concurrent has writers race for every entry: a number is won by one of them, and the journal holds what they won.
func concurrent(t *testing.T, s runner.Store) {
	const writers, rounds = 8, 50
	run, ctx := wire.NewRunKey("trip"), testContext(t)
	var mu sync.Mutex
	won := map[uint64]runner.Record{}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			var base runner.Version
			for i := range rounds {
				next := NextRecord(base, fmt.Sprintf("writer %d round %d", w, i))
				v, err := s.Append(ctx, run, base, next)
				switch {
				case err == nil:
					next.Version, base = v, v
					mu.Lock()
					if other, ok := won[v.Rev]; ok {
						t.Errorf("entry %d was won by %q and %q", v.Rev, other.Data, next.Data)
					}
					won[v.Rev] = next
					mu.Unlock()
				case errors.Is(err, runner.ErrConflict):
					head, err := s.Head(ctx, run)
					if err != nil {
						t.Errorf("head: %v", err)
						return
					}
					base = head.Version
				default:
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	want := make([]runner.Record, 0, len(won))
	for rev := uint64(1); rev <= uint64(len(won)); rev++ {
		want = append(want, won[rev])
	}
	if len(want) < rounds {
		t.Errorf("%d entries were won in %d rounds: whoever meets no conflict must win", len(want), rounds)
	}
	CheckJournal(t, s, run, want)
}

func entriesAfter(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 10)
	for i, r := range records {
		got, err := s.Entries(testContext(t), run, r.Version)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(records[i+1:], append([]runner.Record{}, got...), wholeBytes); diff != "" {
			t.Errorf("entries after %d (-want +got):\n%s", r.Rev, diff)
		}
	}
}

// longJournal is longer than what a store reads at once, by number and by size.
func longJournal(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 1100)
	large := string(bytes.Repeat([]byte("x"), state.MaxEntry))
	for range 20 {
		base := records[len(records)-1].Version
		next := NextRecord(base, large)
		v, err := s.Append(testContext(t), run, base, next)
		if err != nil {
			t.Fatalf("append entry %d: %v", next.Rev, err)
		}
		next.Version = v
		records = append(records, next)
	}
	CheckJournal(t, s, run, records)
}

func separate(t *testing.T, s runner.Store) {
	var keys []wire.RunKey
	want := map[wire.RunKey][]runner.Record{}
	for i := range 20 {
		run := wire.NewRunKey(fmt.Sprint("trip ", i))
		keys = append(keys, run)
		want[run] = AppendN(t, s, run, runner.Version{}, 2)
	}
	for _, run := range keys {
		want[run] = append(want[run], AppendN(t, s, run, want[run][1].Version, 2)...)
	}
	for _, run := range keys {
		CheckJournal(t, s, run, want[run])
	}
}

func copies(t *testing.T, s runner.Store) {
	run, ctx := wire.NewRunKey("trip"), testContext(t)
	data := []byte("first")
	next := NextRecord(runner.Version{}, "")
	next.Data = data
	v, err := s.Append(ctx, run, runner.Version{}, next)
	if err != nil {
		t.Fatal(err)
	}
	want := []runner.Record{{Version: v, Data: []byte("first")}}
	data[0] = 'X'
	head, err := s.Head(ctx, run)
	if err != nil {
		t.Fatal(err)
	}
	head.Data[0] = 'Y'
	entries, err := s.Entries(ctx, run, runner.Version{})
	if err != nil || len(entries) != 1 {
		t.Fatalf("entries: %v, %v", entries, err)
	}
	entries[0].Data[0] = 'Z'
	CheckJournal(t, s, run, want)
}

func tooLarge(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	next := NextRecord(runner.Version{}, "")
	next.Data = make([]byte, state.MaxRecord+1)
	_, err := s.Append(testContext(t), run, runner.Version{}, next)
	wantError(t, "append", err, &sdk.Error{Code: sdk.CodeTooLarge})
	_, err = s.Head(testContext(t), run)
	wantError(t, "head", err, runner.ErrNotFound)
}

func illegal(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	for what, v := range map[string]runner.Version{
		"skips a number": {Rev: 2, Etag: "a"}, "has number 0": {Rev: 0, Etag: "a"}, "has no etag": {Rev: 1},
		"has a line break in its etag": {Rev: 1, Etag: "a\nb"}, "has a space in its etag": {Rev: 1, Etag: "a b"},
	} {
		_, err := s.Append(testContext(t), run, runner.Version{}, runner.Record{Version: v, Data: []byte("data")})
		wantError(t, "a record that "+what, err, &sdk.Error{Code: sdk.CodeInternal})
	}
	_, err := s.Head(testContext(t), run)
	wantError(t, "head", err, runner.ErrNotFound)
}

func barrier(t *testing.T, s runner.Store) {
	run := wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 2)
	if err := s.Barrier(testContext(t), run, records[1].Version); err != nil {
		t.Errorf("barrier of the last entry: %v", err)
	}
	wantError(t, "barrier of an older entry", s.Barrier(testContext(t), run, records[0].Version), runner.ErrConflict)
	CheckJournal(t, s, run, records)
}
