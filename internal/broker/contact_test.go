package broker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

// What is read is probed while it is read, also by another consumer than the first, and no longer.
func TestProbes_EndWithWhatIsRead(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	read := func(stream string) *ordered {
		o, err := c.ordered(testContext(t), stream, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	probed := func() (at []string) {
		for turn := range c.contact.probes {
			at = append(at, c.contact.next(turn).at)
		}
		return at
	}
	starts, calls := read("AGENTD_START"), read("AGENTD_OUT")
	if err := starts.remake(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"stream AGENTD_START", "stream AGENTD_OUT"}, probed()); diff != "" {
		t.Errorf("of two readers (-want +got):\n%s", diff)
	}
	starts.close()
	if diff := cmp.Diff([]string{"stream AGENTD_OUT"}, probed()); diff != "" {
		t.Errorf("of the one that is left (-want +got):\n%s", diff)
	}
	calls.close()
	if left := c.contact.next(7); left != nil {
		t.Errorf("%s is probed, and nobody reads it", left.at)
	}
}
