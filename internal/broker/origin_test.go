package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/streams"
	"agentd/internal/contracts"
	"agentd/sdk/wire"
	"agentd/test/ports"
)

// restorable is a server whose files can be set back.
type restorable struct {
	t      *testing.T
	o      embedded.Options
	server *embedded.Server
	conn   *Conn
}

func startRestorable(t *testing.T) *restorable {
	t.Helper()
	r := &restorable{t: t, o: embedded.Options{Dir: shortDir(t), Listen: true, Port: ports.Free(t), PortOnly: true}}
	r.server = startServer(t, r.o)
	r.conn = connect(t, ConnectOptions{URL: r.server.URL()})
	apply(t, r.conn, testPlan)
	return r
}

// while stops the server, changes its files, and starts it again.
func (r *restorable) while(change func() error) {
	r.t.Helper()
	if err := r.server.Close(); err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the loss is noticed", func() bool { return !r.conn.Connected() })
	if err := change(); err != nil {
		r.t.Fatal(err)
	}
	r.server = startServer(r.t, r.o)
	eventually(r.t, "it is connected again", r.conn.Connected)
}

// backUp copies the files, and returns what puts the copy in their place, and then has things happen to the server before anybody else is
// connected to it.
func (r *restorable) backUp() (restore func(then ...func(*Conn))) {
	r.t.Helper()
	copied := shortDir(r.t)
	r.while(func() error { return os.CopyFS(copied, os.DirFS(r.o.Dir)) })
	return func(then ...func(*Conn)) {
		r.t.Helper()
		r.while(func() error {
			if err := os.RemoveAll(r.o.Dir); err != nil {
				return err
			}
			if err := os.CopyFS(r.o.Dir, os.DirFS(copied)); err != nil || len(then) == 0 {
				return err
			}
			server := startServer(r.t, embedded.Options{Dir: r.o.Dir})
			c := connect(r.t, ConnectOptions{InProcess: server})
			for _, do := range then {
				do(c)
			}
			return errors.Join(c.Close(), server.Close())
		})
	}
}

// makeAnew deletes a stream and provisions it again.
func makeAnew(t *testing.T, c *Conn, stream string) {
	t.Helper()
	if err := c.js.DeleteStream(testContext(t), stream); err != nil {
		t.Fatal(err)
	}
	apply(t, c, testPlan)
}

func call(t *testing.T, c *Conn, id string) {
	t.Helper()
	at := testCall
	at.Call = id
	mustPublish(t, c.Publish(testContext(t), c.subjects.Call(at), event(id)))
}

// idOf is the id of an event, "" of what is none.
func idOf(d Delivery) string {
	e, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return ""
	}
	return e.ID
}

// watchCalls tells the ids of the calls that Watch hands out.
func watchCalls(t *testing.T, c *Conn) <-chan string {
	t.Helper()
	seen, ended := make(chan string, 64), make(chan error, 1)
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		ended <- c.Watch(ctx, streams.Out, []string{"agentd.out.>"}, func(d Delivery) bool {
			seen <- idOf(d)
			return true
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
	return seen
}

func wantSeen(t *testing.T, seen <-chan string, want ...string) {
	t.Helper()
	for _, id := range want {
		if got := receive(t, "a call", seen); got != id {
			t.Fatalf("%s comes; want %s", got, id)
		}
	}
}

// A reader does not wait for a sequence that the stream in the place of another has not come to.
func TestWatch_ReadsAStreamThatWasMadeAnew(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	call(t, c, "a")
	call(t, c, "b")
	seen := watchCalls(t, c)
	wantSeen(t, seen, "a", "b")
	makeAnew(t, c, "AGENTD_OUT")
	call(t, c, "c")
	wantSeen(t, seen, "c")
}

func TestWatch_ReadsAServerThatWasSetBack(t *testing.T) {
	t.Parallel()
	r := startRestorable(t)
	call(t, r.conn, "a")
	restore := r.backUp()
	call(t, r.conn, "b")
	call(t, r.conn, "c")
	seen := watchCalls(t, r.conn)
	wantSeen(t, seen, "a", "b", "c")
	restore()
	call(t, r.conn, "d")
	wantSeen(t, seen, "a", "d")
}

// A server that is set back, and gets further than it was before anybody looks, is not the one that was read.
func TestWatch_ReadsAServerThatHasGotFurtherSinceItWasSetBack(t *testing.T) {
	t.Parallel()
	r := startRestorable(t)
	call(t, r.conn, "a")
	restore := r.backUp()
	call(t, r.conn, "b")
	call(t, r.conn, "c")
	seen := watchCalls(t, r.conn)
	wantSeen(t, seen, "a", "b", "c")
	restore(func(c *Conn) {
		for _, id := range []string{"d", "e", "f", "g"} {
			call(t, c, id)
		}
	})
	// It may have read on before it noticed.
	for id := receive(t, "a call", seen); id != "a"; id = receive(t, "a call", seen) {
		if id != "f" && id != "g" {
			t.Fatalf("%s comes before it begins anew", id)
		}
	}
	wantSeen(t, seen, "d", "e", "f", "g")
}

// A worker that has a message in hand which the server has forgotten since takes no other message away, and gives none back, that is under
// its sequence now.
func TestConsume_AcksNothingThatAnotherProcessHasDelivered(t *testing.T) {
	t.Parallel()
	r := startRestorable(t)
	ref := streams.AgentConsumers("travel.desk")[3]
	at := testCall
	at.Domain, at.Type, at.Agent = wire.LocalDomain, "com_travel_desk", "other"
	publish := func(id string) {
		at.Call = id
		mustPublish(t, r.conn.Publish(testContext(t), r.conn.subjects.Call(at), event(id)))
	}
	given := make(chan Delivery, 2)
	consume(t, r.conn, ConsumeOptions{Consumers: []streams.ConsumerRef{ref}, Slots: 4, Handle: func(_ context.Context, d Delivery) { given <- d }})
	restore := r.backUp()
	publish("a")
	forgotten := receive(t, "a", given)
	restore()
	publish("b")
	other := receive(t, "b", given)
	if idOf(other) != "b" || other.Sequence() != forgotten.Sequence() {
		t.Fatalf("%s comes as %d; want b as %d", idOf(other), other.Sequence(), forgotten.Sequence())
	}
	if err := errors.Join(forgotten.Ack(), r.conn.nc.FlushWithContext(testContext(t))); err != nil {
		t.Fatal(err)
	}
	if delivered, _ := pending(t, r.conn, ref); delivered != 1 {
		t.Errorf("%d messages are in hand, want 1", delivered)
	}
	if err := other.Ack(); err != nil {
		t.Fatal(err)
	}
	settled(t, r.conn, ref)
}

// Who has seen what it waited for is not told anything twice, also where the stream has become another meanwhile.
func TestWatch_EndsThoughTheStreamIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	call(t, c, "a")
	asked := make(chan *nats.Msg, 64)
	looks, err := c.nc.ChanSubscribe("$JS.API.STREAM.INFO.AGENTD_OUT", asked)
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	err = c.Watch(testContext(t), streams.Out, []string{"agentd.out.>"}, func(d Delivery) bool {
		if told = append(told, idOf(d)); len(told) > 1 {
			return false
		}
		makeAnew(t, c, "AGENTD_OUT")
		call(t, c, "b")
		for len(asked) > 0 {
			<-asked
		}
		if err := c.nc.ForceReconnect(); err != nil {
			t.Error(err)
		}
		receive(t, "a look at the stream", asked)
		select { // two looks find that it is another; the first may have been before
		case <-asked:
		case <-time.After(2 * lookTwice):
		}
		for range 10 { // and are answered
			if _, err := c.nc.RTT(); err != nil {
				t.Error(err)
			}
		}
		return false
	})
	if err != nil || !slices.Equal(told, []string{"a"}) {
		t.Errorf("told of %v: %v", told, err)
	}
	if err := looks.Unsubscribe(); err != nil {
		t.Error(err)
	}
}

// follow is a Follow that goes on in the background.
func follow(t *testing.T, c *Conn) (seen <-chan string, ended <-chan error) {
	t.Helper()
	stop, err := c.Serve(c.Reader())
	if err != nil {
		t.Fatal(err)
	}
	ids, end, caughtUp := make(chan string, 64), make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(testContext(t))
	go func() {
		end <- c.Follow(ctx, ctx, streams.Out, "agentd.*.airline.>", func() { close(caughtUp) }, func(d Delivery) { ids <- idOf(d) })
	}()
	receive(t, "that it has caught up", caughtUp)
	t.Cleanup(func() {
		cancel()
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return ids, end
}

func wantOther(t *testing.T, ended <-chan error) {
	t.Helper()
	if err := receive(t, "the end", ended); !errors.Is(err, ErrOtherStream) {
		t.Errorf("it ended with %v; want %v", err, ErrOtherStream)
	}
}

func TestFollow_EndsWhenTheStreamIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	call(t, c, "a")
	seen, ended := follow(t, c)
	wantSeen(t, seen, "a")
	makeAnew(t, c, "AGENTD_OUT")
	wantOther(t, ended)
}

// A copy that has come further than the reader was is seen by the message in the place of the reader's.
func TestFollow_EndsWhenTheServerWasSetBackAndHasComeFurther(t *testing.T) {
	t.Parallel()
	r := startRestorable(t)
	restore := r.backUp()
	call(t, r.conn, "a")
	seen, ended := follow(t, r.conn)
	wantSeen(t, seen, "a")
	r.while(func() error { return nil }) // what follows is not yet of the copy
	call(t, r.conn, "b")
	wantSeen(t, seen, "b")
	restore()
	for i := range 4 {
		call(t, r.conn, fmt.Sprint("after-", i))
	}
	wantOther(t, ended)
}

// The page after the place where a reader is shows whether it is the same stream.
func TestPlace_KnowsItsStream(t *testing.T) {
	t.Parallel()
	read := place{sequence: 7, at: 100, stream: Bounds{First: 1, Last: 9, Created: 5}}
	for name, tc := range map[string]struct {
		page  page
		other bool
		left  int
	}{
		"the message there is the same":           {page{messages: []Stored{{Sequence: 7, At: 100}, {Sequence: 8, At: 101}}}, false, 1},
		"it is gone":                              {page{messages: []Stored{{Sequence: 8, At: 101}}}, false, 1},
		"another is in its place":                 {page{messages: []Stored{{Sequence: 7, At: 102}}}, true, 0},
		"the stream was made at another time":     {page{stream: Bounds{Last: 9, Created: 6}}, true, 0},
		"it has less than it had":                 {page{stream: Bounds{Last: 8, Created: 5}}, true, 0},
		"it has more":                             {page{stream: Bounds{Last: 10, Created: 5}}, false, 0},
		"an older worker says nothing of streams": {page{messages: []Stored{{Sequence: 7, At: 100}}}, false, 0},
	} {
		at := read
		messages, err := at.follow(tc.page)
		if errors.Is(err, ErrOtherStream) != tc.other || len(messages) != tc.left {
			t.Errorf("%s: %d messages, %v", name, len(messages), err)
		}
	}
}

func TestRegistry_IsFollowedThroughStreamsMadeAnew(t *testing.T) {
	t.Parallel()
	c := provisioned(t)
	r := c.Registry()
	publishVersion(t, r, booking("1.0.0", "flight"), "1.0.0")
	ctx, stop := context.WithCancel(t.Context())
	seen, ended := make(chan string, 64), make(chan error, 1)
	go func() { ended <- r.Follow(ctx, func(state *contracts.Registry) { seen <- states(state) }) }()
	wantSeen(t, seen, "1.0.0")
	makeAnew(t, c, registryStreamName(c.subjects))
	publishVersion(t, r, booking("2.0.0", "flight"), "2.0.0")
	for receive(t, "the state of the other registry", seen) != "2.0.0" {
	}
	stop()
	if err := receive(t, "the end", ended); !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}
