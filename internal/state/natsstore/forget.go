package natsstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// errCodeRollupDenied is how a stream refuses a rollup that its settings do not allow.
const errCodeRollupDenied jetstream.ErrorCode = 10111

// Purge implements state.Store. The tombstone is one message that replaces all others on the run's subject. Blobs are
// removed after it: if that is interrupted, they stay until Purge is repeated or the run is removed.
func (s *Store) Purge(
	ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record,
) (runner.Version, error) {
	v, err := s.replace(ctx, run, base, keep)
	if err == nil {
		_, err = s.purgeBlobs(ctx, run, v)
	}
	if err != nil {
		return runner.Version{}, fmt.Errorf("purge run %s: %w", run, err)
	}
	return v, nil
}

func (s *Store) replace(
	ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record,
) (runner.Version, error) {
	if err := state.CheckTombstone(base, keep); err != nil {
		return runner.Version{}, err
	}
	if err := ctx.Err(); err != nil {
		return runner.Version{}, err
	}
	if base.Etag == keep.Etag { // it would replace itself
		return base, s.Barrier(ctx, run, base)
	}
	m := s.message(run, keep)
	m.Header.Set(headerTombstone, "true")
	m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
	sequence, err := s.publishAfter(ctx, m, base)
	if err == nil {
		return runner.Version{Rev: keep.Rev, Etag: keep.Etag, Position: sequence}, nil
	}
	if refused(err, errCodeRollupDenied) {
		return runner.Version{}, sdk.Errorf(sdk.CodeConfig,
			"stream %s does not let a message replace others; run: agentd provision", s.stream).WithCause(err)
	}
	return s.learn(ctx, run, base, keep, err)
}

// Remove implements state.Store. Only messages up to the last record are removed, so that a run which begins under the
// same name at this moment is not touched.
func (s *Store) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	last, err := s.purgeBlobs(ctx, run, base)
	switch {
	case errors.Is(err, runner.ErrNotFound):
		return nil
	case err == nil:
		err = s.purge(ctx, s.subjects.Journal(run), last+1)
	}
	if err != nil {
		return fmt.Errorf("remove run %s: %w", run, err)
	}
	return nil
}

// purgeBlobs removes the blobs of a run whose last record is v, and returns the record's position. The end of the stream
// is looked up before the record: up to there everything is of this run, not of one that takes its name.
func (s *Store) purgeBlobs(ctx context.Context, run wire.RunKey, v runner.Version) (uint64, error) {
	var end uint64
	err := s.request(ctx, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, s.stream)
		if err == nil {
			end = stream.CachedInfo().State.LastSeq
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	head, err := s.Head(ctx, run)
	if err != nil {
		return 0, err
	}
	if head.Etag != v.Etag {
		return 0, runner.ErrConflict
	}
	return head.Position, s.purge(ctx, s.subjects.Blob(run, ">"), end+1)
}

// purge removes the messages on a subject before a sequence.
func (s *Store) purge(ctx context.Context, subject string, before uint64) error {
	return s.request(ctx, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, s.stream)
		if err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(before))
	})
}
