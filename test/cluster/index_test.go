package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/worker"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// A console makes an index with one replica, which waits for no disk. With three it does: provisioning makes it anew, since the server
// changes neither, whoever reads it notices, and it takes documents as before.
func TestIndex_GetsItsReplicas(t *testing.T) {
	t.Parallel()
	s := start(t)
	config := func() jetstream.StreamConfig {
		t.Helper()
		stream, err := s.control.JetStream().Stream(t.Context(), "AGENTD_IDX")
		check(t, err)
		return stream.CachedInfo().Config
	}
	check(t, provision.Index(t.Context(), s.control))
	if is := config(); is.Replicas != 1 || is.PersistMode != jetstream.AsyncPersistMode {
		t.Fatalf("a console makes %d replicas, %s", is.Replicas, is.PersistMode)
	}
	read := make(chan broker.IndexedRun, 2)
	tail := func() chan error {
		ended := make(chan error, 1)
		go func() {
			ended <- s.control.TailIndex(t.Context(), 1, func(i broker.IndexedRun, _ uint64) error { read <- i; return nil })
		}()
		return ended
	}
	publish := func(rev uint64) {
		t.Helper()
		run := broker.IndexedRun{Run: wire.NewRunKey("one"), Revision: rev, Data: []byte("{}")}
		check(t, s.control.PublishIndexed(run))
		select {
		case got := <-read:
			if got.Run != run.Run || got.Revision != rev {
				t.Fatalf("%+v is read; want %+v", got, run)
			}
		case <-time.After(time.Minute):
			t.Fatalf("document %d is not read", rev)
		}
	}
	before := tail()
	publish(1)

	plan := worker.Plan([]sdk.AgentSpec{adder()})
	plan.Replicas, plan.Index = servers, true
	changes, err := provision.Apply(t.Context(), s.control, plan)
	check(t, err)
	if len(changes) != 1 || changes[0].Name != "AGENTD_IDX" || !strings.Contains(changes[0].What, "it is made anew") {
		t.Errorf("it changes %v", changes)
	}
	if is := config(); is.Replicas != servers || is.PersistMode != jetstream.DefaultPersistMode {
		t.Errorf("it has %d replicas, %s", is.Replicas, is.PersistMode)
	}
	if err := <-before; !errors.Is(err, broker.ErrOtherStream) {
		t.Errorf("its reader ends with %v", err)
	}
	tail()
	publish(2)
	if changes, err := provision.Apply(t.Context(), s.control, plan); err != nil || changes != nil {
		t.Errorf("the second time: %v, %v", changes, err)
	}
}
