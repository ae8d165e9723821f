package broker

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

const (
	aheadStream = "AGENTD_OUT"
	aheadCalls  = 20
	lostFrom    = 15
)

// startAhead starts a server that finds out late that its index of a stream says more than can be read: a service has been delivered 20 calls,
// and has settled all but one, or all, and the last six are lost. The server was stopped at started.
func startAhead(t *testing.T, inHand int) (r *restorable, service jetstream.Consumer, started time.Time) {
	t.Helper()
	r = startRestorable(t)
	for i := 1; i <= aheadCalls; i++ {
		call(t, r.conn, fmt.Sprintf("call-%d-", i))
	}
	service, err := r.conn.js.Consumer(testContext(t), aheadStream, streams.ServiceConsumer("airline", "airline.book").Name)
	if err != nil {
		t.Fatal(err)
	}
	for n, m := range delivered(t, service, aheadCalls) {
		if n+1 == inHand {
			continue
		}
		if err := m.DoubleAck(testContext(t)); err != nil {
			t.Fatal(err)
		}
	}
	r.while(func() error {
		started = time.Now()
		msgs := filepath.Join(r.o.Dir, "jetstream", "$G", "streams", aheadStream, "msgs")
		_, err := os.Stat(filepath.Join(msgs, "index.db"))
		block, blockErr := os.ReadFile(filepath.Join(msgs, "1.blk"))
		if err := errors.Join(err, blockErr); err != nil {
			return err
		}
		from := bytes.Index(block, fmt.Appendf(nil, "call-%d-", lostFrom))
		to := bytes.Index(block, fmt.Appendf(nil, "call-%d-", lostFrom+1))
		clear(block[from:to]) // with the length of the one that follows
		return os.WriteFile(filepath.Join(msgs, "1.blk"), block, 0o600)
	})
	return r, service, started
}

// comes are the ids of the next n calls that a service is delivered.
func comes(t *testing.T, service jetstream.Consumer, n int) (ids []string) {
	t.Helper()
	for _, m := range delivered(t, service, n) {
		event, err := wire.DecodeEvent(m.Headers(), m.Data())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, event.ID)
	}
	return ids
}

// A consumer that has delivered messages which are gone would pass over those that get their sequences.
func TestPutBack_ConsumersThatAreAheadOfTheirStream(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		inHand int
		comes  []string
	}{
		"all are settled": {0, []string{"before", "after"}},
		"one is in hand": {12, []string{
			"call-12-", "call-13-", "call-14-", "before", "after",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, service, started := startAhead(t, of.inHand)
			call(t, &Conn{js: r.conn.js.(followed).JetStream, nc: r.conn.nc, subjects: r.conn.subjects, log: r.conn.log}, "before") // nobody has looked
			back, err := r.conn.putBack(testContext(t), started, streams.Out)
			if diff := cmp.Diff([]string{aheadStream + "." + service.CachedInfo().Name}, back); err != nil || diff != "" {
				t.Fatalf("put back are (-want +got):\n%s%v", diff, err)
			}
			if again, err := r.conn.putBack(testContext(t), started, streams.Out); err != nil || len(again) != 0 {
				t.Errorf("put back again are %v: %v", again, err)
			}
			call(t, r.conn, "after")
			if diff := cmp.Diff(of.comes, comes(t, service, len(of.comes))); diff != "" {
				t.Errorf("what comes (-want +got):\n%s", diff)
			}
		})
	}
}

// Nothing is published in another process of the server before its consumers are where their streams are. What was stored shortly before comes
// again with it.
func TestPublish_NotBeforeConsumersArePutBack(t *testing.T) {
	t.Parallel()
	r, service, _ := startAhead(t, 0)
	var want []string
	for i := 1; i < lostFrom; i++ {
		want = append(want, fmt.Sprintf("call-%d-", i))
	}
	want = append(want, "after", "later")
	call(t, r.conn, "after")
	noted(t, r.conn)
	// Another connection does not do it again.
	call(t, connect(t, ConnectOptions{URL: r.server.URL()}), "later")
	if diff := cmp.Diff(want, comes(t, service, len(want))); diff != "" {
		t.Errorf("what comes (-want +got):\n%s", diff)
	}
}

// noted waits until it is noted that consumers are in place in the process that a connection is to.
func noted(t *testing.T, c *Conn) {
	t.Helper()
	eventually(t, "it is noted that consumers are in place", func() bool {
		noted, err := c.Note(testContext(t), "in_place_")
		return err == nil && len(noted) > 0 && string(noted) == c.Server()
	})
}

// What is published while the server is away is stored in the next process when consumers are where their streams are, however many addresses it
// may be reached by.
func TestPublish_WaitsUntilConsumersArePutBack(t *testing.T) {
	t.Parallel()
	for _, more := range []string{"", ",nats://localhost:1"} {
		r, published := startRestorable(t), make(chan error, 1)
		c := connect(t, ConnectOptions{URL: r.server.URL() + more})
		r.while(func() error {
			eventually(t, "it is away", func() bool { return !c.Connected() })
			go func() { published <- c.Publish(testContext(t), c.subjects.Call(testCall), event("waiting")) }()
			select {
			case err := <-published:
				return fmt.Errorf("it was published while there was no server: %w", err)
			case <-time.After(10 * time.Millisecond):
				return nil
			}
		})
		if err := <-published; err != nil {
			t.Fatal(err)
		}
		noted(t, c)
	}
}

// A connection that comes back to the same process has nothing put back, now and after the next restart, for having been away.
func TestPublish_AfterTheConnectionWasLost(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	call(t, c, "before")
	c.inPlace.lost.Store(1) // as if it had been lost before
	back := c.nc.StatusChanged(nats.CONNECTED)
	if err := c.nc.ForceReconnect(); err != nil {
		t.Fatal(err)
	}
	<-back
	eventually(t, "it is forgotten when it was lost", func() bool { return c.inPlace.lost.Load() == 0 })
	call(t, c, "after")
	if !c.looked(c.Server()) {
		t.Error("consumers are looked at again")
	}
}

// Where a stream is missing, consumers of it cannot be ahead, and of others they are not.
func TestPublish_WithoutAStream(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	if err := c.js.DeleteStream(testContext(t), "AGENTD_TMR"); err != nil {
		t.Fatal(err)
	}
	call(t, c, "without-timers")
	if !c.looked(c.Server()) {
		t.Error("consumers are looked at each time")
	}
}

// A server publishes by itself when timers are due, before anybody can look: what it may have published since it was started comes again.
func TestPutBack_TimersThatTheServerMayHavePublished(t *testing.T) {
	t.Parallel()
	server := startServer(t, embedded.Options{})
	c := connect(t, ConnectOptions{InProcess: server})
	apply(t, c, testPlan)
	ctx := testContext(t)
	workers, err := c.js.Consumer(ctx, "AGENTD_TMR", "agent_travel_desk")
	if err != nil {
		t.Fatal(err)
	}
	fire := func() (at time.Time) {
		t.Helper()
		mustPublish(t, c.ArmTimer(ctx, "travel.desk", testRun, time.Now().UnixMilli()))
		for _, m := range delivered(t, workers, 1) {
			if err := m.DoubleAck(ctx); err != nil {
				t.Fatal(err)
			}
			meta, err := m.Metadata()
			if err != nil {
				t.Fatal(err)
			}
			at = meta.Timestamp
		}
		return at
	}
	began := fire().Add(time.Millisecond)
	if back, err := c.putBack(ctx, began, streams.Timer); err != nil || len(back) > 0 {
		t.Fatalf("put back are %v, though nothing was published since: %v", back, err)
	}
	eventually(t, "the clock goes on", func() bool { return time.Now().After(began) })
	fire()
	back, err := c.putBack(ctx, began, streams.Timer)
	if diff := cmp.Diff([]string{"AGENTD_TMR.agent_travel_desk"}, back); err != nil || diff != "" {
		t.Fatalf("put back are (-want +got):\n%s%v", diff, err)
	}
	if m := delivered(t, workers, 1)[0]; m.Subject() != c.subjects.Fire("travel.desk", testRun) {
		t.Errorf("%s comes again", m.Subject())
	}
	noted(t, c)
	// Each connection has all put back once for each process, and no other that follows does it again.
	call(t, connect(t, ConnectOptions{InProcess: server}), "another")
	if info, err := workers.Info(ctx); err != nil || info.NumPending > 0 {
		t.Errorf("%+v comes again: %v", info, err)
	}
}

// delivered are the next n messages of a consumer.
func delivered(t *testing.T, consumer jetstream.Consumer, n int) (all []jetstream.Msg) {
	t.Helper()
	batch, err := consumer.Fetch(n)
	if err != nil {
		t.Fatal(err)
	}
	for m := range batch.Messages() {
		all = append(all, m)
	}
	if err := batch.Error(); err != nil || len(all) != n {
		t.Fatalf("%d messages come, not %d: %v", len(all), n, err)
	}
	return all
}
