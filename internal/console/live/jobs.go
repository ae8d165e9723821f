package live

import (
	"context"
	"log/slog"
	"sync"

	"agentd/internal/broker"
	"agentd/internal/bulk"
	"agentd/internal/state"
	"agentd/sdk"
)

// jobs implements console.Jobs: it carries jobs out beside the requests, until it is closed. Then another program may go on at once.
type jobs struct {
	conn   *broker.Conn
	store  state.Store
	logger *slog.Logger

	ctx      context.Context // it is that of all jobs that are carried out, and ends with the console
	stop     context.CancelFunc
	carrying sync.WaitGroup

	mu sync.Mutex
	// opened is where jobs are kept, once somebody has asked for one, and mine those that are carried out here, by their ids.
	opened *bulk.Bulk
	mine   map[string]*carried
}

// carried is a job that is carried out here: cancel ends that, and done is closed when it has ended.
type carried struct {
	cancel context.CancelFunc
	done   chan struct{}
}

func newJobs(ctx context.Context, conn *broker.Conn, store state.Store, logger *slog.Logger) *jobs {
	j := &jobs{conn: conn, store: store, logger: logger, mine: map[string]*carried{}}
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
	err = j.with(ctx, func(ctx context.Context, b bulk.Bulk) (err error) {
		job, err = b.Propose(ctx, r)
		return err
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
	j.mu.Lock()
	defer j.mu.Unlock()
	ctx, cancel := context.WithCancel(j.ctx)
	if ctx.Err() != nil || j.mine[job.ID] != nil {
		cancel()
		return sdk.Errorf(sdk.CodeConflict, "bulk job %s cannot be carried out here now; go on with: agentd bulk continue %s", job.ID, job.ID)
	}
	one := &carried{cancel, make(chan struct{})}
	j.mine[job.ID] = one
	j.carrying.Go(func() {
		defer close(one.done)
		defer cancel()
		err := j.conn.Permitted(ctx, func(ctx context.Context) error { return b.CarryOut(ctx, job, func(*bulk.Job) {}) })
		j.mu.Lock()
		delete(j.mine, job.ID)
		j.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			j.logger.Warn("a bulk job is not carried out any more", "job", job.ID, "error", err)
		}
	})
	return nil
}
