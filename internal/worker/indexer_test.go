package worker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// indexing is an index of runs, and the workers that tell it of them.
type indexing struct {
	*testing.T
	conn    *broker.Conn
	workers []*indexer
}

func newIndexing(t *testing.T, workers int) *indexing {
	t.Helper()
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	x := &indexing{T: t}
	for range workers + 1 {
		conn, err := broker.Connect(t.Context(), broker.ConnectOptions{InProcess: server, Subjects: wire.DefaultSubjects()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		x.conn = conn
		x.workers = append(x.workers, newIndexer(conn, nil, slog.New(slog.DiscardHandler)))
	}
	x.workers = x.workers[:workers]
	if _, err := provision.Apply(t.Context(), x.conn, provision.Plan{Index: true}); err != nil {
		t.Fatal(err)
	}
	return x
}

func (x *indexing) note(worker int, run string, rev uint64, status core.Status) {
	head := &core.Head{Run: run, Agent: "desk", Status: status}
	x.workers[worker].Note(runner.Indexed{Head: head, Version: runner.Version{Rev: rev, Etag: "e"}, At: 1, Started: 1})
}

// until waits until the index has this entry of a run.
func (x *indexing) until(run string, rev uint64) (i broker.IndexedRun) {
	x.Helper()
	what := fmt.Sprintf("the index has entry %d of run %s", rev, run)
	poll.Until(x.T, time.Minute, what, func() bool {
		var err error
		if i, err = x.conn.Indexed(x.Context(), wire.NewRunKey(run)); err != nil {
			x.Fatalf("%s: %v", what, err)
		}
		return i.Revision == rev
	})
	return i
}

// flushed has a worker say what it kept back, and waits until all of it is stored.
func (x *indexing) flushed(worker int) {
	x.Helper()
	x.workers[worker].flush(x.Context(), 0)
	x.note(worker, "a mark", 1, core.StatusDone) // what one connection publishes is stored in order
	x.until("a mark", 1)
}

// What a worker kept back of a run is said, unless others have said more of the run meanwhile.
func TestIndexer_KeepsWhatOthersSaidMeanwhile(t *testing.T) {
	t.Parallel()
	x := newIndexing(t, 2)
	for _, run := range []string{"quiet", "ended", "purged"} {
		x.note(0, run, 1, core.StatusRunning)
		x.note(0, run, 3, core.StatusWaiting) // kept back
		x.until(run, 1)
	}
	x.note(1, "ended", 6, core.StatusDone)
	x.until("ended", 6)
	if err := x.conn.PublishIndexed(broker.IndexedRun{Run: wire.NewRunKey("purged"), Revision: 7}); err != nil {
		t.Fatal(err)
	}
	x.until("purged", 7)
	x.flushed(0)
	for run, want := range map[string]uint64{"quiet": 3, "ended": 6, "purged": 7} {
		i, err := x.conn.Indexed(t.Context(), wire.NewRunKey(run))
		if err != nil || i.Revision != want || len(i.Data) == 0 != (run == "purged") {
			t.Errorf("run %s: entry %d with %q, %v; want that of entry %d", run, i.Revision, i.Data, err, want)
		}
	}
}

// What could not be said, because the broker did not answer, is said later, unless there is more to say by then.
func TestIndexer_SaysLaterWhatTheBrokerDidNotTake(t *testing.T) {
	t.Parallel()
	x := newIndexing(t, 1)
	for _, run := range []string{"quiet", "busy"} {
		x.note(0, run, 1, core.StatusRunning)
		x.note(0, run, 3, core.StatusWaiting) // kept back
		x.until(run, 1)
	}
	away, cancel := context.WithCancel(t.Context())
	cancel()
	x.workers[0].flush(away, 0)
	x.note(0, "busy", 5, core.StatusWaiting) // kept back
	x.workers[0].failed(t.Context(), &index.Document{Run: "busy", Rev: 3}, away.Err())
	x.flushed(0)
	for run, want := range map[string]uint64{"quiet": 3, "busy": 5} {
		if i, err := x.conn.Indexed(t.Context(), wire.NewRunKey(run)); err != nil || i.Revision != want {
			t.Errorf("run %s: entry %d, %v; want that of entry %d", run, i.Revision, err, want)
		}
	}
}

// Who may not read what the index has is told what to do about it, once.
func TestIndexer_SaysOnceThatItMayNotRead(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	x := newIndexer(nil, nil, slog.New(slog.NewTextHandler(&log, nil)))
	for _, run := range []string{"one", "two"} {
		x.runs[run] = &resting{}
		x.failed(t.Context(), &index.Document{Run: run, Rev: 3}, sdk.Errorf(sdk.CodePermissionDenied, "refused"))
		if x.runs[run].next != nil {
			t.Errorf("what is to be said of run %s is kept, and would be refused again and again", run)
		}
	}
	if told := log.String(); strings.Count(told, "\n") != 1 || !strings.Contains(told, "make the server's configuration anew: agentd nats-config") {
		t.Errorf("it is told:\n%s", told)
	}
}

// Others may say more between the look and the word of who looked.
func TestIndexer_ReplacesWhatItHasSeen(t *testing.T) {
	t.Parallel()
	x := newIndexing(t, 2)
	x.note(0, "trip", 1, core.StatusRunning)
	was := x.until("trip", 1)
	x.note(1, "trip", 6, core.StatusDone)
	ended := x.until("trip", 6)
	late, err := x.workers[0].indexed(&index.Document{Run: "trip", Rev: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.workers[0].conn.ReplaceIndexed(was, late); err != nil {
		t.Fatal(err)
	}
	x.flushed(0)
	i, err := x.conn.Indexed(t.Context(), wire.NewRunKey("trip"))
	if err != nil || i.Sequence != ended.Sequence || !bytes.Equal(i.Data, ended.Data) {
		t.Errorf("%+v, %v, is in the place of %+v", i, err, ended)
	}
}
