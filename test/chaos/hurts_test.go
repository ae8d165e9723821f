package main

import (
	"testing"
	"time"
)

// A stop is told with what else was away while it lasted, and no longer.
func TestHurts_TellsWhatElseWasAway(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(1_000_000, 0).Add(time.Duration(s) * time.Second) }
	h := &hurts{
		absences: []hurt{{"the model", at(0), at(4)}, {"redis", at(5), at(6)}, {"redis", at(8), at(20)}, {"nobody", at(20), at(21)}},
		ends:     []time.Time{at(1), at(2), at(10), at(11), at(19), at(30)},
	}
	stall := h.stall(hurt{"SIGKILL", at(2), at(12)})
	if want := (hurt{"SIGKILL", at(2), at(10)}); stall != want {
		t.Errorf("no run ended from %s to %s, want %s to %s", stall.from, stall.until, want.from, want.until)
	}
	if got, want := h.meanwhile(stall), "redis away for 3s, the model away for 2s"; got != want {
		t.Errorf("meanwhile: %q, want %q", got, want)
	}
}
