package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"agentd/internal/runner"
	"agentd/internal/state/redistest"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, url string, o Options) *Store {
	t.Helper()
	s, findings, err := Open(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, f := range findings {
		t.Log(f)
	}
	return s
}

// roots makes stores that share a server see none of each other.
var roots atomic.Int64

// fresh opens a store that sees no run.
func fresh(t testing.TB, url string, o Options) *Store {
	o.Root = fmt.Sprint("root", roots.Add(1))
	return open(t, url, o)
}

func TestStore_PassesSuite(t *testing.T) {
	t.Parallel()
	url := redistest.Start(t)
	storetest.Run(t, func(t *testing.T) runner.Store { return fresh(t, url, Options{}) })
}

// startCluster starts a cluster of one node, which refuses keys of several slots in one script as larger ones do.
func startCluster(t *testing.T) string {
	t.Helper()
	server := redistest.StartServer(t, "--cluster-enabled", "yes")
	c := client(t, server)
	if err := c.ClusterAddSlotsRange(t.Context(), 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	storetest.Await(t, "cluster", func(ctx context.Context) bool {
		return strings.Contains(c.ClusterInfo(ctx).Val(), "cluster_state:ok")
	})
	return server.URL() + "," + server.Addr()
}

// client returns a bare client of a server.
func client(t testing.TB, server *redistest.Server) *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestStore_PassesSuiteOnCluster(t *testing.T) {
	t.Parallel()
	url := startCluster(t)
	storetest.Run(t, func(t *testing.T) runner.Store { return fresh(t, url, Options{}) })
}

func TestStore_WorksThroughSentinel(t *testing.T) {
	t.Parallel()
	sentinel := redistest.StartSentinel(t, "journal", redistest.StartServer(t))
	s, run := open(t, "redis+sentinel://"+sentinel.Addr()+"/journal?db=3", Options{}), wire.NewRunKey("trip")
	storetest.CheckJournal(t, s, run, storetest.AppendN(t, s, run, runner.Version{}, 2))
}

// startReplica starts a replica and returns when it follows.
func startReplica(t *testing.T, master *redistest.Server) *redistest.Server {
	t.Helper()
	replica, m := redistest.StartReplica(t, master), client(t, master)
	storetest.Await(t, "replica", func(ctx context.Context) bool {
		return strings.Contains(m.Info(ctx, "replication").Val(), "state=online")
	})
	return replica
}

func TestStore_WaitsForReplicas(t *testing.T) {
	t.Parallel()
	// A replica is told of a write at once, but a new one only after repl-diskless-sync-delay.
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	s := open(t, master.URL(), Options{Replicas: 1, ReplicaTimeout: time.Minute})
	run, ctx := wire.NewRunKey("trip"), t.Context()
	replica := startReplica(t, master)
	records := storetest.AppendN(t, s, run, runner.Version{}, 2)
	if err := s.Barrier(ctx, run, records[1].Version); err != nil {
		t.Errorf("barrier: %v", err)
	}
	if err := s.PutSpec(ctx, storetest.Digest(nil), nil); err != nil {
		t.Errorf("spec: %v", err)
	}

	// A replica that is paused is connected: only a wait on the writer's own connection notices that it lacks the entry.
	replica.Pause()
	s.o.ReplicaTimeout = 200 * time.Millisecond
	next := storetest.NextRecord(records[1].Version, "third")
	if _, err := s.Append(ctx, run, records[1].Version, next); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("append with a paused replica: %v, want %v", err, runner.ErrAmbiguous)
	}
	head, err := s.Head(ctx, run)
	if err != nil || head.Etag != next.Etag {
		t.Fatalf("head: %+v, %v", head.Version, err)
	}
	if err := s.Barrier(ctx, run, head.Version); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("barrier with a paused replica: %v, want %v", err, runner.ErrAmbiguous)
	}
	if err := s.Barrier(ctx, run, records[1].Version); !errors.Is(err, runner.ErrConflict) {
		t.Errorf("barrier of an older entry: %v, want %v", err, runner.ErrConflict)
	}
	if _, err := s.Append(ctx, run, records[1].Version, next); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("repeat with a paused replica: %v, want %v", err, runner.ErrAmbiguous)
	}
	if err := s.PutSpec(ctx, storetest.Digest(nil), nil); err == nil {
		t.Error("a spec that the paused replica lacks is confirmed")
	}
	for range 2 { // the second time it is there
		if err := s.PutBlob(ctx, run, storetest.Digest(nil), nil); err == nil {
			t.Error("a blob that the paused replica lacks is confirmed")
		}
	}

	replica.Resume()
	storetest.Await(t, "repeat with the resumed replica", func(ctx context.Context) bool {
		var v runner.Version
		v, err = s.Append(ctx, run, records[1].Version, next)
		if err == nil {
			next.Version = v
		}
		return !errors.Is(err, runner.ErrAmbiguous)
	})
	if err != nil {
		t.Errorf("repeat with the resumed replica: %v", err)
	}
	storetest.CheckJournal(t, s, run, append(records, next))
}

// TestStore_LearnsScriptAgain: a server that was restarted or flushed knows no script.
func TestStore_LearnsScriptAgain(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	startReplica(t, server)
	for name, o := range map[string]Options{"alone": {}, "replicated": {Replicas: 1, ReplicaTimeout: time.Minute}} {
		s, run := open(t, server.URL(), o), wire.NewRunKey(name)
		records := storetest.AppendN(t, s, run, runner.Version{}, 1)
		if err := s.client.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		records = append(records, storetest.AppendN(t, s, run, records[0].Version, 1)...)
		storetest.CheckJournal(t, s, run, records)
	}
}

// TestStore_SurvivesKill kills the server at the moment when it has confirmed.
func TestStore_SurvivesKill(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	s, run := open(t, server.URL(), Options{}), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 3)
	server.Kill()
	next := storetest.NextRecord(records[2].Version, "fourth")
	if _, err := s.Append(t.Context(), run, records[2].Version, next); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("append without a server: %v, want %v", err, runner.ErrAmbiguous)
	}
	if err := s.Barrier(t.Context(), run, records[2].Version); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("barrier without a server: %v, want %v", err, runner.ErrAmbiguous)
	}
	server.Restart()
	v, err := s.Append(t.Context(), run, records[2].Version, next)
	if err != nil {
		t.Fatal(err)
	}
	next.Version = v
	storetest.CheckJournal(t, s, run, append(records, next))
}

// openProxied opens a store whose reads take at most timeout, through a proxy that loses answers.
func openProxied(t *testing.T, timeout string) (*Store, *storetest.Proxy) {
	proxy := storetest.NewProxy(t, redistest.StartServer(t).Addr())
	return open(t, "redis://"+proxy.Addr()+"?read_timeout="+timeout, Options{}), proxy
}

func TestStore_AmbiguousAppendIsRepeated(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, "500ms")
	storetest.AmbiguousAppend(t, s, proxy)
}

func TestStore_AmbiguousPurgeIsRepeated(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, "500ms")
	storetest.AmbiguousPurge(t, s, proxy)
}

// TestStore_RemoveLeavesNoKey: what is forgotten costs nothing.
func TestStore_RemoveLeavesNoKey(t *testing.T) {
	t.Parallel()
	s, run := open(t, redistest.Start(t), Options{}), wire.NewRunKey("trip")
	if err := s.PutBlob(t.Context(), run, storetest.Digest(nil), nil); err != nil {
		t.Fatal(err)
	}
	keep := storetest.Purged(t, s, run, storetest.AppendN(t, s, run, runner.Version{}, 2)[1].Version)
	if keys := s.client.Keys(t.Context(), "*").Val(); len(keys) != 3 {
		t.Errorf("a tombstone has the keys %v, want head, list and index", keys)
	}
	if err := s.Remove(t.Context(), run, keep.Version); err != nil {
		t.Fatal(err)
	}
	if keys := s.client.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("keys: %v", keys)
	}
}

// TestStore_ClientRepeatsOnce: the client itself repeats a request whose answer was lost; the entry is written once.
func TestStore_ClientRepeatsOnce(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, "5s")
	run := wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 1)
	proxy.CutNext()
	records = append(records, storetest.AppendN(t, s, run, records[0].Version, 1)...)
	select {
	case <-proxy.Lost():
	default:
		t.Error("no answer was lost")
	}
	storetest.CheckJournal(t, s, run, records)
}

// TestStore_ReadsSayWhoseTimeEnded: with a time of its own that is longer than a test may take, the store can only have
// stopped waiting at the caller's deadline.
func TestStore_ReadsSayWhoseTimeEnded(t *testing.T) {
	t.Parallel()
	s, proxy := openProxied(t, "10m")
	proxy.Mute()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	run := wire.NewRunKey("trip")
	_, headErr := s.Head(ctx, run)
	_, entriesErr := s.Entries(ctx, run, runner.Version{})
	_, _, runsErr := s.Runs(ctx, "", 1)
	for what, err := range map[string]error{"Head": headErr, "Entries": entriesErr, "Runs": runsErr} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s after the caller's deadline: %v", what, err)
		}
	}
}

// TestStore_RefusalsAreNotAmbiguous: repeating does not mend a missing permission, a full server it may.
func TestStore_RefusalsAreNotAmbiguous(t *testing.T) {
	t.Parallel()
	server := redistest.StartServer(t)
	s, run := open(t, server.URL(), Options{}), wire.NewRunKey("trip")
	first := storetest.NextRecord(runner.Version{}, "first")
	for _, test := range []struct {
		command   []any
		ambiguous bool
	}{
		{[]any{"ACL", "SETUSER", "default", "-rpush"}, false},
		{[]any{"ACL", "SETUSER", "default", "+rpush"}, true},
	} {
		if err := s.client.Do(t.Context(), test.command...).Err(); err != nil {
			t.Fatal(err)
		}
		if test.ambiguous {
			if err := s.client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.Append(t.Context(), run, runner.Version{}, first)
		if err == nil || errors.Is(err, runner.ErrAmbiguous) != test.ambiguous {
			t.Errorf("append after %v: %v, ambiguous should be %v", test.command, err, test.ambiguous)
		}
		if _, err := s.Head(t.Context(), run); !errors.Is(err, runner.ErrNotFound) {
			t.Errorf("head after %v: %v", test.command, err)
		}
	}
}

func TestStore_ReportsLostEntries(t *testing.T) {
	t.Parallel()
	s, run := open(t, redistest.Start(t), Options{}), wire.NewRunKey("trip")
	records := storetest.AppendN(t, s, run, runner.Version{}, 3)
	if err := s.client.LPop(t.Context(), s.listKey(run)).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Entries(t.Context(), run, runner.Version{}); err == nil {
		t.Error("entries do not miss the first one")
	}
	_, err := s.Append(t.Context(), run, records[2].Version, storetest.NextRecord(records[2].Version, "fourth"))
	if err == nil || errors.Is(err, runner.ErrAmbiguous) || errors.Is(err, runner.ErrConflict) {
		t.Errorf("append to a damaged journal: %v", err)
	}
}

// TestStore_KeysLast: no key of a live run may expire, and the keys are where operators look for them.
func TestStore_KeysLast(t *testing.T) {
	t.Parallel()
	s, run := open(t, redistest.Start(t), Options{Root: "prod"}), wire.NewRunKey("trip")
	storetest.AppendN(t, s, run, runner.Version{}, 1)
	digest := storetest.Digest(nil)
	if err := errors.Join(s.PutBlob(t.Context(), run, digest, nil), s.PutSpec(t.Context(), digest, nil)); err != nil {
		t.Fatal(err)
	}
	keys := s.client.Keys(t.Context(), "*").Val()
	if len(keys) != 6 {
		t.Errorf("keys: %v", keys)
	}
	for _, key := range keys {
		if !strings.HasPrefix(key, "prod:{p"+run.Partition+"}:") && key != "prod:spec:"+digest {
			t.Errorf("unexpected key %s", key)
		}
		if ttl := s.client.TTL(t.Context(), key).Val(); ttl != -1 {
			t.Errorf("key %s expires after %s", key, ttl)
		}
	}
}

func BenchmarkStore(b *testing.B) {
	for _, fsync := range []string{"always", "everysec"} {
		server := redistest.StartServer(b, "--appendfsync", fsync)
		storetest.Benchmark(b, "appendonly=yes,appendfsync="+fsync+",replicas=0", func(b *testing.B) runner.Store {
			return fresh(b, server.URL(), Options{AllowLossy: true})
		})
	}
}

// A run whose keys do not agree is not a conflict: that would be met again for ever.
func TestAppend_ReportsADamagedRun(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t), Options{})
	for name, damage := range map[string]func(run wire.RunKey) error{
		"head is gone":       func(run wire.RunKey) error { return s.client.Del(t.Context(), s.headKey(run)).Err() },
		"list is gone":       func(run wire.RunKey) error { return s.client.Del(t.Context(), s.listKey(run)).Err() },
		"an element is gone": func(run wire.RunKey) error { return s.client.LPop(t.Context(), s.listKey(run)).Err() },
		"last one is gone":   func(run wire.RunKey) error { return s.client.RPop(t.Context(), s.listKey(run)).Err() },
		"list is a string":   func(run wire.RunKey) error { return s.client.Set(t.Context(), s.listKey(run), "x", 0).Err() },
	} {
		run := wire.NewRunKey(name)
		records := storetest.AppendN(t, s, run, runner.Version{}, 3)
		if err := damage(run); err != nil {
			t.Fatal(err)
		}
		base := records[2].Version
		if head, err := s.Head(t.Context(), run); err == nil {
			base = head.Version
		}
		_, err := s.Append(t.Context(), run, base, storetest.NextRecord(base, "next"))
		if !errors.Is(err, runner.ErrCorrupt) {
			t.Errorf("%s: %v, want %v", name, err, runner.ErrCorrupt)
		}
	}
}
