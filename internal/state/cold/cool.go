package cold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/sdk/wire"
)

// Settled is how long an archive must have been there before the journal leaves Redis. A server writes to its disk every two minutes by
// default, and may lose what is younger with its machine.
const Settled = time.Hour

// Archive implements state.Archiver. Runs whose journals have left cost one round trip for all of them.
func (s *Store) Archive(ctx context.Context, runs []state.Ended, now time.Time, most int, dry bool) ([]state.Archival, error) {
	keys := make([]wire.RunKey, len(runs))
	for i, r := range runs {
		keys[i] = r.Run
	}
	heads, err := s.ArchivedOf(ctx, keys)
	if err != nil {
		return nil, err
	}
	all := make([]state.Archival, len(runs))
	for i, r := range runs {
		a := heads[i].Archived
		step := due(r, a, now)
		switch {
		case heads[i].Err != nil:
			all[i].Err = heads[i].Err
			continue
		case step == state.StepNone || most == 0:
			continue
		case dry:
			all[i].Step = step
		default:
			all[i].Step, all[i].Err = s.take(ctx, step, r, a, now)
		}
		most--
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return all, nil
}

// due is the next step of a run, as its head says. A journal of one entry has nothing that could leave.
func due(r state.Ended, a redisstore.Archived, now time.Time) state.ArchiveStep {
	switch {
	case a.Etag != r.Etag: // it goes on
		return state.StepNone
	case r.Purged:
		if a.Note != (redisstore.Note{}) {
			return state.StepDropped
		}
		return state.StepNone
	case a.Thin || r.Rev < 2:
		return state.StepNone
	case !a.Counts() || a.Note.Sequence == 0 && !a.Note.Large:
		return state.StepArchived
	case a.Note.Large || now.Sub(time.UnixMilli(a.Note.At)) < Settled:
		return state.StepNone
	}
	return state.StepThinned
}

// take takes a step. What another worker has done meanwhile is none, and no error.
func (s *Store) take(ctx context.Context, step state.ArchiveStep, r state.Ended, a redisstore.Archived, now time.Time) (state.ArchiveStep, error) {
	var err error
	switch step {
	case state.StepNone:
	case state.StepDropped:
		err = s.drop(ctx, r.Run, a.Note)
	case state.StepThinned:
		if err = s.thin(ctx, r, a.Note); errors.Is(err, errOther) { // Redis still has all of it
			step, err = state.StepArchived, s.archive(ctx, r, a.Note, now)
		}
	case state.StepArchived:
		err = s.archive(ctx, r, a.Note, now)
	}
	switch {
	case err == nil:
		return step, nil
	case errors.Is(err, runner.ErrConflict) || errors.Is(err, redisstore.ErrThinned) || errors.Is(err, errTooLarge):
		return state.StepNone, nil
	}
	return state.StepNone, fmt.Errorf("archive run %s: %w", r.Run, err)
}

// whole is the journal of a run as Redis has it, or runner.ErrConflict if the run goes on.
func (s *Store) whole(ctx context.Context, r state.Ended) (*journal, error) {
	j := &journal{run: r.Run}
	var err error
	if j.records, err = s.Store.Entries(ctx, r.Run, runner.Version{}); err != nil {
		return nil, err
	}
	if len(j.records) == 0 || j.last().Etag != r.Etag {
		return nil, runner.ErrConflict
	}
	j.blobs, err = s.Contents(ctx, r.Run)
	return j, err
}

// archive writes a run's archive, and notes it when it is read back as it was written. Before it is written it is noted that it may be there, so
// that none is without a note. What is on its subject is looked up before the journal is read: of two that archive a run at once the one
// that has read an older journal does not replace what the other has written.
func (s *Store) archive(ctx context.Context, r state.Ended, was redisstore.Note, now time.Time) error {
	begun := redisstore.Note{Etag: r.Etag, At: now.UnixMilli()}
	if err := s.Note(ctx, r.Run, was, begun); err != nil {
		return err
	}
	there, err := s.newest(ctx, r.Run)
	if err != nil {
		return err
	}
	j, err := s.whole(ctx, r)
	if err != nil {
		return err
	}
	content := j.content()
	archive, err := pack(content)
	if errors.Is(err, errTooLarge) {
		return errors.Join(err, s.Note(ctx, r.Run, begun, redisstore.Note{Etag: r.Etag, Large: true, At: now.UnixMilli()}))
	}
	if err != nil {
		return err
	}
	sequence := there.sequence
	if _, known, err := unpack(there.data); err != nil || !bytes.Equal(known, content) {
		if sequence, err = s.publish(ctx, r.Run, archive, there.sequence); err != nil {
			return err
		}
	}
	if err := s.holds(ctx, r.Run, sequence, content); err != nil {
		return err
	}
	err = s.Note(ctx, r.Run, begun, redisstore.Note{Etag: r.Etag, Sequence: sequence, At: now.UnixMilli()})
	if errors.Is(err, runner.ErrConflict) {
		return errors.Join(err, s.abandon(ctx, r, sequence))
	}
	return err
}

// abandon deletes an archive that could not be noted, if its run goes on or was purged: nobody else can have noted it.
func (s *Store) abandon(ctx context.Context, r state.Ended, sequence uint64) error {
	a, err := s.Archived(ctx, r.Run)
	if err != nil || a.Etag == r.Etag {
		return err
	}
	return s.delete(ctx, r.Run, sequence)
}

// errOther says that a noted archive does not hold what Redis has.
var errOther = errors.New("the archive is not that of the journal")

// holds reports errOther if the archive at a sequence does not have that content.
func (s *Store) holds(ctx context.Context, run wire.RunKey, sequence uint64, content []byte) error {
	m, err := s.at(ctx, run, sequence)
	if errors.Is(err, runner.ErrNotFound) {
		return fmt.Errorf("%w: %w", errOther, err)
	}
	if err != nil {
		return err
	}
	if _, known, err := unpack(m.data); err != nil || !bytes.Equal(known, content) {
		return errors.Join(errOther, err)
	}
	return nil
}

// thin removes from Redis what the archive has, or returns errOther. The archive is read again, from the disk of whoever leads the stream by
// now, and must have every byte that is to be removed.
func (s *Store) thin(ctx context.Context, r state.Ended, noted redisstore.Note) error {
	j, err := s.whole(ctx, r)
	if err != nil {
		return err
	}
	if err := s.holds(ctx, r.Run, noted.Sequence, j.content()); err != nil {
		return err
	}
	return s.Thin(ctx, r.Run, noted, len(j.records), j.digests())
}
