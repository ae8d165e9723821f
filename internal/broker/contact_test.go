package broker

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A leader that is cut off answers for a while as if it were not. What it says of the others tells.
func TestDeserted_HearsOfNoMajority(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name   string
		silent []time.Duration
		want   bool
	}{
		{"alone", nil, false},
		{"three, all heard of", []time.Duration{1 * s, 2 * s}, false},
		{"three, one is dead", []time.Duration{1 * s, 90 * s}, false},
		{"three, cut off", []time.Duration{6 * s, 6 * s}, true},
		{"three, just elected", []time.Duration{0, 0}, false},
		{"five, two are dead", []time.Duration{1 * s, 2 * s, 90 * s, 91 * s}, false},
		{"five, cut off with another", []time.Duration{1 * s, 7 * s, 7 * s, 7 * s}, true},
	} {
		info := &jetstream.ClusterInfo{}
		for _, silent := range c.silent {
			info.Replicas = append(info.Replicas, &jetstream.PeerInfo{Active: silent})
		}
		if got := deserted(info); got != c.want {
			t.Errorf("%s: deserted is %t", c.name, got)
		}
	}
	if deserted(nil) {
		t.Error("a server without a cluster is deserted")
	}
}
