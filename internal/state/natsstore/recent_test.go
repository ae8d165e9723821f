package natsstore

import (
	"fmt"
	"slices"
	"testing"

	"agentd/internal/runner"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// The runs that were written last are told first, each once, and no more of them than somebody wants.
func TestStore_TellsOfRecentRuns(t *testing.T) {
	t.Parallel()
	s := open(t)
	const runs = 600 // more than two requests have
	var want []wire.RunKey
	var first runner.Version
	for n := range runs {
		key := wire.NewRunKey(fmt.Sprint("run ", n))
		records := storetest.AppendN(t, s, key, runner.Version{}, 1)
		if want = append(want, key); n == 0 {
			first = records[0].Version
		}
	}
	told := func(pieces int) (keys []wire.RunKey, enough bool) {
		t.Helper()
		var before int64
		enough, err := s.Recent(t.Context(), func(some []runner.StoredRun, since int64) (bool, error) {
			if since <= 0 || before > 0 && since > before {
				t.Errorf("a piece goes back to %d, and the one before to %d", since, before)
			}
			before = since
			for _, r := range some {
				if r.Run == want[0] && r.Last.Rev != 2 {
					t.Errorf("of the first run, entry %d is told", r.Last.Rev)
				}
				keys = append(keys, r.Run)
			}
			pieces--
			return pieces > 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return keys, enough
	}
	if keys, enough := told(1); len(keys) != 0 || enough {
		t.Errorf("a small stream is read from its end: %d runs, %v", len(keys), enough)
	}
	s.wholeList = 0
	storetest.AppendN(t, s, want[0], first, 1)
	newest := append(slices.Clone(want[1:]), want[0])
	slices.Reverse(newest)
	if keys, enough := told(1); !enough || len(keys) != batchEntries || !slices.Equal(keys, newest[:batchEntries]) {
		t.Errorf("the first piece has %d runs, %v", len(keys), enough)
	}
	if keys, enough := told(100); enough || !slices.Equal(keys, newest) {
		t.Errorf("all pieces have %d runs of %d, %v", len(keys), runs, enough)
	}
}
