package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Digest is the address of a content.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// contents are an empty one, a small one, and one that no single message of a default NATS server can hold.
func contents() [][]byte {
	return [][]byte{{}, []byte("small"), bytes.Repeat([]byte("large"), 700<<10)}
}

func checkContents(
	t *testing.T, put func(ctx context.Context, digest string, data []byte) error,
	get func(ctx context.Context, digest string) ([]byte, error),
) {
	t.Helper()
	ctx := testContext(t)
	for _, data := range contents() {
		digest := Digest(data)
		_, err := get(ctx, digest)
		wantError(t, fmt.Sprintf("%d bytes before they are put", len(data)), err, runner.ErrNotFound)
		for range 2 {
			if err := put(ctx, digest, data); err != nil {
				t.Fatalf("put %d bytes: %v", len(data), err)
			}
		}
		for range 2 {
			got, err := get(ctx, digest)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("get %d bytes: got %d, %v", len(data), len(got), err)
			}
			for i := range got {
				got[i] = 0 // the caller's own copy
			}
		}
	}
}

func blobs(t *testing.T, s runner.Store) {
	run, other := wire.NewRunKey("trip"), wire.NewRunKey("other trip")
	checkContents(t,
		func(ctx context.Context, digest string, data []byte) error { return s.PutBlob(ctx, run, digest, data) },
		func(ctx context.Context, digest string) ([]byte, error) { return s.Blob(ctx, run, digest) })
	_, err := s.Blob(testContext(t), other, Digest([]byte("small")))
	wantError(t, "another run's blob", err, runner.ErrNotFound)
	_, err = s.Spec(testContext(t), Digest([]byte("small")))
	wantError(t, "a blob read as a spec", err, runner.ErrNotFound)
	_, err = s.Head(testContext(t), run)
	wantError(t, "head of a run with blobs only", err, runner.ErrNotFound)
}

func specs(t *testing.T, s runner.Store) { checkContents(t, s.PutSpec, s.Spec) }

func badDigest(t *testing.T, s runner.Store) {
	ctx, run := testContext(t), wire.NewRunKey("trip")
	for _, digest := range []string{"", "abc", "*", ">", Digest(nil)[1:] + "A", Digest(nil) + "\n"} {
		wantError(t, "put blob", s.PutBlob(ctx, run, digest, nil), &sdk.Error{Code: sdk.CodeInternal})
		wantError(t, "put spec", s.PutSpec(ctx, digest, nil), &sdk.Error{Code: sdk.CodeInternal})
		_, err := s.Blob(ctx, run, digest)
		wantError(t, "blob", err, &sdk.Error{Code: sdk.CodeInternal})
		_, err = s.Spec(ctx, digest)
		wantError(t, "spec", err, &sdk.Error{Code: sdk.CodeInternal})
	}
}

// readAll reads all pages of a listing.
func readAll(t *testing.T, s runner.Store, limit int) []runner.StoredRun {
	t.Helper()
	var all []runner.StoredRun
	for cursor := ""; ; {
		page, next, err := s.Runs(testContext(t), cursor, limit)
		if err != nil {
			t.Fatalf("list runs after %q: %v", cursor, err)
		}
		if len(page) > limit {
			t.Fatalf("a page of at most %d has %d runs", limit, len(page))
		}
		all = append(all, page...)
		if next == "" {
			return all
		}
		if next <= cursor {
			t.Fatalf("cursor %q does not follow %q", next, cursor)
		}
		cursor = next
	}
}

// ListRuns tests the listing of an empty store.
func ListRuns(t *testing.T, s runner.Store) {
	t.Helper()
	const runs = 300
	want := map[wire.RunKey]runner.Record{}
	for i := range runs {
		run := wire.NewRunKey(fmt.Sprint("trip ", i))
		records := AppendN(t, s, run, runner.Version{}, 1+i%3)
		want[run] = records[len(records)-1]
	}
	for _, limit := range []int{7, 100, runs - 1, runs, runs + 1, 10 * state.MaxPage} {
		all := readAll(t, s, limit)
		if len(all) != runs {
			t.Errorf("pages of %d: %d runs, want %d", limit, len(all), runs)
		}
		sorted := slices.IsSortedFunc(all, func(a, b runner.StoredRun) int {
			return bytes.Compare([]byte(a.Run.String()), []byte(b.Run.String()))
		})
		if !sorted {
			t.Errorf("pages of %d: the order is not that of the keys", limit)
		}
		for _, r := range all {
			if w := want[r.Run]; r.Last.Version != w.Version || !bytes.Equal(r.Last.Data, w.Data) {
				t.Errorf("pages of %d: run %s: last record %+v, want %+v", limit, r.Run, r.Last, w)
			}
		}
	}
	page, _, err := s.Runs(testContext(t), "", 0)
	if err != nil || len(page) != 1 {
		t.Errorf("limit 0: %d runs, %v, want one", len(page), err)
	}
}

func listNothing(t *testing.T, s runner.Store) {
	if runs, next, err := s.Runs(testContext(t), "", 10); len(runs) != 0 || next != "" || err != nil {
		t.Errorf("runs of an empty store: %v, %q, %v", runs, next, err)
	}
}

func badCursor(t *testing.T, s runner.Store) {
	token := wire.NewRunKey("trip").Token
	for _, cursor := range []string{"x", "017", "256." + token, "017." + token + "x", "017.*", "-01." + token} {
		_, _, err := s.Runs(testContext(t), cursor, 10)
		wantError(t, fmt.Sprintf("cursor %q", cursor), err, &sdk.Error{Code: sdk.CodeInvalidEvent})
	}
}

// contextEnded checks every method: what a worker that shuts down sees is its own context's error.
func contextEnded(t *testing.T, s runner.Store) {
	run, digest := wire.NewRunKey("trip"), Digest(nil)
	records := AppendN(t, s, run, runner.Version{}, 1)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	expired, cancelExpired := context.WithTimeout(context.Background(), 0)
	defer cancelExpired()
	for _, ctx := range []context.Context{cancelled, expired} {
		base := records[0].Version
		_, headErr := s.Head(ctx, run)
		_, entriesErr := s.Entries(ctx, run, runner.Version{})
		_, appendErr := s.Append(ctx, run, base, NextRecord(base, "second"))
		_, blobErr := s.Blob(ctx, run, digest)
		_, specErr := s.Spec(ctx, digest)
		_, _, runsErr := s.Runs(ctx, "", 10)
		for method, err := range map[string]error{
			"Head": headErr, "Entries": entriesErr, "Append": appendErr, "Blob": blobErr, "Spec": specErr, "Runs": runsErr,
			"Barrier": s.Barrier(ctx, run, base), "PutBlob": s.PutBlob(ctx, run, digest, nil),
			"PutSpec": s.PutSpec(ctx, digest, nil),
		} {
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: error %v, want %v", method, err, ctx.Err())
			}
		}
		for method, err := range forgetAfterEnd(ctx, t, s, run, base) {
			if !errors.Is(err, ctx.Err()) {
				t.Errorf("%s: error %v, want %v", method, err, ctx.Err())
			}
		}
	}
	CheckJournal(t, s, run, records)
}
