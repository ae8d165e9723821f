package natsstore

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state/storetest"
	"agentd/sdk/wire"
)

// However many pages a partition has, the server lists it once: listing costs by what there is, not by its square.
func TestStore_ListsAPartitionOnceForAllItsPages(t *testing.T) {
	t.Parallel()
	ns := startServer(t, t.TempDir(), nil)
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	var listed atomic.Int64
	js, err := jetstream.New(nc, jetstream.WithClientTrace(&jetstream.ClientTrace{RequestSent: func(subject string, payload []byte) {
		if strings.Contains(subject, "STREAM.INFO") && strings.Contains(string(payload), "subjects_filter") {
			listed.Add(1)
		}
	}}))
	if err != nil {
		t.Fatal(err)
	}
	s := New(js, streamName, wire.DefaultSubjects())
	s.wholeList = 0
	const runs = 200
	const partition = "007"
	for n := range runs { // all in one partition, as if there were 256 times as many
		key := wire.NewRunKey(fmt.Sprint("run ", n))
		key.Partition = partition
		storetest.AppendN(t, s, key, runner.Version{}, 1)
	}
	cursor, pages, seen := "", 0, map[wire.RunKey]bool{}
	for {
		page, next, err := s.Runs(t.Context(), cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page {
			if seen[r.Run] {
				t.Errorf("run %s is listed twice", r.Run)
			}
			seen[r.Run] = true
		}
		pages++
		if cursor = next; cursor == "" {
			break
		}
	}
	if pages != runs/10 || len(seen) != runs {
		t.Errorf("%d runs in %d pages", len(seen), pages)
	}
	if n := listed.Load(); n != partitions {
		t.Errorf("partitions were listed %d times for %d pages, want %d: each once", n, pages, partitions)
	}
}

// A rest is good once, for a while, and only few are kept.
func TestRests_AreFewAndPass(t *testing.T) {
	t.Parallel()
	var r rests
	now := time.Now()
	for n := range mostRests + 1 {
		r.keep(fmt.Sprint(n), rest{listed: now.Add(time.Duration(n) * time.Millisecond)})
	}
	if _, ok := r.take("0"); ok || len(r.by) != mostRests {
		t.Errorf("%d rests are kept, the oldest one: %v", len(r.by), ok)
	}
	if _, ok := r.take("1"); !ok {
		t.Error("a rest is not there")
	}
	if _, ok := r.take("1"); ok {
		t.Error("a rest is there twice")
	}
	r.keep("old", rest{listed: now.Add(-restLasts)})
	if _, ok := r.take("old"); ok {
		t.Error("an old rest is good")
	}
	r.keep("old", rest{listed: now.Add(-restLasts)})
	r.keep("new", rest{listed: now})
	if _, ok := r.by["old"]; ok {
		t.Error("an old rest is kept")
	}
}
