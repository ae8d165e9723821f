package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// part reads parts of a journal whose entries are far from each other in the store, and of one that is longer than one read.
func part(t *testing.T, s runner.Store) {
	f, run, other := forgetful(t, s), wire.NewRunKey("trip"), wire.NewRunKey("other trip")
	var records []runner.Record
	var base, last runner.Version
	for range 10 {
		records = append(records, AppendN(t, s, run, base, 60)...)
		base = records[len(records)-1].Version
		between := AppendN(t, s, other, last, 20)
		last = between[len(between)-1].Version
	}
	for _, c := range []struct {
		from      uint64
		most      int
		want, end int
	}{
		{0, 3, 0, 3},
		{1, 1, 0, 1},
		{1, 600, 0, 600},
		{1, 1000, 0, 600},
		{2, 2, 1, 3},
		{299, 2, 298, 300},
		{300, 299, 299, 598},
		{590, 100, 589, 600},
		{600, 1, 599, 600},
		{600, 100, 599, 600},
		{601, 100, 600, 600},
		{1 << 40, 5, 600, 600},
	} {
		got, err := f.Part(testContext(t), run, c.from, c.most)
		if err != nil {
			t.Fatalf("%d from %d: %v", c.most, c.from, err)
		}
		if diff := cmp.Diff(records[c.want:c.end], append([]runner.Record{}, got...), wholeBytes); diff != "" {
			t.Errorf("%d from %d (-want +got):\n%s", c.most, c.from, diff)
		}
	}
	if got, err := f.Part(testContext(t), wire.NewRunKey("nobody"), 1, 10); err != nil || len(got) != 0 {
		t.Errorf("a part of an unknown run: %v, %v, want none", got, err)
	}
}

// partOfPurged reads the tombstone alone.
func partOfPurged(t *testing.T, s runner.Store) {
	f, run := forgetful(t, s), wire.NewRunKey("trip")
	records := AppendN(t, s, run, runner.Version{}, 300)
	keep := Purged(t, f, run, records[299].Version)
	for from, want := range map[uint64][]runner.Record{1: {keep}, 2: {}, 250: {}} {
		got, err := f.Part(testContext(t), run, from, 10)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, append([]runner.Record{}, got...), wholeBytes); diff != "" {
			t.Errorf("10 from %d (-want +got):\n%s", from, diff)
		}
	}
}
