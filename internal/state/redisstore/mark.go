package redisstore

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"agentd/internal/state"
)

// markKeys are where a mark is: one server is lost, or set back, as a whole; of a cluster each server by itself, so that each partition
// has the mark.
func (s *Store) markKeys(name string) []string {
	if _, one := s.client.(*redis.Client); one {
		return []string{s.o.Root + ":mark:" + name}
	}
	keys := make([]string, partitions)
	for p := range keys {
		keys[p] = s.partition(fmt.Sprintf("%03d", p)) + "mark:" + name
	}
	return keys
}

// Mark implements state.Store. It waits for no replica: one that takes over without the mark has lost something.
func (s *Store) Mark(ctx context.Context, name, mark string) error {
	err := state.CheckMark(name, mark)
	if err == nil {
		keys := s.markKeys(name)
		err = s.pipeline(ctx, len(keys), func(p redis.Pipeliner, i int) { p.Set(ctx, keys[i], mark, 0) })
	}
	if err != nil {
		return fmt.Errorf("mark the store: %w", readError(ctx, err))
	}
	return nil
}

// Marked implements state.Store.
func (s *Store) Marked(ctx context.Context, name, mark string) (bool, error) {
	if err := state.CheckMark(name, mark); err != nil {
		return false, err
	}
	keys := s.markKeys(name)
	have := make([]*redis.StringCmd, len(keys))
	if err := s.pipeline(ctx, len(keys), func(p redis.Pipeliner, i int) { have[i] = p.Get(ctx, keys[i]) }); err != nil {
		return false, fmt.Errorf("read the mark of the store: %w", readError(ctx, err))
	}
	for _, h := range have {
		if h.Val() != mark {
			return false, nil
		}
	}
	return true, nil
}
