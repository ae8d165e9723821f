package natsstore

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// The server puts its answers on whatever reply subject a request names, so anybody can have such a message stored on the
// subject of a journal or a content. It is passed over: before the first entry, between two, and after the last.
func TestStore_PassesOverWhatNoStoreWrote(t *testing.T) {
	t.Parallel()
	s, run := open(t), wire.NewRunKey("trip")
	foreign := func(subject string) {
		t.Helper()
		if _, err := s.js.Publish(t.Context(), subject, []byte(`{"stream":"AGENTD_START","seq":7}`)); err != nil {
			t.Fatal(err)
		}
	}
	journal := s.subjects.Journal(run)
	foreign(journal)
	if runs, _, err := s.Runs(t.Context(), "", 10); err != nil || len(runs) > 0 {
		t.Errorf("runs before the first entry: %+v, %v", runs, err)
	}
	records := storetest.AppendN(t, s, run, runner.Version{}, 1)
	foreign(journal)
	foreign(journal)
	records = append(records, storetest.AppendN(t, s, run, records[0].Version, 2)...)
	foreign(journal)
	storetest.CheckJournal(t, s, run, records)
	if runs, _, err := s.Runs(t.Context(), "", 10); err != nil || len(runs) != 1 || runs[0].Last.Etag != records[2].Etag {
		t.Errorf("runs: %+v, %v", runs, err)
	}
	if err := s.Barrier(t.Context(), run, records[2].Version); err != nil {
		t.Error(err)
	}

	large := bytes.Repeat([]byte("content "), maxChunk/4)
	for _, data := range [][]byte{[]byte("small"), large} {
		digest := core.Digest(data)
		subject := s.subjects.Spec(digest)
		for _, on := range []string{subject, chunkSubject(subject, 1)} {
			foreign(on)
		}
		if err := s.PutSpec(t.Context(), digest, data); err != nil {
			t.Fatal(err)
		}
		for _, on := range []string{subject, chunkSubject(subject, 1)} {
			foreign(on)
		}
		if err := s.PutSpec(t.Context(), digest, data); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Spec(t.Context(), digest); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes of %d come back: %v", len(got), len(data), err)
		}
	}
}

// More foreign messages than one request reads do not hide the entry behind them.
func TestStore_ReadsPastManyForeignMessages(t *testing.T) {
	t.Parallel()
	s, run := open(t), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 1)
	for range batchEntries + 1 {
		if _, err := s.js.Publish(t.Context(), s.subjects.Journal(run), nil); err != nil {
			t.Fatal(err)
		}
	}
	records = append(records, storetest.AppendN(t, s, run, records[0].Version, 1)...)
	storetest.CheckJournal(t, s, run, records)
}

// However many foreign messages follow an entry, it is found, appended to and found again with few requests.
func TestStore_FindsItsLastEntryBehindManyForeignMessages(t *testing.T) {
	t.Parallel()
	s, run := open(t), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 2)
	const many = 4 * batchEntries
	for range many {
		if err := s.js.Conn().Publish(s.subjects.Journal(run), nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.js.Publish(ctx, s.subjects.Journal(run), nil); err != nil { // it is stored after all others
		t.Fatal(err)
	}
	before := s.js.Conn().Stats().OutMsgs
	for range 3 {
		head, err := s.Head(t.Context(), run)
		if err != nil || head.Etag != records[1].Etag {
			t.Fatalf("the head is %+v, %v", head.Version, err)
		}
	}
	if n := s.js.Conn().Stats().OutMsgs - before; n > 20 {
		t.Errorf("%d requests for three heads behind %d foreign messages", n, many)
	}
	records = append(records, storetest.AppendN(t, s, run, records[1].Version, 1)...)
	storetest.CheckJournal(t, s, run, records)

	// An entry that was removed is not found by what was remembered of it.
	if _, err := s.js.Publish(t.Context(), s.subjects.Journal(run), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Head(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if err := s.Remove(t.Context(), run, records[2].Version); err != nil {
		t.Fatal(err)
	}
	if head, err := s.Head(t.Context(), run); !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("the head of a run that was removed is %+v, %v", head.Version, err)
	}
}
