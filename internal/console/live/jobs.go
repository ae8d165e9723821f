package live

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"agentd/internal/broker"
	"agentd/internal/bulk"
	"agentd/internal/state"
	"agentd/sdk"
)

// jobs implements console.Jobs: it finds the runs of jobs, and carries jobs out, beside the requests, until it is closed. Then another program
// may go on at once.
type jobs struct {
	conn   *broker.Conn
	store  state.Store
	logger *slog.Logger
	// soon is how long a request waits for the runs of a job.
	soon time.Duration

	ctx      context.Context // it is that of all jobs that are carried out, and ends with the console
	stop     context.CancelFunc
	carrying sync.WaitGroup

	mu sync.Mutex
	// opened is where jobs are kept, once somebody has asked for one, and mine those that something is done for here, by their ids.
	opened *bulk.Bulk
	mine   map[string]*carried
}

// carried is a job whose runs are found, or that is carried out, here: cancel ends that, and done is closed when it has ended.
type carried struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// soonFound is jobs.soon of consoles. To read all runs, where nobody has an index, may take longer than any request.
const soonFound = 5 * time.Second

func newJobs(ctx context.Context, conn *broker.Conn, store state.Store, logger *slog.Logger) *jobs {
	j := &jobs{conn: conn, store: store, logger: logger, soon: soonFound, mine: map[string]*carried{}}
	j.ctx, j.stop = context.WithCancel(context.WithoutCancel(ctx))
	return j
}

// close lets go of the jobs that are carried out.
func (j *jobs) close() {
	j.stop()
	j.carrying.Wait()
}

// with calls do with where jobs are kept, which the first call makes where it is not there yet.
func (j *jobs) with(ctx context.Context, do func(context.Context, bulk.Bulk) error) error {
	return j.conn.Permitted(ctx, func(ctx context.Context) error {
		b, err := j.open(ctx)
		if err != nil {
			return err
		}
		return do(ctx, b)
	})
}

func (j *jobs) open(ctx context.Context) (bulk.Bulk, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.opened == nil {
		b, err := bulk.Open(ctx, j.conn, j.store)
		if err != nil {
			return bulk.Bulk{}, err
		}
		j.opened = &b
	}
	return *j.opened, nil
}

// Propose implements console.Jobs.
func (j *jobs) Propose(ctx context.Context, r bulk.Request) (job *bulk.Job, err error) {
	err = j.with(ctx, func(ctx context.Context, b bulk.Bulk) error {
		making, err := b.Make(ctx, r)
		if err != nil {
			return err
		}
		made := *making // as it is now: another goroutine goes on with it
		job = &made
		found := make(chan error, 1)
		err = j.beside(made.ID, func(ctx context.Context) error {
			found <- b.Find(ctx, making)
			return nil // the job says it
		})
		if err != nil {
			return err
		}
		select {
		case err = <-found:
			return err
		case <-time.After(j.soon):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return job, err
}

// List implements console.Jobs.
func (j *jobs) List(ctx context.Context) (list []*bulk.Job, err error) {
	err = j.with(ctx, func(ctx context.Context, b bulk.Bulk) (err error) {
		list, err = b.List(ctx)
		return err
	})
	return list, err
}

// Get implements console.Jobs.
func (j *jobs) Get(ctx context.Context, id string) (job *bulk.Job, err error) {
	err = j.with(ctx, func(ctx context.Context, b bulk.Bulk) (err error) {
		job, err = b.Get(ctx, id)
		return err
	})
	return job, err
}

// Results implements console.Jobs.
func (j *jobs) Results(ctx context.Context, job *bulk.Job, each func([]bulk.Result) error) error {
	return j.with(ctx, func(ctx context.Context, b bulk.Bulk) error { return b.Results(ctx, job, each) })
}

// Stop implements console.Jobs.
func (j *jobs) Stop(ctx context.Context, job *bulk.Job) error {
	return j.with(ctx, func(ctx context.Context, b bulk.Bulk) error {
		if err := b.Stop(ctx, job); err != nil {
			return err
		}
		j.leave(job.ID)
		return nil
	})
}

// leave ends what carries a job out here, and waits for its end.
func (j *jobs) leave(id string) {
	j.mu.Lock()
	one := j.mine[id]
	j.mu.Unlock()
	if one != nil {
		one.cancel()
		<-one.done
	}
}

// Begin implements console.Jobs.
func (j *jobs) Begin(ctx context.Context, job *bulk.Job, runs int) error {
	return j.with(ctx, func(ctx context.Context, b bulk.Bulk) error {
		if err := b.Confirm(ctx, job, runs); err != nil {
			return err
		}
		return j.carry(b, job)
	})
}

// Continue implements console.Jobs.
func (j *jobs) Continue(ctx context.Context, job *bulk.Job) error {
	return j.with(ctx, func(_ context.Context, b bulk.Bulk) error {
		switch {
		case job.State != bulk.Running:
			return sdk.Errorf(sdk.CodeConflict, "bulk job %s is %s, and does not go on", job.ID, job.State)
		case j.Held(job):
			return sdk.Errorf(sdk.CodeConflict, "a program carries out bulk job %s already", job.ID)
		}
		return j.carry(b, job)
	})
}

// Held implements console.Jobs.
func (j *jobs) Held(job *bulk.Job) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mine[job.ID] != nil || job.Held(j.conn.Now())
}

// carry carries out a job that is nobody's, in place of what did so here when somebody else stopped it.
func (j *jobs) carry(b bulk.Bulk, job *bulk.Job) error {
	j.leave(job.ID)
	return j.beside(job.ID, func(ctx context.Context) error { return b.CarryOut(ctx, job, func(*bulk.Job) {}) })
}

// beside does something for a job beside the requests, if nothing is done for it here.
func (j *jobs) beside(id string, do func(context.Context) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	ctx, cancel := context.WithCancel(j.ctx)
	if ctx.Err() != nil || j.mine[id] != nil {
		cancel()
		return sdk.Errorf(sdk.CodeConflict, "bulk job %s cannot be carried out here now; go on with: agentd bulk continue %s", id, id)
	}
	one := &carried{cancel, make(chan struct{})}
	j.mine[id] = one
	j.carrying.Go(func() {
		defer close(one.done)
		defer cancel()
		err := j.conn.Permitted(ctx, do)
		j.mu.Lock()
		delete(j.mine, id)
		j.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			j.logger.Warn("a bulk job is not carried out any more", "job", id, "error", err)
		}
	})
	return nil
}
