package reconcile

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// document finds a run of which the index of runs has no document, or an old one; of one whose history is removed, that it has one.
func (p *pass) document(ctx context.Context, x belongings, run wire.RunKey, e *core.Entry) error {
	if !p.indexes {
		return nil
	}
	have, err := x.indexed(ctx, run)
	if err != nil {
		return err
	}
	if e.Head.Purged != nil {
		if have == 0 || have > e.Head.Purged.Rev {
			return nil
		}
		f := found(IndexLost, e, fmt.Sprintf("entry %d, of a history that is removed", have), "withdrawn")
		return p.deal(ctx, f, func(context.Context) error { return p.withdraw(e) })
	}
	if have >= e.Rev {
		return nil
	}
	f := found(IndexLost, e, fmt.Sprintf("entry %d, of %d", have, e.Rev), "published again")
	return p.deal(ctx, f, func(ctx context.Context) error {
		entries, err := p.Runner.Journal(ctx, run)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return errors.New("its journal is not to be read")
		}
		last := &entries[len(entries)-1]
		d := index.Of(runner.IndexedIn(&entries[0], last, runner.Version{Rev: last.Rev, Etag: last.Etag}))
		return p.Document(&d)
	})
}

// withdraw takes the document of a run out of the index whose history is removed. e is its last entry, or its tombstone.
func (p *pass) withdraw(e *core.Entry) error {
	if !p.indexes || p.DryRun {
		return nil
	}
	last := e.Rev
	if e.Head.Purged != nil {
		last = e.Head.Purged.Rev
	}
	d := index.Of(runner.Indexed{Head: &e.Head, Version: runner.Version{Rev: last + 1}})
	d.Purged = p.now.UnixMilli()
	return p.Document(&d)
}
