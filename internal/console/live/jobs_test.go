package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"agentd/internal/broker"
	"agentd/internal/broker/brokertest"
	"agentd/internal/broker/embedded"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/internal/bulk"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/natsstore"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is a store whose runs are listed when it is told to, a page each time.
type slow struct {
	state.Store
	goes chan struct{}
}

func (s slow) Runs(ctx context.Context, cursor string, _ int) ([]runner.StoredRun, string, error) {
	select {
	case <-s.goes:
		return s.Store.Runs(ctx, cursor, 100)
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// counting are jobs of a console whose requests wait for no run, and whose store has so many.
func counting(t *testing.T, runs int) (*jobs, slow) {
	t.Helper()
	conn := brokertest.Connect(t, broker.ConnectOptions{InProcess: brokertest.Server(t, embedded.Options{})})
	if _, err := provision.Apply(t.Context(), conn, provision.Plan{}); err != nil {
		t.Fatal(err)
	}
	store := slow{natsstore.New(conn.JetStream(), streams.Name(conn.Subjects(), streams.Run), conn.Subjects()), make(chan struct{})}
	var writing errgroup.Group
	writing.SetLimit(16)
	for n := range runs {
		writing.Go(func() error {
			e := core.Entry{V: 1, Rev: 1, Etag: fmt.Sprint("etag-", n), Change: core.Change{Head: core.Head{
				Run: fmt.Sprint("run ", n), Agent: "desk", Status: core.StatusWaiting,
			}}}
			data, err := e.Encode()
			if err != nil {
				return err
			}
			_, err = store.Append(t.Context(), wire.NewRunKey(e.Head.Run), runner.Version{}, runner.Record{Version: runner.Version{Rev: 1, Etag: e.Etag}, Data: data})
			return err
		})
	}
	if err := writing.Wait(); err != nil {
		t.Fatal(err)
	}
	j := newJobs(t.Context(), conn, store, slog.New(slog.NewTextHandler(t.Output(), nil)))
	j.soon = 0
	return j, store
}

// cancelling is a job that is to cancel all runs.
func cancelling(t *testing.T) bulk.Request {
	t.Helper()
	filter, err := index.ParseFilter("run:*")
	if err != nil {
		t.Fatal(err)
	}
	return bulk.Request{Verb: bulk.VerbCancel, Filter: filter}
}

// is fails unless a job is kept in a state, for a reason, with so many runs.
func (j *jobs) is(t *testing.T, id string, state bulk.State, runs int, problem string) *bulk.Job {
	t.Helper()
	job, err := j.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if job.State != state || job.Runs != runs || job.Problem != problem {
		t.Errorf("the job is %s with %d runs (%s); want %s with %d (%s)", job.State, job.Runs, job.Problem, state, runs, problem)
	}
	return job
}

// Where it takes long to find the runs of a job, no request waits for that: they are found all the same, and nothing is done to them before.
func TestPropose_FindsRunsAfterItsRequest(t *testing.T) {
	t.Parallel()
	const runs = 250
	j, store := counting(t, runs)
	defer j.close()
	request, end := context.WithCancel(t.Context())
	made, err := j.Propose(request, cancelling(t))
	if err != nil {
		t.Fatal(err)
	}
	end()
	job := j.is(t, made.ID, bulk.Finding, 0, "")
	if !j.Held(job) {
		t.Error("nobody finds its runs")
	}
	if err := j.Begin(t.Context(), job, 0); !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		t.Errorf("a job begins whose runs are not found: %v", err)
	}
	for range 3 {
		store.goes <- struct{}{}
	}
	j.mu.Lock()
	finding := j.mine[made.ID]
	j.mu.Unlock()
	if finding != nil {
		<-finding.done
	}
	j.is(t, made.ID, bulk.Proposed, runs, "")
}

// A console that is closed meanwhile says so: the job is to be proposed again.
func TestPropose_SaysThatNobodyFindsTheRuns(t *testing.T) {
	t.Parallel()
	j, _ := counting(t, 1)
	made, err := j.Propose(t.Context(), cancelling(t))
	if err != nil {
		t.Fatal(err)
	}
	j.close()
	job := j.is(t, made.ID, bulk.Unfound, 0, "the program that looked for them has ended")
	if j.Held(job) {
		t.Error("somebody finds its runs")
	}
	err = j.Begin(t.Context(), job, 0)
	if want := "bulk job " + made.ID + " has not found its runs (the program that looked for them has ended); propose it again"; sdk.AsError(err).Message != want {
		t.Errorf("it is refused with %v, want %s", err, want)
	}
}
