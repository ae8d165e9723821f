package redisstore

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/runner"
	"agentd/internal/state/redistest"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const fewReplicasFound = "redis_few_replicas error"

// A store that replicas are missing of is opened, because they may come back, and takes no writes until then.
func TestOpen_SaysThatReplicasAreMissing(t *testing.T) {
	t.Parallel()
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	o := Options{Replicas: 1, ReplicaTimeout: time.Millisecond}
	s, found, err := Open(t.Context(), master.URL(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if diff := cmp.Diff([]string{fewReplicasFound}, summary(found)); diff != "" {
		t.Errorf("findings without a replica (-want +got):\n%s", diff)
	}
	if err := s.Writable(t.Context()); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) || !strings.Contains(err.Error(), "0 of 1 replicas") {
		t.Errorf("writable without a replica: %v", err)
	}
	startReplica(t, master)
	if found := Check(t.Context(), s.client, 1); len(found) > 0 {
		t.Errorf("findings with a replica: %v", found)
	}
	if diff := cmp.Diff([]string{fewReplicasFound}, summary(Check(t.Context(), s.client, 2))); diff != "" {
		t.Errorf("findings with one replica of two (-want +got):\n%s", diff)
	}
	storetest.Await(t, "writable with a replica", func(ctx context.Context) bool { return s.Writable(ctx) == nil })
}

// Each master of a cluster needs replicas of its own.
func TestOpen_SaysThatMastersOfAClusterLackReplicas(t *testing.T) {
	t.Parallel()
	s, found, err := Open(t.Context(), startCluster(t), Options{Replicas: 1, ReplicaTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{fewReplicasFound}, summary(found)); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
	if err := s.Writable(t.Context()); err == nil {
		t.Error("it is writable")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A replica that stands still is connected, and a user without the right to WAIT is told of nothing.
func TestWritable_AsksReplicas(t *testing.T) {
	t.Parallel()
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	replica := startReplica(t, master)
	s := open(t, master.URL(), Options{Replicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	replica.Pause()
	if found := Check(t.Context(), s.client, 1); len(found) > 0 {
		t.Errorf("a replica that stands still is missed: %v", found)
	}
	if err := s.Writable(t.Context()); err == nil {
		t.Fatal("it is writable with a replica that stands still")
	}
	replica.Resume()
	storetest.Await(t, "writable", func(ctx context.Context) bool { return s.Writable(ctx) == nil })
	storetest.Await(t, "one key for what is written", func(ctx context.Context) bool {
		return slices.Equal(s.client.Keys(ctx, "*").Val(), []string{"agentd:{p000}:probe"})
	})

	if err := client(t, master).Do(t.Context(), "ACL", "SETUSER", "default", "-wait").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(t.Context()); err == nil || !strings.Contains(err.Error(), "may call WAIT") {
		t.Errorf("writable without the right to wait: %v", err)
	}
	run, first := wire.NewRunKey("trip"), storetest.NextRecord(runner.Version{}, "first")
	if _, err := s.Append(t.Context(), run, runner.Version{}, first); !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("append without the right to wait: %v, want %v: it is written", err, runner.ErrAmbiguous)
	}
	if head, err := s.Head(t.Context(), run); err != nil || head.Etag != first.Etag {
		t.Errorf("head: %+v, %v", head.Version, err)
	}
}

// A replica tells what it has synced a second late if it is asked together with the write.
func TestAppend_AsksForMemoryBeforeFiles(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string
	s := open(t, redistest.Start(t), Options{Command: func(name string) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, name)
	}})
	s.o.Replicas, s.waitAOF = 1, true
	s.o.ReplicaTimeout = time.Millisecond
	sent = nil
	_, err := s.Append(t.Context(), wire.NewRunKey("trip"), runner.Version{}, storetest.NextRecord(runner.Version{}, "first"))
	if !errors.Is(err, runner.ErrAmbiguous) {
		t.Errorf("append without a replica: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"wait", "waitaof"}, slices.DeleteFunc(slices.Compact(sent), func(name string) bool {
		return strings.HasPrefix(name, "eval")
	})[:2]); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

// A replica that writes no file confirms what it has in memory to a server that can ask for no more.
func TestWritable_AsksForFilesWhereTheServerCan(t *testing.T) {
	t.Parallel()
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	replica := client(t, startReplica(t, master))
	s := open(t, master.URL(), Options{Replicas: 1, ReplicaTimeout: 2 * time.Second})
	storetest.Await(t, "writable", func(ctx context.Context) bool { return s.Writable(ctx) == nil })
	if err := replica.ConfigSet(t.Context(), "appendonly", "no").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(t.Context()); (err != nil) != s.waitAOF {
		t.Errorf("the server knows WAITAOF: %v; writable with a replica without a file: %v", s.waitAOF, err)
	}
}
