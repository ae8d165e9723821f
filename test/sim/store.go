package sim

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/runner"
	"agentd/sdk"
)

var errStore = errors.New("the store cannot be reached")

// fakeStore adds points and faults to a run store, and tells the audit what was committed.
type fakeStore struct {
	*simulation
	runner.Store
	// commits counts the entries of each run that the audit has seen.
	commits map[sdk.RunKey]int

	// Faults that a store must not have; they prove that the checks can fail.
	losesUpdates, forgetsEtags, confirmsNothing bool
}

// Head implements runner.Store, as do the methods that follow.
func (f *fakeStore) Head(ctx context.Context, run sdk.RunKey) (runner.Record, error) {
	if err := f.reach(ctx, "head"); err != nil {
		return runner.Record{}, err
	}
	return f.Store.Head(ctx, run)
}

func (f *fakeStore) reach(ctx context.Context, at string) error {
	if err := f.enter(ctx, at); err != nil {
		return err
	}
	if f.chance(f.mix.store) {
		f.trace("down    store at %s", at)
		return errStore
	}
	return nil
}

func (f *fakeStore) Entries(ctx context.Context, run sdk.RunKey, after runner.Version) ([]runner.Record, error) {
	if err := f.reach(ctx, "entries"); err != nil {
		return nil, err
	}
	records, err := f.Store.Entries(ctx, run, after)
	if len(records) > 0 && f.chance(f.mix.stale) {
		old := 1 + f.pick(min(3, len(records)))
		f.trace("stale   entries of %s: %d of %d", run, len(records)-old, len(records))
		records = records[:len(records)-old]
	}
	return records, err
}

func (f *fakeStore) Append(
	ctx context.Context, run sdk.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	if err := f.enter(ctx, "append"); err != nil {
		return runner.Version{}, err
	}
	if f.chance(f.mix.ambiguous) {
		f.trace("lost    append %d to %s", next.Rev, run)
		return runner.Version{}, runner.ErrAmbiguous
	}
	if f.confirmsNothing && f.pick(10) == 0 {
		return next.Version, nil
	}
	if head, err := f.Store.Head(ctx, run); err == nil && (f.losesUpdates || f.forgetsEtags && head.Etag == next.Etag) {
		base = head.Version
		next.Rev, next.Etag = base.Rev+1, fmt.Sprint("forgotten-", f.steps)
	}
	v, err := f.Store.Append(ctx, run, base, next)
	if err != nil {
		f.trace("append  %d to %s: %v", next.Rev, run, err)
		return v, err
	}
	f.committed(ctx, run, next)
	if f.chance(f.mix.ambiguous) {
		f.trace("lost    confirmation of append %d to %s", next.Rev, run)
		return runner.Version{}, runner.ErrAmbiguous
	}
	return v, nil
}

// committed tells the audit of a record that is new.
func (f *fakeStore) committed(ctx context.Context, run sdk.RunKey, rec runner.Record) {
	if int(rec.Rev) <= f.commits[run] {
		return
	}
	f.commits[run] = int(rec.Rev)
	e, digest, err := f.entries.Decode(rec.Data)
	if err != nil {
		f.violate("I6", "entry %d of %s: %v", rec.Rev, run, err)
		return
	}
	for _, b := range e.Blobs {
		content, err := f.Store.Blob(ctx, run, b.Digest)
		if err == nil {
			err = e.Restore(b, content)
		}
		if err != nil {
			f.violate("C28", "run %s: %v", run, err)
			return
		}
	}
	f.trace("commit  %s", describe(&e))
	f.audit.Committed(run, digest, &e)
	f.models.committed(run, &e)
}

func (f *fakeStore) Barrier(ctx context.Context, run sdk.RunKey, v runner.Version) error {
	if err := f.enter(ctx, "barrier"); err != nil {
		return err
	}
	if f.chance(f.mix.ambiguous) {
		return runner.ErrAmbiguous
	}
	return f.Store.Barrier(ctx, run, v)
}

func (f *fakeStore) PutBlob(ctx context.Context, run sdk.RunKey, digest string, data []byte) error {
	if err := f.reach(ctx, "put blob"); err != nil {
		return err
	}
	return f.Store.PutBlob(ctx, run, digest, data)
}

func (f *fakeStore) Blob(ctx context.Context, run sdk.RunKey, digest string) ([]byte, error) {
	if err := f.reach(ctx, "blob"); err != nil {
		return nil, err
	}
	return f.Store.Blob(ctx, run, digest)
}

func (f *fakeStore) PutSpec(ctx context.Context, digest string, data []byte) error {
	if err := f.reach(ctx, "put spec"); err != nil {
		return err
	}
	return f.Store.PutSpec(ctx, digest, data)
}
