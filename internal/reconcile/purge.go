package reconcile

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/outbox"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Purge removes the history of a run that has ended, and its document from the index of runs: somebody does not want to wait for
// retention. The run's tombstone stays. It may be repeated. The error is sdk.CodeConflict for a run that has not ended, or whose end is not published.
func Purge(ctx context.Context, conn *broker.Conn, store state.Store, run wire.RunKey) error {
	if err := conn.MeasureClock(ctx); err != nil {
		return fmt.Errorf("purge: measure the broker's clock: %w", err)
	}
	last, err := store.Head(ctx, run)
	if errors.Is(err, runner.ErrNotFound) {
		return sdk.Errorf(sdk.CodeUnknownRun, "the run does not exist")
	}
	if err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	e, err := core.DecodeEntry(last.Data)
	if err != nil {
		return fmt.Errorf("purge: %w", err)
	}
	if e.Head.Status != core.StatusDone {
		return sdk.Errorf(sdk.CodeConflict, "run %s is %s; only the history of a run that has ended can be removed", e.Head.Run, e.Head.Status)
	}
	rev := e.Rev
	if e.Head.Purged != nil {
		rev = e.Head.Purged.Rev
		if err := dropArchive(ctx, store, state.Ended{Run: run, Version: last.Version, Purged: true}, conn.Now()); err != nil {
			return fmt.Errorf("purge: %w", err)
		}
	} else {
		if err := endPublished(ctx, conn, run, &e); err != nil {
			return err
		}
		if err := purge(ctx, store, runner.StoredRun{Run: run, Last: last}, &e, rand.Text(), time.UnixMilli(conn.Now())); err != nil {
			return fmt.Errorf("purge: %w", err)
		}
	}
	return conn.PublishIndexed(broker.IndexedRun{Run: run, Revision: rev + 1})
}

// dropArchive deletes the archive of a run that was purged, if whoever purged it was interrupted before that.
func dropArchive(ctx context.Context, store state.Store, run state.Ended, now int64) error {
	archiver, has := state.ArchiverOf(store)
	if !has {
		return nil
	}
	done, err := archiver.Archive(ctx, []state.Ended{run}, time.UnixMilli(now), 1, false)
	if err != nil {
		return err
	}
	return done[0].Err
}

// endPublished reports whether the terminal event of a run was published: afterwards nobody can make it.
func endPublished(ctx context.Context, conn *broker.Conn, run wire.RunKey, e *core.Entry) error {
	generation := e.Head.Generation()
	zone := zoneOfEnd(&generation)
	there, err := conn.LastDelivery(ctx, zone, outbox.TerminalSubject(conn.Subjects(), e.Head.Agent, run, &generation))
	if err != nil || there != nil {
		return err
	}
	kept, err := conn.MaxAge(ctx, zone)
	if err != nil {
		return err
	}
	if kept == 0 || time.UnixMilli(e.At).Add(kept).UnixMilli() > conn.Now() {
		return sdk.Errorf(sdk.CodeConflict, "the end of run %s is not published yet, or was lost: agentd reconcile publishes it", e.Head.Run)
	}
	return nil
}
