package worker

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/finding"
	"agentd/internal/runner"
	"agentd/internal/state/redistest"
	"agentd/internal/state/storetest"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// refused fails unless an error says, in a text, that a store is not the one that runs are kept in.
func refused(t *testing.T, err error, text string) {
	t.Helper()
	if !errors.Is(err, ErrOtherStore) || !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.HasPrefix(sdk.AsError(err).Message, text) {
		t.Errorf("the store is opened with %v, want that it is refused with %q", err, text)
	}
}

// foundByDoctor fails unless doctor finds, with a text, that a store is not the one that runs are kept in; "" is that it does not.
func foundByDoctor(t *testing.T, conn *broker.Conn, o StoreOptions, text string) {
	t.Helper()
	var found []finding.Finding
	for _, f := range CheckStore(t.Context(), conn, o) {
		if f.Code == "store_other" {
			found = append(found, f)
		}
	}
	switch {
	case text == "" && found == nil:
	case text == "" || len(found) != 1 || found[0].Severity != finding.SeverityError || !strings.HasPrefix(found[0].Message, text) ||
		found[0].Remedy != "if the store that has the runs is lost for good: agentd reconcile --store-lost":
		t.Errorf("the doctor finds %+v, want %q", found, text)
	}
}

// opened closes a store, and returns why it was not opened.
func opened(t *testing.T, store OpenedStore, err error) error {
	t.Helper()
	if closed := store.Close(); closed != nil {
		t.Error(closed)
	}
	return err
}

// databases are two of a Redis.
func databases(t *testing.T) (one, other StoreOptions) {
	t.Helper()
	server := redistest.StartServer(t)
	return StoreOptions{RedisURL: "redis://" + server.Addr() + "/0"}, StoreOptions{RedisURL: "redis://" + server.Addr() + "/1"}
}

const anotherRedis = "this Redis is not the store that runs are kept in (since 20"

// A store of another kind, and another database, are not what runs are kept in, until somebody says so.
func TestOpenStore_RefusesAnotherStore(t *testing.T) {
	t.Parallel()
	conns, _ := someWorkers(t, 1)
	conn, ctx := conns[0], t.Context()
	one, other := databases(t)
	open := func(o StoreOptions) error {
		store, err := OpenStore(ctx, conn, o)
		return opened(t, store, err)
	}
	own := func(o StoreOptions) error {
		store, err := OpenOwnStore(ctx, conn, o)
		return opened(t, store, err)
	}
	for _, o := range []StoreOptions{one, other, {}} { // nobody has said anything, and who only looks does not
		if err := open(o); err != nil {
			t.Fatalf("before there was a worker: %v", err)
		}
	}
	if err := own(one); err != nil {
		t.Fatal(err)
	}
	for _, try := range []func(StoreOptions) error{open, own} {
		if err := try(one); err != nil {
			t.Errorf("the one store: %v", err)
		}
		refused(t, try(other), anotherRedis)
		refused(t, try(StoreOptions{}), "runs are kept in redis, and this is jetstream: set REDIS_URL")
	}

	foundByDoctor(t, conn, other, anotherRedis)

	moved, err := OpenAnyStore(ctx, conn, other)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = moved.Close() }()
	var notes [2]*home
	for i := range notes { // again, it changes nothing
		if err := MoveTo(ctx, conn, moved); err != nil {
			t.Fatal(err)
		}
		if notes[i], err = homeOf(ctx, conn); err != nil {
			t.Fatal(err)
		}
	}
	if *notes[0] != *notes[1] || notes[0].Kind != "redis" || notes[0].Since == 0 {
		t.Errorf("it is noted %+v, and then %+v", notes[0], notes[1])
	}
	if err := own(other); err != nil {
		t.Errorf("the store that runs are kept in from now on: %v", err)
	}
	refused(t, own(one), anotherRedis)
}

// Of workers that begin at once, all on one store have it for the one; of those on several, those on one of them.
func TestOpenOwnStore_WorkersAgree(t *testing.T) {
	t.Parallel()
	const workers = 8
	one, other := databases(t)
	for name, stores := range map[string][]StoreOptions{"one store": {{}}, "several": {one, other, {}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conns, _ := someWorkers(t, workers)
			errs := make([]error, workers)
			begin := make(chan struct{})
			var starting sync.WaitGroup
			for i := range workers {
				starting.Go(func() {
					<-begin
					store, err := OpenOwnStore(t.Context(), conns[i], stores[i%len(stores)])
					errs[i] = opened(t, store, err)
				})
			}
			close(begin)
			starting.Wait()
			agreed := map[int]bool{}
			for i, err := range errs {
				if err == nil {
					agreed[i%len(stores)] = true
				} else if !errors.Is(err, ErrOtherStore) {
					t.Errorf("worker %d: %v", i, err)
				}
			}
			if len(agreed) != 1 {
				t.Fatalf("workers have %d stores for the one", len(agreed))
			}
			for i, err := range errs {
				if agreed[i%len(stores)] != (err == nil) {
					t.Errorf("worker %d: %v", i, err)
				}
			}
		})
	}
}

// Runs of before it was noted where they are stay where they are. What is emptied afterwards is noticed, and not taken for another.
func TestOpenOwnStore_KeepsWhatThereIs(t *testing.T) {
	t.Parallel()
	conns, _ := someWorkers(t, 1)
	conn, ctx := conns[0], t.Context()
	before, err := JournalStore(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	run := wire.NewRunKey("trip")
	if _, err := before.Append(ctx, run, runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: "first"}, Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	store, err := OpenOwnStore(ctx, conn, StoreOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Head(ctx, run); err != nil {
		t.Errorf("the run of before: %v", err)
	}
	w := &Worker{Options: Options{Conn: conn}, store: store}
	if err := errors.Join(w.settling(ctx), w.writeProblem(ctx)); err != nil {
		t.Errorf("the worker: %v", err)
	}
	stream, err := conn.JetStream().Stream(ctx, streams.Name(conn.Subjects(), streams.Run))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Purge(ctx); err != nil {
		t.Fatal(err)
	}
	const emptied = "the journals in this JetStream are not those of the runs (since 20"
	refused(t, w.settling(ctx), emptied)
	refused(t, w.writeProblem(ctx), emptied)
	_, err = OpenOwnStore(ctx, conn, StoreOptions{})
	refused(t, err, emptied)
}

// A replica that took over without the mark would be another store: which store it is is said when replicas have the mark, where they are waited for.
func TestOpenOwnStore_WaitsUntilReplicasHaveTheMark(t *testing.T) {
	t.Parallel()
	conns, _ := someWorkers(t, 1)
	conn, ctx := conns[0], t.Context()
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	o := StoreOptions{RedisURL: master.URL(), RedisReplicas: 1, RedisReplicaTimeout: time.Millisecond}
	store, err := OpenOwnStore(ctx, conn, o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	if h, err := homeOf(ctx, conn); h != nil || err != nil {
		t.Errorf("it is noted %+v, %v", h, err)
	}
	w := &Worker{Options: Options{Conn: conn}, store: store}
	if err := w.settling(ctx); !errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		t.Errorf("a pass without the replica: %v", err)
	}
	redistest.StartReplica(t, master)
	storetest.Await(t, "it is noted which store it is", func(ctx context.Context) bool { return w.settling(ctx) == nil })
	if h, err := homeOf(ctx, conn); h == nil || h.Kind != "redis" || err != nil {
		t.Errorf("it is noted %+v, %v", h, err)
	}
}

// Where nobody has said which store it is, as before this was noted, one without any run is not it when runs have ended: the first worker that is
// started with another configuration does not decide.
func TestOpenOwnStore_RefusesAnEmptyStoreWhereRunsHaveEnded(t *testing.T) {
	t.Parallel()
	conns, _ := someWorkers(t, 1)
	conn, ctx := conns[0], t.Context()
	one, other := databases(t)
	run := wire.NewRunKey("trip")
	if _, err := conn.JetStream().Publish(ctx, conn.Subjects().Done("desk", run, "init"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	has, err := OpenAnyStore(ctx, conn, one)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = has.Close() }()
	if _, err := has.Append(ctx, run, runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: "first"}, Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	for o, want := range map[*StoreOptions]string{
		&other: "runs have ended here, and this Redis has none", {}: "runs have ended here, and this JetStream has none: set REDIS_URL",
	} {
		store, err := OpenOwnStore(ctx, conn, *o)
		refused(t, opened(t, store, err), want)
		foundByDoctor(t, conn, *o, want)
		if store, err = OpenAnyStore(ctx, conn, *o); err != nil {
			t.Fatal(err)
		}
		w := &Worker{Options: Options{Conn: conn}, store: store}
		refused(t, w.comparing(ctx), want)
		refused(t, w.settling(ctx), want)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	foundByDoctor(t, conn, one, "")
	if h, err := homeOf(ctx, conn); h != nil || err != nil {
		t.Errorf("it is noted %+v, %v", h, err)
	}
	store, err := OpenOwnStore(ctx, conn, one)
	if err := opened(t, store, err); err != nil {
		t.Errorf("the store that has a run: %v", err)
	}
}
