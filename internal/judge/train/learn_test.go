package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/judge"
)

// TestTable_KeepsWhatWeighs: a feature is left out only where no judge has anything for it.
func TestTable_KeepsWhatWeighs(t *testing.T) {
	t.Parallel()
	data, units := table(map[judge.Name]model{
		judge.Unverified: {127, 0, 1, 0.4},
		judge.Incomplete: {0, 0, 0, 254},
		judge.Deflecting: {-127, 0.4, 0, 0},
	}, []uint32{7, 258, 300, 1 << 24})
	want := []byte{
		7, 0, 0, 0, 127, 0, 129,
		44, 1, 0, 0, 1, 0, 0,
		0, 0, 0, 1, 0, 127, 0,
	}
	if diff := cmp.Diff(want, data); diff != "" {
		t.Errorf("rows (-want +made):\n%s", diff)
	}
	if units[judge.Unverified] != 1 || units[judge.Incomplete] != 2 {
		t.Errorf("units %v", units)
	}
}

// TestLearn_TellsApart: what both kinds of texts have weighs little beside what only one has.
func TestLearn_TellsApart(t *testing.T) {
	t.Parallel()
	var all []*sample
	for i := range 40 {
		s := &sample{Class: honest, writer: "somebody", features: []feature{{0, 1}, {1, 1}}}
		if i%2 == 0 {
			s.Class, s.features = string(judge.Incomplete), []feature{{0, 1}, {2, 1}}
		}
		all = append(all, s)
	}
	m := learn(all, 3, "nobody", (*sample).original)
	if m[2] <= 1 || m[1] >= -1 || m[0] > 0.5 || m[0] < -0.5 {
		t.Errorf("weights %v", m)
	}
	if diff := cmp.Diff(m, learn(all, 3, "nobody", (*sample).original)); diff != "" {
		t.Errorf("other weights from the same texts:\n%s", diff)
	}
	if none := learn(all, 3, "somebody", (*sample).original); none[1] != 0 || none[2] != 0 {
		t.Errorf("weights %v from the texts of nobody", none)
	}
}
