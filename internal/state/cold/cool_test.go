package cold

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

var trip = wire.NewRunKey("trip")

var (
	small = []byte("small")
	large = []byte(strings.Repeat("a large content ", 1000))
)

// written writes a journal with blobs.
func written(t testing.TB, s runner.Store, run wire.RunKey, entries int) []runner.Record {
	t.Helper()
	for _, data := range [][]byte{small, large} {
		check(t, "put blob", s.PutBlob(t.Context(), run, storetest.Digest(data), data))
	}
	return storetest.AppendN(t, s, run, runner.Version{}, entries)
}

// step takes the next step with a run at its head, at a time.
func (s *Store) step(t testing.TB, run wire.RunKey, at time.Time) state.ArchiveStep {
	t.Helper()
	a := s.stepped(t, run, at)
	check(t, "archive", a.Err)
	return a.Step
}

func (s *Store) stepped(t testing.TB, run wire.RunKey, at time.Time) state.Archival {
	t.Helper()
	head, err := s.Head(t.Context(), run)
	check(t, "read head", err)
	all, err := s.Archive(t.Context(), []state.Ended{{Run: run, Version: head.Version}}, at, 1, false)
	check(t, "archive", err)
	return all[0]
}

func (s *Store) steps(t testing.TB, run wire.RunKey, at time.Time, want state.ArchiveStep) {
	t.Helper()
	if got := s.step(t, run, at); got != want {
		t.Errorf("step %q, want %q", got, want)
	}
}

// left takes both steps.
func (s *Store) left(t testing.TB, run wire.RunKey) {
	t.Helper()
	s.steps(t, run, now, state.StepArchived)
	s.steps(t, run, now.Add(Settled), state.StepThinned)
}

// intact fails the test if not all of the run can be read.
func intact(t testing.TB, s runner.Store, run wire.RunKey, want []runner.Record) {
	t.Helper()
	storetest.CheckJournal(t, s, run, want)
	for _, data := range [][]byte{small, large} {
		got, err := s.Blob(t.Context(), run, storetest.Digest(data))
		check(t, "read blob", err)
		if string(got) != string(data) {
			t.Errorf("blob of %d bytes, want %d", len(got), len(data))
		}
	}
	_, err := s.Blob(t.Context(), run, storetest.Digest([]byte("absent")))
	if !errors.Is(err, runner.ErrNotFound) {
		t.Errorf("absent blob: %v", err)
	}
}

func (s *Store) thinned(t testing.TB, run wire.RunKey) bool {
	t.Helper()
	a, err := s.Archived(t.Context(), run)
	check(t, "read head", err)
	return a.Thin
}

func TestStore_JournalsLeaveInTwoSteps(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 10)
	before := s.weight(t)
	s.steps(t, trip, now, state.StepArchived)
	s.steps(t, trip, now, state.StepNone)
	s.steps(t, trip, now.Add(Settled-time.Millisecond), state.StepNone)
	intact(t, s.Store, trip, whole)
	if s.thinned(t, trip) {
		t.Error("the journal left before its archive was an hour old")
	}
	s.steps(t, trip, now.Add(Settled), state.StepThinned)
	s.steps(t, trip, now.Add(2*Settled), state.StepNone)
	if after := s.weight(t); after.Keys != 3 || after.Bytes*10 > before.Bytes {
		t.Errorf("%+v are left of %+v", after, before)
	}
	intact(t, s, trip, whole)
	if n := s.messages(t, trip); n != 1 {
		t.Errorf("%d messages", n)
	}
}

func (s *Store) weight(t testing.TB) redisstore.Weight {
	t.Helper()
	w, err := s.Weigh(t.Context())
	check(t, "weigh", err)
	return w
}

// TestStore_OldReadersRefuse: whoever knows nothing of archives takes a journal that has left for damaged, and never for a shorter one.
func TestStore_OldReadersRefuse(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 10)
	s.left(t, trip)
	for i, r := range append([]runner.Record{{}}, whole...) {
		got, err := s.Store.Entries(t.Context(), trip, r.Version)
		if i == len(whole) {
			if err != nil || len(got) != 0 {
				t.Errorf("entries after the last: %d, %v", len(got), err)
			}
			continue
		}
		if !errors.Is(err, redisstore.ErrThinned) || !errors.Is(err, runner.ErrCorrupt) {
			t.Errorf("entries after %d: %d, %v", r.Rev, len(got), err)
		}
		if _, err := s.Store.Part(t.Context(), trip, r.Rev+1, 3); !errors.Is(err, redisstore.ErrThinned) {
			t.Errorf("part from %d: %v", r.Rev+1, err)
		}
	}
	_, err := s.Store.Append(t.Context(), trip, whole[9].Version, storetest.NextRecord(whole[9].Version, "next"))
	if !errors.Is(err, redisstore.ErrThinned) || errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("append: %v", err)
	}
}

func TestStore_JournalThatGoesOnIsBroughtBackAndArchivedAnew(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 10)
	for range 3 {
		s.left(t, trip)
		whole = append(whole, storetest.AppendN(t, s, trip, whole[len(whole)-1].Version, 2)...)
		intact(t, s.Store, trip, whole)
		if s.thinned(t, trip) {
			t.Error("it was not brought back")
		}
	}
	s.left(t, trip)
	intact(t, s, trip, whole)
	if n := s.messages(t, trip); n != 1 {
		t.Errorf("%d archives", n)
	}
}

// TestStore_RefusesArchiveOfAJournalThatGoesOn takes steps with versions that are not the last.
func TestStore_RefusesArchiveOfAJournalThatGoesOn(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 3)
	all, err := s.Archive(t.Context(), []state.Ended{{Run: trip, Version: whole[1].Version}, {Run: wire.NewRunKey("nobody"), Version: whole[2].Version}}, now, 10, false)
	check(t, "archive", err)
	if diff := cmp.Diff([]state.Archival{{}, {}}, all); diff != "" {
		t.Error(diff)
	}
	one := storetest.AppendN(t, s, wire.NewRunKey("one entry"), runner.Version{}, 1)
	s.steps(t, wire.NewRunKey("one entry"), now, state.StepNone)
	storetest.CheckJournal(t, s, wire.NewRunKey("one entry"), one)
}

func TestStore_TakesSoManySteps(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	var ended []state.Ended
	for i := range 5 {
		run := wire.NewRunKey(fmt.Sprint("run ", i))
		whole := written(t, s, run, 3)
		ended = append(ended, state.Ended{Run: run, Version: whole[2].Version})
	}
	count := func(most int, dry bool) int {
		t.Helper()
		all, err := s.Archive(t.Context(), ended, now, most, dry)
		check(t, "archive", err)
		n := 0
		for _, a := range all {
			check(t, "archive", a.Err)
			if a.Step == state.StepArchived {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		most int
		dry  bool
		want int
	}{{10, true, 5}, {3, true, 3}, {3, false, 3}, {3, true, 2}, {3, false, 2}, {3, false, 0}} {
		if got := count(c.most, c.dry); got != c.want {
			t.Errorf("%+v: %d steps", c, got)
		}
	}
}

func TestStore_LargeJournalsStay(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	var whole []runner.Record
	for i := range 3 {
		base := runner.Version{}
		if i > 0 {
			base = whole[i-1].Version
		}
		next := storetest.NextRecord(base, noise(state.MaxEntry/2, byte(i)))
		v, err := s.Append(t.Context(), trip, base, next)
		check(t, "append", err)
		next.Version = v
		whole = append(whole, next)
	}
	for range 2 {
		s.steps(t, trip, now.Add(2*Settled), state.StepNone)
	}
	a, err := s.Archived(t.Context(), trip)
	check(t, "read head", err)
	if !a.Note.Large || a.Thin || s.messages(t, trip) != 0 {
		t.Errorf("head: %+v", a)
	}
	storetest.CheckJournal(t, s, trip, whole)
	storetest.Purged(t, s, trip, whole[2].Version)
}

// TestStore_ArchiveThatIsNotAsWrittenIsWrittenAgain damages the archive before the journal leaves.
func TestStore_ArchiveThatIsNotAsWrittenIsWrittenAgain(t *testing.T) {
	t.Parallel()
	srv := start(t)
	for name, damage := range map[string]func(t *testing.T, s *Store){
		"gone": func(t *testing.T, s *Store) { check(t, "delete", s.delete(t.Context(), trip, 1<<40)) },
		"altered": func(t *testing.T, s *Store) {
			a, err := s.Archived(t.Context(), trip)
			check(t, "read head", err)
			m, err := s.at(t.Context(), trip, a.Note.Sequence)
			check(t, "read archive", err)
			m.data[len(m.data)-1]++
			sequence, err := s.publish(t.Context(), trip, m.data, m.sequence)
			check(t, "alter", err)
			check(t, "note", s.Note(t.Context(), trip, a.Note, redisstore.Note{Etag: a.Etag, Sequence: sequence, At: a.Note.At}))
		},
		"another": func(t *testing.T, s *Store) {
			a, err := s.Archived(t.Context(), trip)
			check(t, "read head", err)
			other := sample
			other.run = trip
			archive, err := pack(other.content())
			check(t, "pack", err)
			sequence, err := s.publish(t.Context(), trip, archive, a.Note.Sequence)
			check(t, "replace", err)
			check(t, "note", s.Note(t.Context(), trip, a.Note, redisstore.Note{Etag: a.Etag, Sequence: sequence, At: a.Note.At}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := srv.fresh(t)
			whole := written(t, s, trip, 5)
			s.steps(t, trip, now, state.StepArchived)
			damage(t, s)
			s.steps(t, trip, now.Add(Settled), state.StepArchived)
			intact(t, s.Store, trip, whole)
			s.steps(t, trip, now.Add(Settled+time.Minute), state.StepNone)
			s.steps(t, trip, now.Add(2*Settled), state.StepThinned)
			intact(t, s, trip, whole)
		})
	}
}

// TestStore_LostArchiveIsSaidClearly: what is left in Redis is not touched.
func TestStore_LostArchiveIsSaidClearly(t *testing.T) {
	t.Parallel()
	srv := start(t)
	for name, c := range map[string]struct {
		damage func(t *testing.T, s *Store)
		says   string
	}{
		"gone": {func(t *testing.T, s *Store) { check(t, "delete", s.delete(t.Context(), trip, 1<<40)) }, "its archive is gone: message 1 of ROOT"},
		"emptied stream": {func(t *testing.T, s *Store) {
			check(t, "delete stream", s.js.DeleteStream(t.Context(), s.stream))
		}, "_COLD, which cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := srv.fresh(t)
			whole := written(t, s, trip, 5)
			s.left(t, trip)
			before := s.weight(t)
			c.damage(t, s)
			_, err := s.Entries(t.Context(), trip, runner.Version{})
			_, partErr := s.Part(t.Context(), trip, 2, 1)
			_, blobErr := s.Blob(t.Context(), trip, storetest.Digest(small))
			_, appendErr := s.Append(t.Context(), trip, whole[4].Version, storetest.NextRecord(whole[4].Version, "next"))
			for what, err := range map[string]error{"entries": err, "part": partErr, "blob": blobErr, "append": appendErr} {
				if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, runner.ErrNotFound) || !strings.Contains(err.Error(), trip.String()) {
					t.Errorf("%s: %v", what, err)
				}
			}
			head, err := s.Head(t.Context(), trip)
			check(t, "read head", err)
			if head.Etag != whole[4].Etag || s.weight(t) != before {
				t.Errorf("head %+v, %+v", head.Version, s.weight(t))
			}
		})
	}
}

// TestStore_EmptiedRedisKeepsTheArchives: they are all there is of the runs.
func TestStore_EmptiedRedisKeepsTheArchives(t *testing.T) {
	t.Parallel()
	srv := start(t)
	s := srv.fresh(t)
	whole := written(t, s, trip, 5)
	s.left(t, trip)
	srv.redis.Wipe()
	storetest.Await(t, "Redis", func(ctx context.Context) bool {
		_, err := s.Head(ctx, trip)
		return errors.Is(err, runner.ErrNotFound)
	})
	all, err := s.Archive(t.Context(), []state.Ended{{Run: trip, Version: whole[4].Version}, {Run: trip, Version: whole[4].Version, Purged: true}}, now.Add(30*24*time.Hour), 10, false)
	check(t, "archive", err)
	if diff := cmp.Diff([]state.Archival{{}, {}}, all); diff != "" {
		t.Error(diff)
	}
	check(t, "remove", s.Remove(t.Context(), trip, whole[4].Version))
	if n := s.messages(t, trip); n != 1 {
		t.Errorf("%d archives", n)
	}
	// A run that takes the name has an archive of its own.
	again := written(t, s, trip, 3)
	s.left(t, trip)
	intact(t, s, trip, again)
}

// TestStore_RedisThatWasSetBackReadsANewerArchive: the one that it noted is replaced.
func TestStore_RedisThatWasSetBackReadsANewerArchive(t *testing.T) {
	t.Parallel()
	srv := start(t)
	s := srv.fresh(t)
	whole := written(t, s, trip, 5)
	s.left(t, trip)
	c := redis.NewClient(&redis.Options{Addr: srv.redis.Addr()})
	defer func() { check(t, "close client", c.Close()) }()
	keys, err := c.Keys(t.Context(), s.subjects.Root()+":*").Result()
	check(t, "list keys", err)
	saved := map[string]string{}
	for _, key := range keys {
		saved[key], err = c.Dump(t.Context(), key).Result()
		check(t, "save "+key, err)
	}
	later := append(slices.Clone(whole), storetest.AppendN(t, s, trip, whole[4].Version, 2)...)
	s.left(t, trip)
	intact(t, s, trip, later)
	for key, value := range saved {
		check(t, "restore "+key, c.RestoreReplace(t.Context(), key, 0, value).Err())
	}
	intact(t, s, trip, whole)
	whole = append(whole, storetest.AppendN(t, s, trip, whole[4].Version, 1)...)
	intact(t, s.Store, trip, whole)
	s.left(t, trip)
	intact(t, s, trip, whole)
}

// TestStore_ForeignMessagesChangeNothing has the server answer on the subject of an archive, as whoever may ask it for something can.
func TestStore_ForeignMessagesChangeNothing(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	foreign := func() {
		t.Helper()
		before := s.messages(t, trip)
		request := &nats.Msg{Subject: "$JS.API.INFO", Reply: s.subjects.Cold(trip)}
		check(t, "ask", s.js.Conn().PublishMsg(request))
		storetest.Await(t, "answer", func(context.Context) bool { return s.messages(t, trip) > before })
	}
	whole := written(t, s, trip, 5)
	foreign()
	s.steps(t, trip, now, state.StepArchived)
	if n := s.messages(t, trip); n != 1 {
		t.Errorf("%d messages", n)
	}
	foreign()
	s.steps(t, trip, now.Add(Settled), state.StepThinned)
	foreign()
	intact(t, s, trip, whole)
	whole = append(whole, storetest.AppendN(t, s, trip, whole[4].Version, 1)...)
	s.left(t, trip)
	intact(t, s, trip, whole)
	if n := s.messages(t, trip); n != 1 {
		t.Errorf("%d messages", n)
	}
}

// TestStore_OlderJournalDoesNotReplaceTheArchive archives a run twice at once, of which one has read an older journal.
func TestStore_OlderJournalDoesNotReplaceTheArchive(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 5)
	there, err := s.newest(t.Context(), trip)
	check(t, "look", err)
	older, err := pack((&journal{run: trip, records: whole[:3]}).content())
	check(t, "pack", err)
	s.left(t, trip)
	if _, err = s.publish(t.Context(), trip, older, there.sequence); !errors.Is(err, runner.ErrConflict) {
		t.Errorf("publish: %v", err)
	}
	intact(t, s, trip, whole)
}

// TestStore_AppendRacesWithLeaving has appends and steps at once, again and again: no entry is lost, and no blob.
func TestStore_AppendRacesWithLeaving(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 3)
	done := make(chan struct{})
	var leaving sync.WaitGroup
	for range 2 {
		leaving.Go(func() {
			for at := now; ; at = at.Add(Settled) {
				select {
				case <-done:
					return
				default:
				}
				head, err := s.Head(t.Context(), trip)
				if err != nil {
					t.Errorf("head: %v", err)
					return
				}
				all, err := s.Archive(t.Context(), []state.Ended{{Run: trip, Version: head.Version}}, at, 1, false)
				if err != nil || all[0].Err != nil && !errors.Is(all[0].Err, errOther) {
					t.Errorf("archive: %v, %+v", err, all)
					return
				}
			}
		})
	}
	for len(whole) < 60 {
		base := whole[len(whole)-1].Version
		next := storetest.NextRecord(base, fmt.Sprint("entry ", len(whole)))
		v, err := s.Append(t.Context(), trip, base, next)
		if errors.Is(err, runner.ErrConflict) {
			continue
		}
		check(t, "append", err)
		next.Version = v
		whole = append(whole, next)
		intact(t, s, trip, whole)
	}
	close(done)
	leaving.Wait()
	intact(t, s, trip, whole)
}
