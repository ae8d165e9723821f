package broker

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline bounds every wait for something that must happen; tests that pass do not come near it.
const deadline = time.Minute

// testPlan has an agent and a service. Its deliveries last longer than any test, unless they are settled.
var testPlan = provision.Plan{
	AckWait:  time.Hour,
	Agents:   []provision.Agent{{Name: "travel.desk", Type: "com.travel.desk"}},
	Services: []provision.Service{{Domain: "airline", Type: "airline.book"}},
}

var (
	testRun  = wire.NewRunKey("trip-7")
	testCall = wire.CallAddress{
		Domain: "airline", Type: "airline_book", Agent: "travel_desk", Run: testRun, Call: "c1-0-x",
	}
)

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// startServer starts a server that is closed with the test, unless the test closes it before.
func startServer(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = shortDir(t)
	}
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// shortDir is a folder that is removed with the test, after the servers in it were closed.
func shortDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "data")
}

func connect(t *testing.T, o ConnectOptions) *Conn {
	t.Helper()
	if o.Subjects.Root() == "" {
		o.Subjects = wire.DefaultSubjects()
	}
	o.Logger = testLogger(t)
	c, err := Connect(testContext(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// testLogger logs to stderr when the tests are verbose. (A test's own log must not be written to after its end, which
// callbacks of a closing connection may do.)
func testLogger(t *testing.T) *slog.Logger {
	if !testing.Verbose() {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, nil)).With("test", t.Name())
}

// provisioned is a connection to a server of its own that matches testPlan.
func provisioned(t *testing.T) *Conn {
	t.Helper()
	return provisionedFor(t, testPlan.AckWait)
}

// provisionedFor is provisioned with deliveries that last ackWait.
func provisionedFor(t *testing.T, ackWait time.Duration) *Conn {
	t.Helper()
	c := connect(t, ConnectOptions{InProcess: startServer(t, embedded.Options{})})
	p := testPlan
	p.AckWait = ackWait
	apply(t, c, p)
	return c
}

func apply(t *testing.T, c *Conn, p provision.Plan) []provision.Change {
	t.Helper()
	changes, err := provision.Apply(testContext(t), c, p)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// stranger is a plain NATS connection to the server that c is connected to.
func stranger(t *testing.T, s *embedded.Server) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

func event(id string) wire.Event {
	return wire.Event{
		ID: id, Source: "test", Type: "com.test", Subject: "trip-7", DataContentType: wire.ContentTypeJSON,
		Time: time.UnixMilli(1_795_229_924_408).UTC(), Data: json.RawMessage(`{"n":1}`),
	}
}

// stored counts the messages of a zone.
func stored(t *testing.T, c *Conn, z streams.Zone) uint64 {
	t.Helper()
	s, err := c.js.Stream(testContext(t), streams.Name(c.subjects, z))
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll.Until(t, deadline, what, ok)
}

// receive waits for a value.
func receive[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(deadline):
		t.Fatalf("never came: %s", what)
		panic("unreachable")
	}
}

// first is the first message in a zone on a subject, seen without consuming it.
func first(t *testing.T, c *Conn, z streams.Zone, subject string) Delivery {
	t.Helper()
	var d Delivery
	err := c.Watch(testContext(t), z, []string{subject}, func(got Delivery) bool {
		d = got
		return false
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustPublish(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("publish: %v", err)
	}
}

func isCode(err error, code sdk.Code) bool { return errors.Is(err, &sdk.Error{Code: code}) }
