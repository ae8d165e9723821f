package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/runner"
	"agentd/internal/state/redistest"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// pair is a server with a replica, which a sentinel puts in its place when it is gone.
type pair struct {
	t                         *testing.T
	server, replica, sentinel *redistest.Server
	store                     *Store
}

func startPair(t *testing.T, o Options) *pair {
	t.Helper()
	p := &pair{t: t, server: redistest.StartServer(t, "--repl-diskless-sync-delay", "0")}
	p.replica = startReplica(t, p.server)
	p.sentinel = redistest.StartSentinel(t, "journal", p.server)
	p.store = open(t, "redis+sentinel://"+p.sentinel.Addr()+"/journal", o)
	// A replica that has just come confirms nothing for up to a second.
	storetest.Await(t, "the replica confirms", func(ctx context.Context) bool { return p.store.Writable(ctx) == nil })
	return p
}

// cut has the replica get nothing of what is written from now on.
func (p *pair) cut() {
	p.t.Helper()
	p.replica.Pause() // so that it does not come back
	if err := client(p.t, p.server).ClientKillByFilter(p.t.Context(), "TYPE", "replica").Err(); err != nil {
		p.t.Fatal(err)
	}
}

// fail has the server die, and the replica take its place. The sentinel is impatient from now on only: a server that is merely slow stays
// in its place.
func (p *pair) fail() {
	p.t.Helper()
	for name, value := range map[string]string{"down-after-milliseconds": "500", "failover-timeout": "2000"} {
		if err := client(p.t, p.sentinel).Do(p.t.Context(), "SENTINEL", "SET", "journal", name, value).Err(); err != nil {
			p.t.Fatal(err)
		}
	}
	p.server.Kill()
	p.replica.Resume()
	r := client(p.t, p.replica)
	storetest.Await(p.t, "the replica takes its place", func(ctx context.Context) bool {
		return strings.Contains(r.Info(ctx, "replication").Val(), "role:master")
	})
	storetest.Await(p.t, "the store answers", func(ctx context.Context) bool {
		return p.store.client.Set(ctx, "other", "", 0).Err() == nil
	})
}

// writer appends to a run of its own, each entry until it is told that it was written, as agentd does.
type writer struct {
	run wire.RunKey

	mu sync.Mutex
	// confirmed are the entries of which it was told, and unsure the next one while it was not.
	confirmed []runner.Record
	unsure    runner.Record
	// refused is how often it was not told, and err why it was not the last time; nil when it was.
	refused int
	err     error
}

// last is the version after the confirmed entries.
func (w *writer) last() (base runner.Version) {
	if n := len(w.confirmed); n > 0 {
		base = w.confirmed[n-1].Version
	}
	return base
}

// write appends until ctx ends, and always to the end of an append.
func (w *writer) write(ctx context.Context, s *Store) {
	for next := storetest.NextRecord(w.last(), "first"); ctx.Err() == nil; {
		v, err := s.Append(context.WithoutCancel(ctx), w.run, w.last(), next)
		w.mu.Lock()
		if w.unsure, w.err = next, err; err != nil {
			w.refused++
		} else {
			next.Version = v
			w.confirmed = append(w.confirmed, next)
			next = storetest.NextRecord(v, fmt.Sprintf("entry %d", v.Rev+1))
		}
		w.mu.Unlock()
	}
}

func (w *writer) counts() (confirmed, refused int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.confirmed), w.refused
}

// lost are the confirmed entries that a store does not have.
func (w *writer) lost(t *testing.T, s *Store) int {
	t.Helper()
	entries, err := s.Entries(t.Context(), w.run, runner.Version{})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range w.confirmed {
		if i == len(entries) {
			return len(w.confirmed) - i
		}
		if entries[i].Etag != want.Etag || string(entries[i].Data) != string(want.Data) {
			t.Fatalf("entry %d of run %s is another one", i+1, w.run)
		}
	}
	return 0
}

// enough is how many entries each writer writes before, and where it can after, the replica is cut off.
const enough = 20

// interrupted has writers write while the replica is cut off, until each has written enough that it lacks or can write no more,
// and the server dies.
func (p *pair) interrupted() []*writer {
	p.t.Helper()
	writers := make([]*writer, 4)
	ctx, stop := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	for i := range writers {
		w := &writer{run: wire.NewRunKey(fmt.Sprint("trip", i))}
		writers[i] = w
		running.Go(func() { w.write(ctx, p.store) })
	}
	each := func(what string, holds func(w *writer, confirmed, refused int) bool) {
		storetest.Await(p.t, what, func(context.Context) bool {
			return !slices.ContainsFunc(writers, func(w *writer) bool {
				confirmed, refused := w.counts()
				return !holds(w, confirmed, refused)
			})
		})
	}
	each("writers have written", func(_ *writer, confirmed, _ int) bool { return confirmed >= enough })
	p.cut()
	type counts struct{ confirmed, refused int }
	before := map[*writer]counts{}
	for _, w := range writers {
		confirmed, refused := w.counts()
		before[w] = counts{confirmed, refused}
	}
	each("writers go on, or cannot", func(w *writer, confirmed, refused int) bool {
		return confirmed >= before[w].confirmed+enough || refused >= before[w].refused+2
	})
	stop()
	running.Wait()
	p.fail()
	return writers
}

// What was confirmed is there after a failover, whatever the replica lacked: that was not confirmed. It is when there is a replica again.
func TestStore_FailoverLosesNothingThatReplicasWereWaitedFor(t *testing.T) {
	t.Parallel()
	p := startPair(t, Options{Replicas: 1, ReplicaTimeout: 500 * time.Millisecond})
	writers := p.interrupted()
	for _, w := range writers {
		if !errors.Is(w.err, runner.ErrAmbiguous) {
			t.Errorf("run %s: append while the replica lacks it: %v, want %v", w.run, w.err, runner.ErrAmbiguous)
		}
		if n := w.lost(t, p.store); n > 0 {
			t.Errorf("run %s has lost %d of %d confirmed entries", w.run, n, len(w.confirmed))
		}
	}
	redistest.StartReplica(t, p.replica)
	for _, w := range writers {
		next := w.unsure
		var err error
		storetest.Await(t, "the entry is written again", func(ctx context.Context) bool {
			next.Version, err = p.store.Append(ctx, w.run, w.last(), w.unsure)
			return !errors.Is(err, runner.ErrAmbiguous)
		})
		if err != nil {
			t.Fatal(err)
		}
		storetest.CheckJournal(t, p.store, w.run, append(w.confirmed, next))
	}
}

// Without waiting the same failover loses what was confirmed, so that the test above can fail.
func TestStore_FailoverLosesWhatNobodyWaitedFor(t *testing.T) {
	t.Parallel()
	p := startPair(t, Options{})
	for _, w := range p.interrupted() {
		if w.err != nil {
			t.Errorf("run %s: append while the replica lacks it: %v", w.run, w.err)
		}
		if n := w.lost(t, p.store); n == 0 {
			t.Errorf("run %s has all of its %d entries, of which the replica lacked some", w.run, len(w.confirmed))
		}
	}
}
