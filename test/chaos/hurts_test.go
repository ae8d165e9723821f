package main

import (
	"strings"
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

// A slow command is told with what the machine itself took of its time, and of no other.
func TestHurts_TellsWhatTheMachineTook(t *testing.T) {
	t.Parallel()
	began := time.Unix(1_000_000, 0)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	h := &hurts{delays: []delay{
		{at(0), 300 * time.Millisecond, 0},
		{at(900), 700 * time.Millisecond, 200 * time.Millisecond},
		{at(2000), 0, 150 * time.Millisecond},
		{at(3100), time.Second, time.Second},
	}}
	var said strings.Builder
	h.printSlow(&world{options: options{out: &said}, began: began}, asked{at: at(1000), took: 2 * time.Second})
	want := "  a command took 2s, from 1s on; the machine took 700ms for a byte to its disk and 350ms to keep a timer\n"
	if said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
	if got, want := h.slowness(at(400), 400*time.Millisecond), "the machine took 0s for a byte to its disk and 0s to keep a timer"; got != want {
		t.Errorf("of a time when the machine was quick: %q, want %q", got, want)
	}
}
