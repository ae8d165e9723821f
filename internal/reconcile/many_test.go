package reconcile_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/reconcile"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// manyVariable is the environment variable with how many runs one partition has: 1 run in 256.
const manyVariable = "AGENTD_TEST_RUNS"

// What a pass takes for runs that have ended, of which a partition has as many as it has of 256 times as many runs.
func TestRun_OfManyRunsThatHaveEnded(t *testing.T) {
	t.Parallel()
	runs, err := strconv.Atoi(os.Getenv(manyVariable))
	if err != nil {
		runs = 200
	}
	r := start(t)
	ended := r.begin("say")
	r.done(ended)
	r.settled()
	r.stop()
	record, err := r.store.Head(r.context(), ended.key)
	r.check("read head", err)
	last, err := core.DecodeEntry(record.Data)
	r.check("decode head", err)
	event, err := r.conn.WaitDone(r.context(), ended.agent, ended.key, ended.init)
	r.check("read the end", err)
	began := time.Now()
	var writing errgroup.Group
	writing.SetLimit(64)
	var subjects []string
	for n := 0; len(subjects) < runs; n++ {
		e := last
		e.Head.Run = fmt.Sprint("order ", n)
		key := wire.NewRunKey(e.Head.Run)
		if key.Partition != ended.key.Partition {
			continue
		}
		subjects = append(subjects, e.Head.Run)
		writing.Go(func() error {
			e.Rev, e.Etag, e.Prev = 1, fmt.Sprint("etag-", n), ""
			data, err := e.Encode()
			if err != nil {
				return err
			}
			version := runner.Version{Rev: 1, Etag: e.Etag}
			if _, err := r.store.Append(t.Context(), key, runner.Version{}, runner.Record{Version: version, Data: data}); err != nil {
				return err
			}
			end := event
			end.Subject, end.ID = e.Head.Run, fmt.Sprint("end-", n)
			init := e.Head.Generation()
			return r.conn.Publish(t.Context(), outbox.TerminalSubject(r.conn.Subjects(), e.Head.Agent, key, &init), end)
		})
	}
	r.check("write runs", writing.Wait())
	t.Logf("%d runs were written in %s", runs, time.Since(began).Round(time.Millisecond))
	measure := func(inits int) {
		t.Helper()
		began := time.Now()
		report, err := reconcile.Run(t.Context(), r.options())
		if err != nil || report.Runs != runs+1 || report.Inits != inits+1 || len(report.Found) > 0 {
			t.Fatalf("%v: %+v", err, report)
		}
		t.Logf("a pass over %d runs and %d init events: %s", report.Runs, report.Inits, time.Since(began).Round(time.Millisecond))
	}
	measure(0)
	for n, subject := range subjects {
		writing.Go(func() error {
			return r.conn.Start(t.Context(), "desk", wire.Event{
				ID: fmt.Sprint("many-", n), Source: "com.test.client", Type: "desk", Subject: subject,
				Time: time.UnixMilli(1_790_000_000_000), Data: []byte(`{"message":"say"}`),
			})
		})
	}
	r.check("write init events", writing.Wait())
	measure(runs)
	began = time.Now()
	cleared, err := reconcile.Clear(t.Context(), r.options())
	if err != nil {
		t.Fatalf("%v: %+v", err, cleared)
	}
	t.Logf("clearing: %s", time.Since(began).Round(time.Millisecond))
}
