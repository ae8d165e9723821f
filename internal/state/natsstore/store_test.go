package natsstore

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/runner"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/natsserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const streamName = "AGENTD_RUN"

// startServer starts a server with a stream for journals. It listens, so that a proxy can stand before it.
func startServer(t testing.TB, dir string, change func(*jetstream.StreamConfig)) *server.Server {
	t.Helper()
	ns := natsserver.Start(t, server.Options{Port: server.RANDOM_PORT, JetStream: true, StoreDir: dir, SyncAlways: true})
	s := wire.DefaultSubjects()
	cfg := jetstream.StreamConfig{
		Name: streamName, AllowDirect: true, AllowRollup: true,
		Subjects: []string{s.All(wire.KindRun), s.All(wire.KindBlob), s.All(wire.KindSpec)},
	}
	if change != nil {
		change(&cfg)
	}
	if _, err := connect(t, ns.ClientURL()).CreateOrUpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	return ns
}

func connect(t testing.TB, url string, options ...nats.Option) jetstream.JetStream {
	t.Helper()
	options = append(options, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0))
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func open(t testing.TB) *Store { return openOn(t, startServer(t, t.TempDir(), nil)) }

func openOn(t testing.TB, ns *server.Server) *Store {
	return New(connect(t, ns.ClientURL()), streamName, wire.DefaultSubjects())
}

// openProxied opens a store whose requests take at most timeout, through a proxy that loses answers.
func openProxied(t *testing.T, timeout time.Duration) (*Store, *storetest.Proxy) {
	ns := startServer(t, t.TempDir(), nil)
	proxy := storetest.NewProxy(t, ns.Addr().String())
	s := New(connect(t, "nats://"+proxy.Addr(), nats.IgnoreDiscoveredServers()), streamName, wire.DefaultSubjects())
	s.timeout = timeout
	return s, proxy
}

func TestStore_PassesSuite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) runner.Store { return open(t) })
}

// TestStore_ListsByPartition does what is done when a stream is too large for one answer.
func TestStore_ListsByPartition(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.wholeList = 0
	storetest.ListRuns(t, s)
}

// TestStore_ReopensJournal restarts the server on the same folder.
func TestStore_ReopensJournal(t *testing.T) {
	t.Parallel()
	dir, run := t.TempDir(), wire.NewRunKey("trip")
	ns := startServer(t, dir, nil)
	records := storetest.AppendN(t, openOn(t, ns), run, runner.Version{}, 3)
	ns.Shutdown()
	ns.WaitForShutdown()
	s := openOn(t, startServer(t, dir, nil))
	storetest.CheckJournal(t, s, run, records)
	storetest.AppendN(t, s, run, records[2].Version, 1)
}

// TestStore_FindsWhatWasWritten loses the acknowledgement only: the read that follows tells.
func TestStore_FindsWhatWasWritten(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, 2*time.Second)
	run := wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 1)
	proxy.CutNext()
	records = append(records, storetest.AppendN(t, s, run, records[0].Version, 1)...)
	select {
	case <-proxy.Lost():
	default:
		t.Error("no acknowledgement was lost")
	}
	storetest.CheckJournal(t, s, run, records)
}

func TestStore_AmbiguousAppendIsRepeated(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, time.Second)
	storetest.AmbiguousAppend(t, s, proxy)
}

// TestStore_DoesNotHideUnwrittenEntry: when the request itself is lost, the journal still ends at base; that is not
// conflict, and no success.
func TestStore_DoesNotHideUnwrittenEntry(t *testing.T) {
	t.Parallel()
	run := wire.NewRunKey("trip")
	s := open(t)
	records := storetest.AppendN(t, s, run, runner.Version{}, 1)
	next := storetest.NextRecord(records[0].Version, "second")
	_, err := s.learn(t.Context(), run, records[0].Version, next, errNoAnswer)
	if !errors.Is(err, runner.ErrAmbiguous) || errors.Is(err, runner.ErrConflict) {
		t.Errorf("append without an answer: %v, want %v", err, runner.ErrAmbiguous)
	}
	other := &jetstream.APIError{Code: 400, ErrorCode: errCodeOtherInFlight}
	if _, err = s.learn(t.Context(), run, records[0].Version, next, other); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("append while another is in flight: %v, want %v", err, runner.ErrAmbiguous)
	}
}

// TestStore_ReadsSayWhoseTimeEnded: a server that does not answer is not the caller's deadline.
func TestStore_SaysThatItsStreamIsFull(t *testing.T) {
	t.Parallel()
	s := openOn(t, startServer(t, t.TempDir(), func(cfg *jetstream.StreamConfig) { cfg.MaxBytes, cfg.Discard = 1, jetstream.DiscardNew }))
	err := s.Writable(t.Context())
	const want = "stream AGENTD_RUN takes no writes, because it is at a limit of its own (maximum bytes exceeded); raise it with: nats stream edit AGENTD_RUN"
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || sdk.AsError(err).Message != want {
		t.Errorf("%v", err)
	}
}

func TestStore_ReadsSayWhoseTimeEnded(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, requestTimeout)
	run := wire.NewRunKey("trip")
	last := storetest.AppendN(t, s, run, runner.Version{}, 1)[0].Version
	proxy.Mute()
	s.timeout = 50 * time.Millisecond
	_, headErr := s.Head(t.Context(), run)
	_, entriesErr := s.Entries(t.Context(), run, runner.Version{})
	_, _, runsErr := s.Runs(t.Context(), "", 1)
	for what, err := range map[string]error{"Head": headErr, "Entries": entriesErr, "Runs": runsErr} {
		if !errors.Is(err, errNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, want %v", what, err, errNoAnswer)
		}
	}
	if err := s.Barrier(t.Context(), run, last); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("Barrier: %v, want %v", err, runner.ErrAmbiguous)
	}
	s.timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Entries(ctx, run, runner.Version{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Entries after the caller's deadline: %v", err)
	}
}

func TestStore_ReportsMissingEntry(t *testing.T) {
	t.Parallel()
	s, run := open(t), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 3)
	stream, err := s.js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), records[1].Position); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Entries(t.Context(), run, runner.Version{}); !errors.Is(err, runner.ErrCorrupt) {
		t.Errorf("entries: %d, %v", len(got), err)
	}
}

func TestStore_NeedsDirectReads(t *testing.T) {
	t.Parallel()
	ns := startServer(t, t.TempDir(), func(c *jetstream.StreamConfig) { c.AllowDirect = false })
	s, run := openOn(t, ns), wire.NewRunKey("trip")
	storetest.AppendN(t, s, run, runner.Version{}, 1)
	if _, err := s.Head(t.Context(), run); err != nil {
		t.Errorf("head, which the leader answers: %v", err)
	}
	_, err := s.Entries(t.Context(), run, runner.Version{})
	if err == nil || !strings.Contains(err.Error(), "must exist and allow direct reads") {
		t.Errorf("entries: %v", err)
	}
}

func BenchmarkStore(b *testing.B) {
	storetest.Benchmark(b, "sync_interval=always,replicas=1", func(b *testing.B) runner.Store { return open(b) })
}
