package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

var errStore = errors.New("the store cannot be reached")

// fakeStore is a run store as weak as runner.Store allows: an entry can be read before it is durable, a failover forgets
// what was not confirmed, and the entries that come instead have the same numbers. The audit is told of an entry when it
// is durable: nothing may leave a worker before.
type fakeStore struct {
	*simulation
	runner.Store // nil: nobody here lists runs
	journals     map[wire.RunKey]*journal
	// unconfirmed are the journals with entries that are not durable.
	unconfirmed []*journal
	blobs       map[string][]byte
	specs       map[string][]byte

	// Faults that a store must not have; they prove that the checks can fail.
	losesUpdates, forgetsEtags, confirmsNothing, confirmsEarly, comparesNumbers bool
}

// journal is the journal of one run.
type journal struct {
	run     wire.RunKey
	records []runner.Record
	// decoded are the records' entries.
	decoded []decoded
	// durable counts the records that no failover forgets.
	durable int
	// deposed are the journals as they were before each failover, in stores that do not know of it.
	deposed []past
	// shown says that somebody read what is not durable: a failover now is the worst.
	shown bool
}

// past is a journal as it was.
type past struct {
	records []runner.Record
	decoded []decoded
}

// decoded is the entry of a record, without its blobs.
type decoded struct {
	*core.Entry
	digest string
	// written is at which step of the history the store wrote it.
	written int
}

func newStore(s *simulation) *fakeStore {
	return &fakeStore{
		simulation: s, journals: map[wire.RunKey]*journal{}, blobs: map[string][]byte{}, specs: map[string][]byte{},
	}
}

func (j *journal) last() runner.Record {
	if j == nil || len(j.records) == 0 {
		return runner.Record{}
	}
	return j.records[len(j.records)-1]
}

// holds reports whether the record is in the journal.
func (j *journal) holds(v runner.Version) bool {
	return v.Rev <= uint64(len(j.records)) && j.records[v.Rev-1].Etag == v.Etag
}

// Head implements runner.Store, as do the methods that follow.
func (f *fakeStore) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	if err := f.reach(ctx, atHead); err != nil {
		return runner.Record{}, err
	}
	j := f.journals[run]
	if j.last().Rev == 0 {
		return runner.Record{}, runner.ErrNotFound
	}
	j.show(len(j.records))
	f.running.learns(run, j.decoded[len(j.decoded)-1].Entry)
	return j.last(), nil
}

// reach is a point before the store is asked for something that changes nothing.
func (f *fakeStore) reach(ctx context.Context, at point) error {
	if err := f.enter(ctx, at); err != nil {
		return err
	}
	if f.now < f.storeAway || f.strikes(storeDown) {
		return errStore
	}
	return nil
}

func (f *fakeStore) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	if err := f.reach(ctx, atEntries); err != nil {
		return nil, err
	}
	j := f.journals[run]
	if j == nil {
		return nil, nil
	}
	records := j.records
	if len(j.deposed) > 0 && f.strikes(storeDeposed) {
		records = j.deposed[f.pick(len(j.deposed))].records
	}
	if len(records) > 0 && f.strikes(storeStale) {
		records = records[:len(records)-1-f.pick(min(3, len(records)))]
	}
	if uint64(len(records)) <= after.Rev {
		return nil, nil
	}
	j.show(len(records))
	return records[after.Rev:], nil
}

func (f *fakeStore) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	records, err := f.Entries(ctx, run, runner.Version{Rev: max(from, 1) - 1})
	return records[:min(len(records), most)], err
}

// show remembers that the first n records were read.
func (j *journal) show(n int) { j.shown = j.shown || n > j.durable }

func (f *fakeStore) Append(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	e, digest, err := f.entries.Decode(next.Data)
	if err != nil {
		f.violate("I6", "entry %d of %s: %v", next.Rev, run, err)
		return runner.Version{}, err
	}
	stage := f.running.stageOf(e)
	f.dated(e)
	before := stage.before
	if f.running.unsure == next.Etag {
		before = stage.again
	}
	f.running.unsure = next.Etag
	if err := f.enter(ctx, before); err != nil {
		return runner.Version{}, err
	}
	if f.now < f.storeAway || f.strikes(storeLost) {
		return runner.Version{}, runner.ErrAmbiguous
	}
	if f.confirmsNothing && f.pick(10) == 0 {
		return next.Version, nil
	}
	next.Position = next.Rev
	f.broker.forgets(run)
	j, err := f.write(run, base, &next, decoded{Entry: e, digest: digest, written: f.steps})
	if err != nil {
		f.trace("refused entry %d of %s: %v", next.Rev, e.Head.Run, err)
		return runner.Version{}, err
	}
	if err := f.confirm(j, next.Version, stage.written); err != nil {
		return runner.Version{}, err
	}
	f.running.published = 0
	f.running.learns(run, e)
	f.running.wrote(run)
	f.pause(stage.done)
	return next.Version, nil
}

// dated checks that an entry is dated by the broker's clock, as well as that can be measured, and no later.
func (f *fakeStore) dated(e *core.Entry) {
	began := f.running.activation().began
	if off := e.At - f.now; off > 0 || began-e.At > slowest {
		f.violate("time", "entry %d of run %s is dated %.3f at %.3f, by who works on it since %.3f",
			e.Rev, e.Head.Run, seconds(e.At), seconds(f.now), seconds(began))
	}
}

// write makes a record the last one of the run's journal. Others can read it from now on.
func (f *fakeStore) write(run wire.RunKey, base runner.Version, next *runner.Record, d decoded) (*journal, error) {
	j := f.journals[run]
	if j == nil {
		j = &journal{run: run}
		f.journals[run] = j
	}
	last := j.last().Version
	if f.losesUpdates || f.forgetsEtags && last.Etag == next.Etag {
		base, next.Version = last, runner.Version{Rev: last.Rev + 1, Etag: fmt.Sprint("forgotten-", f.steps)}
	}
	switch {
	case last.Etag == next.Etag:
		return j, nil
	case f.comparesNumbers && last.Rev == base.Rev:
	case last.Etag != base.Etag:
		return nil, runner.ErrConflict
	}
	if j.durable == len(j.records) {
		f.unconfirmed = append(f.unconfirmed, j)
	}
	// A reader may hold the records before, and what a failover forgot: see failover.
	j.records, j.decoded = append(j.records, *next), append(j.decoded, d)
	f.trace("written %s", f.describe(next))
	return j, nil
}

// confirm makes a record and all before it durable, if it is there still, and says so, if the answer is not lost.
func (f *fakeStore) confirm(j *journal, v runner.Version, at point) error {
	if f.confirmsEarly {
		return nil
	}
	if f.strikes(storeUnsure) {
		return runner.ErrAmbiguous
	}
	f.pause(at)
	if !j.holds(v) {
		return runner.ErrAmbiguous
	}
	f.sync(j, int(v.Rev))
	if f.strikes(storeUnsure) {
		return runner.ErrAmbiguous
	}
	return nil
}

// sync makes the first n records durable and tells the audit of those that were not.
func (f *fakeStore) sync(j *journal, n int) {
	if n <= j.durable {
		return
	}
	for _, d := range j.decoded[j.durable:n] {
		f.committed(j.run, d)
	}
	if j.durable = n; n == len(j.records) {
		j.shown = false
		f.forget(j)
	}
}

func (f *fakeStore) forget(j *journal) {
	for i, o := range f.unconfirmed {
		if o == j {
			last := len(f.unconfirmed) - 1
			f.unconfirmed[i], f.unconfirmed = f.unconfirmed[last], f.unconfirmed[:last]
			return
		}
	}
}

// failover forgets some of what was never confirmed, often all of it.
func (f *fakeStore) failover() {
	for _, j := range f.unconfirmed {
		kept := j.durable
		if f.pick(2) == 0 {
			kept += f.pick(len(j.records) - j.durable + 1)
		}
		j.shown = false
		j.deposed = append(j.deposed, past{j.records, j.decoded})
		if f.log != nil {
			for _, rec := range j.records[kept:] {
				f.trace("vanish  %s", f.describe(&rec))
			}
		}
		j.records, j.decoded = j.records[:kept:kept], j.decoded[:kept:kept]
	}
	f.unconfirmed = nil
	for _, j := range f.journals {
		if j.durable < len(j.records) {
			f.unconfirmed = append(f.unconfirmed, j)
		}
	}
}

// exposed reports whether somebody has read what a failover would forget.
func (f *fakeStore) exposed() bool {
	return slices.ContainsFunc(f.unconfirmed, func(j *journal) bool { return j.shown })
}

// settle makes everything durable: no failover comes any more.
func (f *fakeStore) settle() {
	for len(f.unconfirmed) > 0 {
		j := f.unconfirmed[0]
		f.sync(j, len(j.records))
	}
}

// committed tells the audit of a record that is durable.
func (f *fakeStore) committed(run wire.RunKey, d decoded) {
	e, err := f.whole(d)
	if err != nil {
		f.violate("C28", "entry %d of %s: %v", d.Rev, run, err)
		return
	}
	if f.specs[e.Head.Spec] == nil {
		f.violate("C1", "run %s: entry %d names a spec that is not stored", run, e.Rev)
	}
	f.audit.Committed(run, d.digest, e)
	f.models.committed(run, e)
	f.hooks.committed(run, e)
	f.judges.committed(run, e)
	f.takeUp(e)
	f.undo(e)
	f.cancelCalls(e)
}

// whole puts an entry's blobs back.
func (f *fakeStore) whole(d decoded) (*core.Entry, error) {
	if len(d.Blobs) == 0 {
		return d.Entry, nil
	}
	e := *d.Entry
	for _, b := range e.Blobs {
		if err := e.Restore(b, f.blobs[b.Digest]); err != nil {
			return nil, err
		}
	}
	return &e, nil
}

func (f *fakeStore) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	if err := f.enter(ctx, atBarrier); err != nil {
		return err
	}
	j := f.journals[run]
	if j.last().Etag != v.Etag {
		return runner.ErrConflict
	}
	f.running.published = 0
	return f.confirm(j, v, atBarrier)
}

func (f *fakeStore) PutBlob(ctx context.Context, _ wire.RunKey, digest string, data []byte) error {
	if err := f.reach(ctx, atPutBlob); err != nil {
		return err
	}
	f.blobs[digest] = data
	f.pause(atBlobWritten)
	return nil
}

func (f *fakeStore) Blob(ctx context.Context, _ wire.RunKey, digest string) ([]byte, error) {
	if err := f.reach(ctx, atBlob); err != nil {
		return nil, err
	}
	return found(f.blobs, digest)
}

func (f *fakeStore) PutSpec(ctx context.Context, digest string, data []byte) error {
	if err := f.reach(ctx, atPutSpec); err != nil {
		return err
	}
	f.specs[digest] = data
	return nil
}

func (f *fakeStore) Spec(ctx context.Context, digest string) ([]byte, error) {
	if err := f.reach(ctx, atSpec); err != nil {
		return nil, err
	}
	return found(f.specs, digest)
}

func found(m map[string][]byte, digest string) ([]byte, error) {
	if data, ok := m[digest]; ok {
		return data, nil
	}
	return nil, runner.ErrNotFound
}

// stage is where a fiber stands while it writes an entry.
type stage struct{ before, again, written, done point }

func (fb *fiber) stageOf(e *core.Entry) stage {
	switch {
	case e.Absorbed != nil:
		return stage{atReply, atReplyAgain, atReplyWritten, atReplyDone}
	case fb.parent != fb.activation(): // beside the activation, which waits for a model
		return stage{atLate, atLateAgain, atLateWritten, atLateDone}
	}
	switch e.Kind {
	case core.KindStarted, core.KindAnswered, core.KindFired, core.KindCancelAsked, core.KindSteered, core.KindTakenOver,
		core.KindRetried, core.KindCallCancelAsked:
		s := stage{atAbsorb, atAbsorbAgain, atAbsorbWritten, atAbsorbed}
		if e.Head.Driver.Covers(e.Cause) {
			s.done = atTaken
		}
		return s
	case core.KindReturned:
		return stage{atResult, atStepAgain, atStepWritten, atStepDone}
	case core.KindBegan:
		return stage{atStep, atStepAgain, atStepWritten, atMarked}
	}
	return stage{atStep, atStepAgain, atStepWritten, atStepDone}
}
