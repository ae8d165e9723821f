package cluster_test

import (
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/sdk/wire"
)

const (
	// fault is how long a run may take that meets a fault. It takes 8 to 20 s, of which servers need 4 to 9 for an election, and now and
	// then for another.
	fault = 40 * time.Second
	// quiet is how long one may take that meets none, on a machine that has other work. It takes half a second.
	quiet = 15 * time.Second
	// stall is how long a read may take that waits for nothing, on such a machine. It takes milliseconds; the client's own way of reading
	// waited for 10 s now and then.
	stall = 5 * time.Second
)

// A read of a stream whose leader is there waits for nothing, whichever server it is asked of, however short ago its consumer was made.
func TestReads_DoNotStallInAHealthyCluster(t *testing.T) {
	t.Parallel()
	s := start(t)
	const stored = 3
	for i := range stored {
		check(t, s.control.Start(t.Context(), "adder", wire.Event{
			ID: name(i), Source: "test", Type: "adder", Subject: name(i), Data: []byte(`{}`), Time: time.UnixMilli(1_795_229_924_408),
		}))
	}
	var took []time.Duration
	for _, n := range s.Nodes {
		conn := s.connect(n.URL())
		for range 40 {
			began, seen := time.Now(), 0
			check(t, conn.Deliveries(t.Context(), broker.ZoneStart, []string{"agentd.start.>"}, func(broker.Delivery) bool {
				seen++
				return true
			}))
			took = append(took, time.Since(began))
			if seen != stored {
				t.Fatalf("%d messages are read, want %d", seen, stored)
			}
		}
	}
	longest := percentile(took, 1)
	t.Logf("%d reads: half within %s, all within %s", len(took), percentile(took, 0.5), longest)
	if longest > stall {
		t.Errorf("a read took %s", longest)
	}
}

// A server that is cut off from the others answers its clients, and knows nothing any more. Worker, service and client leave it, also
// where it led all streams until then.
func TestCutOff_WorkersServicesAndClientsLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := s.leads(broker.ZoneStart)
	h, c := s.at(n)
	s.within(c, "before", quiet)
	if serverOf(h.Conn()) != n.Name {
		t.Fatalf("the worker is connected to %s, not to %s", serverOf(h.Conn()), n.Name)
	}
	n.CutOff()
	s.within(c, "meanwhile", fault)
	if serverOf(h.Conn()) == n.Name {
		t.Errorf("the worker is still connected to %s", n.Name)
	}
	s.within(c, "cut off", quiet)
	n.Rejoin()
	check(t, s.Ready(t.Context()))
	s.within(c, "after", fault)
}

// A frozen server keeps its connections and answers nothing.
func TestFrozen_ServerIsLeft(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := s.leads(broker.ZoneRun)
	_, c := s.at(n)
	s.within(c, "before", quiet)
	n.Freeze()
	s.within(c, "frozen", fault)
	n.Thaw()
	s.within(c, "after", fault)
}

// Whichever server is killed, of those that lead something, a command waits for the election.
func TestKilled_LeadersAreReplaced(t *testing.T) {
	t.Parallel()
	s := start(t)
	survivor := s.Nodes[0]
	_, c := s.at(survivor)
	s.within(c, "before", quiet)
	meta, err := s.Meta(t.Context())
	check(t, err)
	for i, n := range []interface {
		Kill()
		Begin() error
	}{meta, s.leads(broker.ZoneRun)} {
		n.Kill()
		s.within(c, name(i), fault)
		check(t, n.Begin())
		check(t, s.Ready(t.Context()))
	}
}
