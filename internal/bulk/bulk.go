package bulk

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Keeper keeps jobs. buckets.Jobs is one.
type Keeper interface {
	// Put keeps data under a key if that is at a revision still (0: if it has nothing); otherwise the error is sdk.CodeConflict.
	Put(ctx context.Context, key string, data []byte, revision uint64) (next uint64, err error)
	// Get is what is kept under a key; nil is nothing.
	Get(ctx context.Context, key string) (data []byte, revision uint64, err error)
	// Under are the keys of one token.
	Under(ctx context.Context) ([]string, error)
}

// Runs are what is asked of runs. Live is one.
type Runs interface {
	// Documents calls each with the runs that a filter selects, and Current is a run as it is now.
	Documents(ctx context.Context, f index.Filter, each func(index.Document) error) error
	Current(ctx context.Context, d index.Document, f index.Filter) (run find.Run, still bool, err error)
	// Control sends an operator's control message to a run, and Controlled is the id of the last one of that verb.
	Control(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey, who string, event wire.Event) error
	Controlled(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey) (id string, err error)
	// Purge removes the history of a run that has ended. It may be repeated.
	Purge(ctx context.Context, run wire.RunKey) error
	// Letters calls each with all dead letters. Settled says how one was dealt with that came from this place of a stream; empty is that it
	// is there. Redrive publishes it again, and keeps on whose behalf.
	Letters(ctx context.Context, each func(Letter) error) error
	Settled(ctx context.Context, stream string, origin, sequence uint64) (how string, err error)
	Redrive(ctx context.Context, sequence uint64, by string) error
}

// Bulk proposes jobs and carries them out.
type Bulk struct {
	Keeper Keeper
	Runs   Runs
	// Now is the broker's time, in Unix milliseconds.
	Now func() int64
	// Pause waits.
	Pause func(context.Context, time.Duration) error
}

// source is what bulk jobs call themselves in events.
const source = "agentd.bulk"

const (
	// lease is how long a program that carries a job out may be silent before another one may go on.
	lease = 30 * time.Second
	// finding is how long one that finds a job's runs may find none before it is taken to be gone: it reads all runs where nobody has an index.
	finding = 10 * time.Minute
	// saying is how often it says how many it has found.
	saying = time.Second
)

// Propose is Make and Find.
func (b Bulk) Propose(ctx context.Context, r Request) (*Job, error) {
	job, err := b.Make(ctx, r)
	if err == nil {
		err = b.Find(ctx, job)
	}
	if err != nil {
		return nil, err
	}
	return job, nil
}

// Make keeps a job whose runs are yet to be found.
func (b Bulk) Make(ctx context.Context, r Request) (*Job, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if r.Rate == 0 {
		r.Rate = DefaultRate
	}
	implied, err := index.ParseFilter(acts[r.Verb].implied)
	if err != nil {
		return nil, err
	}
	r.Filter = r.Filter.And(implied).At(b.Now())
	job := &Job{ID: strings.ToLower(rand.Text()[:10]), Request: r, State: Finding, Created: b.Now(), Samples: []string{}, Holder: rand.Text()}
	job.Until = job.Created + finding.Milliseconds()
	return job, b.save(ctx, job)
}

// Find finds the runs of a job that was made, and keeps them. Nothing is done to them before the job is confirmed. Where that fails, the job
// says why, and nothing can be done with it.
func (b Bulk) Find(ctx context.Context, job *Job) error {
	if err := b.find(ctx, job); err != nil {
		job.State, job.Problem = Unfound, unfound(ctx, err)
		return b.release(ctx, job, err)
	}
	job.State, job.Holder, job.Until = Proposed, "", 0
	return b.save(ctx, job)
}

// unfound is why no runs were found.
func unfound(ctx context.Context, err error) string {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	switch e, ok := errors.AsType[*sdk.Error](err); {
	case ok:
		return e.Message
	case ctx.Err() != nil:
		return "the program that looked for them has ended"
	}
	return err.Error()
}

func (b Bulk) find(ctx context.Context, job *Job) error {
	said := job.Created
	var some []target
	keep := func() error {
		if len(some) == 0 {
			return nil
		}
		data, err := json.Marshal(some)
		if err == nil {
			_, err = b.Keeper.Put(ctx, chunkKey(job.ID, job.Chunks), data, 0)
		}
		job.Chunks++
		some = some[:0]
		return err
	}
	take := func(t target) error {
		if job.Runs == MaxRuns {
			return sdk.Errorf(sdk.CodeTooLarge, "the filter selects more than %d runs; narrow it down, by started> and started< for example", MaxRuns)
		}
		if job.Runs++; len(job.Samples) < samples {
			job.Samples = append(job.Samples, t.Run)
		}
		if some = append(some, t); len(some) < chunk {
			return nil
		}
		if err := keep(); err != nil || b.Now()-said < saying.Milliseconds() {
			return err
		}
		said = b.Now()
		job.Until = said + finding.Milliseconds()
		return b.save(ctx, job)
	}
	var err error
	if job.Verb == VerbRedrive {
		err = b.letters(ctx, job.Filter, take)
	} else {
		err = b.Runs.Documents(ctx, job.Filter, func(d index.Document) error { return take(target{Run: d.Run, Agent: d.Agent, Started: d.Started}) })
	}
	if err != nil {
		return err
	}
	return keep()
}

// save keeps a job as it is now. The error is sdk.CodeConflict when another program changed it.
func (b Bulk) save(ctx context.Context, job *Job) error {
	data, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("encode bulk job %s: %w", job.ID, err)
	}
	job.revision, err = b.Keeper.Put(ctx, job.ID, data, job.revision)
	return err
}

// ids are those of jobs.
var ids = regexp.MustCompile(`^[a-z2-7]{10}$`)

// Get is a job. What cannot be a job's id is not asked for: it comes from whoever wrote it into an address.
func (b Bulk) Get(ctx context.Context, id string) (*Job, error) {
	if !ids.MatchString(id) {
		return decode(id, nil, 0)
	}
	data, revision, err := b.Keeper.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return decode(id, data, revision)
}

// List are all jobs, the newest first.
func (b Bulk) List(ctx context.Context) ([]*Job, error) {
	kept, err := b.Keeper.Under(ctx)
	if err != nil {
		return nil, err
	}
	jobs := make([]*Job, 0, len(kept))
	for _, id := range kept {
		job, err := b.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	newestFirst(jobs)
	return jobs, nil
}

// Results are what became of the runs that something was done to, in pieces.
func (b Bulk) Results(ctx context.Context, job *Job, each func([]Result) error) error {
	for n := range job.Next {
		results, err := b.results(ctx, job, n)
		if err != nil {
			return err
		}
		if err := each(results); err != nil {
			return err
		}
	}
	return nil
}

func (b Bulk) results(ctx context.Context, job *Job, n int) (results []Result, err error) {
	data, _, err := b.Keeper.Get(ctx, resultsKey(job.ID, n))
	if err == nil && data != nil {
		err = json.Unmarshal(data, &results)
	}
	return results, err
}

// Confirm lets a job begin. runs is how many runs whoever confirms it takes it to have.
func (b Bulk) Confirm(ctx context.Context, job *Job, runs int) error {
	switch {
	case job.State != Proposed && job.State != Stopped:
		return job.conflict(b.Now(), "")
	case runs != job.Runs:
		return sdk.Errorf(sdk.CodeConflict, "bulk job %s has %d runs, not %d; look at it again, and confirm it with its number", job.ID, job.Runs, runs)
	}
	job.State = Running
	return b.save(ctx, job)
}

// Stop has a job do nothing more, until it is confirmed again. Whoever carries it out notices before the next piece.
func (b Bulk) Stop(ctx context.Context, job *Job) error {
	for {
		if job.State != Running && job.State != Proposed {
			return job.conflict(b.Now(), "")
		}
		job.State, job.Holder, job.Until = Stopped, "", 0
		err := b.save(ctx, job)
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
			return err
		}
		now, err := b.Get(ctx, job.ID) // whoever carries it out has got further
		if err != nil {
			return err
		}
		*job = *now
	}
}

// CarryOut does what the job is for, from where it was left, and tells of each piece. It returns when the job is done, or cannot go on;
// then, and after its program was killed, another call goes on. Each run is asked once.
func (b Bulk) CarryOut(ctx context.Context, job *Job, tell func(*Job)) error {
	if job.State != Running {
		return job.conflict(b.Now(), "; confirm it first")
	}
	if now := b.Now(); job.Held(now) {
		return sdk.Errorf(sdk.CodeConflict, "another program carries out bulk job %s; if it does not any more, try again in %d s", job.ID, (job.Until-now+999)/1000)
	}
	job.Holder = rand.Text()
	if job.Began == 0 {
		job.Began = b.Now()
	}
	if err := b.hold(ctx, job); err != nil {
		return err
	}
	for job.Next < job.Chunks {
		results, err := b.piece(ctx, job)
		if err != nil {
			return b.release(ctx, job, err)
		}
		if job.Counts == nil {
			job.Counts = map[Outcome]int{}
		}
		for _, r := range results {
			job.Counts[r.Outcome]++
		}
		job.Next++
		if err := b.hold(ctx, job); err != nil {
			return err
		}
		tell(job)
	}
	job.State, job.Ended, job.Holder, job.Until = Finished, b.Now(), "", 0
	return b.save(ctx, job)
}

// hold says for another lease that this program carries the job out.
func (b Bulk) hold(ctx context.Context, job *Job) error {
	job.Until = b.Now() + lease.Milliseconds()
	err := b.save(ctx, job)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeConflict}) {
		return sdk.Errorf(sdk.CodeConflict, "somebody stopped bulk job %s, or another program carries it out; see: agentd bulk show %s", job.ID, job.ID)
	}
	return err
}

// release lets another program go on at once.
func (b Bulk) release(ctx context.Context, job *Job, err error) error {
	job.Holder, job.Until = "", 0
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	return errors.Join(err, b.save(ctx, job))
}

// piece does what the job is for with the next piece of its runs, and keeps what became of them.
func (b Bulk) piece(ctx context.Context, job *Job) ([]Result, error) {
	if results, err := b.results(ctx, job, job.Next); err != nil || results != nil {
		return results, err // whoever did it was killed before saying so
	}
	data, _, err := b.Keeper.Get(ctx, chunkKey(job.ID, job.Next))
	if err != nil {
		return nil, err
	}
	var targets []target
	if err := json.Unmarshal(data, &targets); err != nil {
		return nil, fmt.Errorf("read piece %d of bulk job %s: %w", job.Next, job.ID, err)
	}
	results := make([]Result, 0, len(targets))
	for i := range targets {
		result, err := b.one(ctx, job, &targets[i])
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
			return nil, err // the broker is away: the runs have nothing to do with it
		}
		if err != nil {
			result = Result{Outcome: Failed, Problem: sdk.AsError(err).Message}
		}
		result.Run = targets[i].Run
		results = append(results, result)
		if job.Until-b.Now() < lease.Milliseconds()*2/3 {
			if err := b.hold(ctx, job); err != nil {
				return nil, err
			}
		}
	}
	if data, err = json.Marshal(results); err != nil {
		return nil, fmt.Errorf("encode what became of the runs of bulk job %s: %w", job.ID, err)
	}
	_, err = b.Keeper.Put(ctx, resultsKey(job.ID, job.Next), data, 0)
	return results, err
}

// one does what the job is for with one run.
func (b Bulk) one(ctx context.Context, job *Job, t *target) (Result, error) {
	if job.Verb == VerbRedrive {
		return b.redrive(ctx, job, t)
	}
	a, key, id := acts[job.Verb], wire.NewRunKey(t.Run), "bulk-"+job.ID+"-"+wire.NewRunKey(t.Run).Token
	if a.control != "" {
		last, err := b.Runs.Controlled(ctx, a.control, t.Agent, key)
		if err != nil {
			return Result{}, err
		}
		if last == id { // by a program that was killed before it could say so
			return Result{Outcome: Asked}, nil
		}
	}
	// What a run began with does not change, and its last entry does not say.
	run, still, err := b.Runs.Current(ctx, index.Document{Run: t.Run, Started: t.Started}, job.Filter.Without(index.KeyText))
	if err != nil {
		return Result{}, err
	}
	if job.Verb == VerbPurge && run.Purged > 0 {
		return Result{Outcome: Done}, nil
	}
	if !still {
		return Result{Outcome: Skipped, Problem: "the filter does not select it any more"}, nil
	}
	if why := a.refuses(&run); why != "" {
		return Result{Outcome: Skipped, Problem: why}, nil
	}
	if err := b.Pause(ctx, time.Second/time.Duration(job.Rate)); err != nil {
		return Result{}, err
	}
	if a.control == "" {
		return Result{Outcome: Done}, b.Runs.Purge(ctx, key)
	}
	said := job.Said
	if job.Verb != VerbMessage && job.Verb != VerbTag {
		said = strings.TrimSuffix(job.title()+": "+said, ": ")
	}
	data, err := json.Marshal(a.data(said))
	if err != nil {
		return Result{}, fmt.Errorf("encode what run %s is told: %w", t.Run, err)
	}
	event := wire.Event{ID: id, Source: source, Type: a.event, Subject: t.Run, Time: time.UnixMilli(b.Now()), Data: data}
	return Result{Outcome: Asked}, b.Runs.Control(ctx, a.control, t.Agent, key, "", event)
}

// New is a Bulk that pauses in real time.
func New(k Keeper, r Runs, now func() int64) Bulk {
	return Bulk{Keeper: k, Runs: r, Now: now, Pause: retry.Sleep}
}
