package cold

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/internal/state/redistest"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is where archives are, and Redis.
type server struct {
	conn  *broker.Conn
	redis *redistest.Server
}

func start(t testing.TB) server {
	t.Helper()
	ns, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, "stop server", ns.Close()) })
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{InProcess: ns, Subjects: wire.DefaultSubjects()})
	check(t, "connect", err)
	t.Cleanup(func() { check(t, "close connection", conn.Close()) })
	return server{conn, redistest.StartServer(t)}
}

func check(t testing.TB, doing string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", doing, err)
	}
}

// roots makes stores that share servers see none of each other.
var roots atomic.Int64

// fresh opens a store that sees no run, with a stream for its archives.
func (s server) fresh(t testing.TB) *Store {
	t.Helper()
	n := roots.Add(1)
	root := fmt.Sprint("root", n)
	subjects, err := wire.NewSubjects(root)
	check(t, "root", err)
	stream := fmt.Sprintf("ROOT%d_COLD", n)
	_, err = s.conn.JetStream().CreateStream(t.Context(), jetstream.StreamConfig{
		Name: stream, Subjects: []string{subjects.All(wire.KindCold)}, AllowDirect: true, AllowRollup: true, DenyDelete: true,
	})
	check(t, "make stream", err)
	hot, _, err := redisstore.Open(t.Context(), s.redis.URL(), redisstore.Options{Root: root})
	check(t, "open redis", err)
	t.Cleanup(func() { check(t, "close redis", hot.Close()) })
	return New(hot, s.conn.JetStream(), stream, subjects)
}

// cooled is a Store whose journals leave Redis before each operation, and again and again.
type cooled struct{ *Store }

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// leave takes all steps with a run's journal as it is.
func (s cooled) leave(ctx context.Context, run wire.RunKey) {
	for at := now; ; at = at.Add(Settled) {
		head, err := s.Store.Head(ctx, run)
		if err != nil {
			return
		}
		all, err := s.Archive(ctx, []state.Ended{{Run: run, Version: head.Version}}, at, 1, false)
		if err != nil || all[0].Step != state.StepArchived {
			return
		}
	}
}

func (s cooled) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	s.leave(ctx, run)
	return s.Store.Head(ctx, run)
}

func (s cooled) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	s.leave(ctx, run)
	return s.Store.Entries(ctx, run, after)
}

func (s cooled) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	s.leave(ctx, run)
	return s.Store.Part(ctx, run, from, most)
}

func (s cooled) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	if next.Rev <= 5 || next.Rev%100 == 0 { // each time would take minutes in the long journals of the suite
		s.leave(ctx, run)
	}
	return s.Store.Append(ctx, run, base, next)
}

func (s cooled) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	s.leave(ctx, run)
	return s.Store.Barrier(ctx, run, v)
}

func (s cooled) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	s.leave(ctx, run)
	return s.Store.Blob(ctx, run, digest)
}

func (s cooled) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	if strings.HasPrefix(digest, "0") { // one in 16
		s.leave(ctx, run)
	}
	return s.Store.PutBlob(ctx, run, digest, data)
}

func (s cooled) Purge(ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record) (runner.Version, error) {
	s.leave(ctx, run)
	return s.Store.Purge(ctx, run, base, keep)
}

func (s cooled) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	s.leave(ctx, run)
	return s.Store.Remove(ctx, run, base)
}

func TestStore_PassesSuite(t *testing.T) {
	t.Parallel()
	s := start(t)
	storetest.Run(t, func(t *testing.T) runner.Store { return s.fresh(t) })
}

// TestStore_PassesSuiteWhileJournalsLeave runs the suite on journals that are in their archives alone.
func TestStore_PassesSuiteWhileJournalsLeave(t *testing.T) {
	t.Parallel()
	s := start(t)
	storetest.Run(t, func(t *testing.T) runner.Store { return cooled{s.fresh(t)} })
}

// messages is how many archives there are of a run.
func (s *Store) messages(t testing.TB, run wire.RunKey) uint64 {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), s.stream)
	check(t, "look at stream", err)
	info, err := stream.Info(t.Context(), jetstream.WithSubjectFilter(s.subjects.Cold(run)))
	check(t, "look at stream", err)
	return info.State.Subjects[s.subjects.Cold(run)]
}
