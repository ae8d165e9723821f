package redisstore

import (
	"context"
	"fmt"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// Purge implements state.Store: one script. A blob that is put at the same moment stays until Remove.
func (s *Store) Purge(
	ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record,
) (runner.Version, error) {
	err := state.CheckTombstone(base, keep)
	if err == nil {
		err = s.forget(ctx, run, func(digests []string) error {
			keys := []string{s.headKey(run), s.listKey(run), s.digestsKey(run)}
			args := []any{base.Etag, keep.Etag, encode(keep)}
			for _, digest := range digests {
				keys, args = append(keys, s.blobKey(run, digest)), append(args, digest)
			}
			return s.commit(ctx, purgeScript, keys, args...)
		})
	}
	if err != nil {
		return runner.Version{}, fmt.Errorf("purge run %s: %w", run, err)
	}
	return runner.Version{Rev: keep.Rev, Etag: keep.Etag, Position: keep.Rev}, nil
}

// Remove implements state.Store: one script.
func (s *Store) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	err := s.forget(ctx, run, func(digests []string) error {
		keys := []string{s.headKey(run), s.listKey(run), s.indexKey(run.Partition), s.digestsKey(run)}
		for _, digest := range digests {
			keys = append(keys, s.blobKey(run, digest))
		}
		return s.commit(ctx, removeScript, keys, base.Etag, run.Token)
	})
	if err != nil {
		return fmt.Errorf("remove run %s: %w", run, err)
	}
	return nil
}

// forget calls do with the digests of the run's blobs: a script must be told all keys that it touches.
func (s *Store) forget(ctx context.Context, run wire.RunKey, do func(digests []string) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	digests, err := s.client.SMembers(ctx, s.digestsKey(run)).Result()
	if err != nil {
		return readError(ctx, err)
	}
	return do(digests)
}
