package cold

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/runner"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

func TestStore_PurgeDeletesTheArchive(t *testing.T) {
	t.Parallel()
	srv := start(t)
	for name, steps := range map[string]int{"archived": 1, "out of Redis": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := srv.fresh(t)
			other := wire.NewRunKey("other")
			whole, kept := written(t, s, trip, 5), written(t, s, other, 5)
			s.left(t, other)
			for i := range steps {
				s.step(t, trip, now.Add(time.Duration(i)*Settled))
			}
			keep := storetest.Purged(t, s, trip, whole[4].Version)
			if n := s.messages(t, trip); n != 0 {
				t.Errorf("%d archives are left", n)
			}
			a, err := s.Archived(t.Context(), trip)
			check(t, "read head", err)
			if diff := cmp.Diff(redisstore.Archived{Rev: 1, Etag: keep.Etag}, a); diff != "" {
				t.Errorf("head (-want +got):\n%s", diff)
			}
			check(t, "remove", s.Remove(t.Context(), trip, keep.Version))
			intact(t, s, other, kept)
		})
	}
}

// TestStore_PurgeNeedsNoStream: without it there is nothing to delete.
func TestStore_PurgeNeedsNoStream(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	other := wire.NewRunKey("other")
	whole, begun := written(t, s, trip, 5), written(t, s, other, 5)
	s.left(t, trip)
	check(t, "note", s.Note(t.Context(), other, redisstore.Note{}, redisstore.Note{Etag: begun[4].Etag, At: 1}))
	check(t, "delete stream", s.js.DeleteStream(t.Context(), s.stream))
	for run, v := range map[wire.RunKey]runner.Version{trip: whole[4].Version, other: begun[4].Version} {
		storetest.Purged(t, s, run, v)
		if a, err := s.Archived(t.Context(), run); err != nil || a.Note != (redisstore.Note{}) {
			t.Errorf("%+v, %v", a, err)
		}
	}
}

// TestStore_RemoveDeletesTheArchive removes a run without a tombstone.
func TestStore_RemoveDeletesTheArchive(t *testing.T) {
	t.Parallel()
	s := start(t).fresh(t)
	whole := written(t, s, trip, 5)
	s.left(t, trip)
	if err := s.Remove(t.Context(), trip, whole[3].Version); !errors.Is(err, runner.ErrConflict) {
		t.Errorf("remove at an older entry: %v", err)
	}
	intact(t, s, trip, whole)
	check(t, "remove", s.Remove(t.Context(), trip, whole[4].Version))
	if w := s.weight(t); w.Keys != 0 || s.messages(t, trip) != 0 {
		t.Errorf("%+v are left, and %d archives", w, s.messages(t, trip))
	}
}
