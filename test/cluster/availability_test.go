package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
	"agentd/test/cluster"
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
		check(t, s.control.Start(t.Context(), "adder", initOf(name(i))))
	}
	var took []time.Duration
	for _, n := range s.Nodes {
		took = append(took, reads(t, s.connect(n.URL()), 40, stored)...)
	}
	longest := percentile(took, 1)
	t.Logf("%d reads: half within %s, all within %s", len(took), percentile(took, 0.5), longest)
	if longest > stall {
		t.Errorf("a read took %s", longest)
	}
}

// reads reads all init events so many times, and returns how long each took.
func reads(t *testing.T, conn *broker.Conn, times, stored int) []time.Duration {
	t.Helper()
	var took []time.Duration
	for range times {
		began, seen := time.Now(), 0
		check(t, conn.Deliveries(t.Context(), streams.Start, []string{"agentd.start.>"}, func(broker.Delivery) bool {
			seen++
			return true
		}))
		took = append(took, time.Since(began))
		if seen != stored {
			t.Fatalf("%d messages are read, want %d", seen, stored)
		}
	}
	return took
}

// A reader's consumer may be given to a server that was just killed: others do not know yet, and it stays there. The reader has another one made,
// and does not wait until that server is back.
func TestReads_DoNotWaitForAServerThatIsAway(t *testing.T) {
	t.Parallel()
	s := start(t)
	check(t, s.control.Start(t.Context(), "adder", initOf(name(0))))
	meta, err := s.Meta(t.Context())
	check(t, err)
	var away, there *cluster.Node
	for _, n := range s.Nodes {
		if n != meta && n != s.leads(streams.Start) {
			away = n
		} else {
			there = n
		}
	}
	conn := s.connect(there.URL())
	away.Kill()
	took := reads(t, conn, 20, 1)
	t.Logf("%d reads: half within %s, all within %s", len(took), percentile(took, 0.5), percentile(took, 1))
}

// A server that is cut off from the others answers its clients, and knows nothing any more. Worker, service and client leave it, also
// where it led all streams until then.
func TestCutOff_WorkersServicesAndClientsLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := s.leads(streams.Start)
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

// Who only reads, by a consumer on the server that is cut off, asks for nothing that would tell: the consumer goes on saying that there is
// nothing. It leaves all the same, and misses nothing.
func TestCutOff_ReadersLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := s.leads(streams.Start)
	var r *reader
	for i := 0; r == nil || r.consumer().Cluster.Leader != n.Name; i++ { // its consumer is on any of three
		if r != nil {
			r.end()
		}
		r = s.reader(n)
		check(t, s.control.Start(t.Context(), "adder", initOf(name(i))))
		r.await(name(i))
	}
	others := s.connect(s.other(r.conn).URL())
	n.CutOff()
	check(t, others.Start(t.Context(), "adder", initOf("meanwhile")))
	r.await("meanwhile")
	if serverOf(r.conn) == n.Name {
		t.Errorf("the reader is still connected to %s", n.Name)
	}
	r.end()
	n.Rejoin()
	check(t, s.Ready(t.Context()))
}

// A desk asks workers, of which none is left on the server that is cut off. It leaves, and hears of what was asked meanwhile.
func TestCutOff_DesksLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := s.leads(streams.Start)
	_, c := s.at(n)
	s.within(c, "before", quiet)
	desk := s.connectTo(n)
	calls, caughtUp := make(chan string, 100), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan error, 1)
	go func() {
		followed <- desk.Follow(ctx, ctx, streams.Out, "agentd.out.>", func() { close(caughtUp) }, func(d broker.Delivery) { calls <- d.Subject() })
	}()
	<-caughtUp
	if call := <-calls; !strings.HasPrefix(call, "agentd.out.") {
		t.Errorf("it hears of %s", call)
	}
	n.CutOff()
	s.within(c, "meanwhile", fault)
	select {
	case <-calls:
	case <-time.After(2 * fault):
		t.Errorf("it hears of no call within %s", 2*fault)
	}
	if serverOf(desk) == n.Name {
		t.Errorf("the desk is still connected to %s", n.Name)
	}
	stop()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	n.Rejoin()
	check(t, s.Ready(t.Context()))
}

// connectTo connects to a server by a list of all: it knows the others also when that one has lost them.
func (s *system) connectTo(n *cluster.Node) *broker.Conn {
	var urls []string
	for _, node := range s.Nodes {
		urls = append(urls, node.URL())
	}
	for {
		if conn := s.connect(strings.Join(urls, ",")); serverOf(conn) == n.Name {
			return conn
		}
	}
}

// reader reads the init events that there are.
type reader struct {
	*system
	conn *broker.Conn
	read chan string
	stop context.CancelFunc
	done chan error
}

func (s *system) reader(n *cluster.Node) *reader {
	r := &reader{system: s, conn: s.connectTo(n), read: make(chan string), done: make(chan error, 1)}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(s.t.Context())
	go func() {
		r.done <- r.conn.Watch(ctx, streams.Start, []string{"agentd.start.>"}, func(d broker.Delivery) bool {
			e, err := wire.DecodeEvent(d.Headers(), d.Data())
			if err != nil {
				s.t.Error(err)
			}
			select {
			case r.read <- e.ID:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	return r
}

// await returns when an event is read.
func (r *reader) await(id string) {
	r.t.Helper()
	for late := time.After(2 * fault); ; {
		select {
		case read := <-r.read:
			if read == id {
				return
			}
		case <-late:
			r.t.Fatalf("%s is not read within %s", id, 2*fault)
		}
	}
}

// consumer is what it reads by: the one that was made last.
func (r *reader) consumer() *jetstream.ConsumerInfo {
	r.t.Helper()
	stream, err := r.control.JetStream().Stream(r.t.Context(), streams.Name(r.control.Subjects(), streams.Start))
	check(r.t, err)
	var latest *jetstream.ConsumerInfo
	all := stream.ListConsumers(r.t.Context())
	for c := range all.Info() {
		if latest == nil || c.Created.After(latest.Created) {
			latest = c
		}
	}
	check(r.t, all.Err())
	return latest
}

func (r *reader) end() {
	r.stop()
	if err := <-r.done; err != nil && !errors.Is(err, context.Canceled) {
		r.t.Error(err)
	}
}

func initOf(name string) wire.Event {
	return wire.Event{ID: name, Source: "test", Type: "adder", Subject: name, Data: []byte(`{}`), Time: time.UnixMilli(1_795_229_924_408)}
}

// A frozen server keeps its connections and answers nothing.
func TestFrozen_ServerIsLeft(t *testing.T) {
	t.Parallel()
	s := start(t)
	n := s.leads(streams.Run)
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
	}{meta, s.leads(streams.Run)} {
		n.Kill()
		s.within(c, name(i), fault)
		check(t, n.Begin())
		check(t, s.Ready(t.Context()))
	}
}
