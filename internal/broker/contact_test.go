package broker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
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
			at = append(at, c.contact.next(turn).what)
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
		t.Errorf("%s is probed, and nobody reads it", left.what)
	}
}

// A server that has lost all others says so, and the client forgets those that it was told of. It is given them again: those of which it was
// told lately, with who one is; over TLS no address, of which it is forgotten whose name is in its certificate.
func TestRestoreServers_KnowsThoseThatItWasTold(t *testing.T) {
	t.Parallel()
	for given, want := range map[string][]string{
		"nats://who:word@given:4222": {"nats://who:word@given:4222", "nats://who:word@n2.example:4222", "nats://who:word@10.0.0.3:4222"},
		"tls://given:4222":           {"tls://given:4222", "tls://n2.example:4222"},
	} {
		c := provisioned(t)
		if err := c.nc.SetServerPool([]string{given}); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		c.contact.servers = map[string]time.Time{"given:4222": now, "n2.example:4222": now, "10.0.0.3:4222": now, "gone:4222": now.Add(-11 * time.Minute)}
		c.rememberServers()
		for range 2 { // once is enough
			c.restoreServers()
		}
		var got []string
		for _, s := range c.nc.ServerPool() {
			got = append(got, s.URL.String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("given %s (-want +got):\n%s", given, diff)
		}
	}
}

// The server that was left may have another name, and be reached again by it.
func TestReconnected_LeavesAServerByAnotherName(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	again := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(again)
	c.contact.mu.Lock()
	c.contact.left, c.contact.names = c.nc.ConnectedServerId(), 2
	c.contact.mu.Unlock()
	c.forceReconnect()
	ctx := testContext(t)
	for n := range 3 { // by the first name, and by both others
		select {
		case <-again:
		case <-ctx.Done():
			t.Fatalf("it was left %d times, want 3", n)
		}
	}
	if err := c.nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := c.nc.Stats().Reconnects; got != 3 {
		t.Errorf("it connected %d times, want 3", got)
	}
}
