package redisstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

const partitions = 256

// Recent implements state.Store: Redis does not know which keys were written last.
func (s *Store) Recent(context.Context, func([]runner.StoredRun, int64) (more bool, err error)) (enough bool, err error) {
	return false, nil
}

// Runs implements runner.Store: three round trips a page, and a few more where partitions are hardly filled.
func (s *Store) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	keys, err := s.keys(ctx, cursor, state.PageSize(limit)+1)
	if err != nil {
		return nil, "", fmt.Errorf("list runs: %w", readError(ctx, err))
	}
	next := ""
	if size := state.PageSize(limit); len(keys) > size {
		keys = keys[:size]
		next = keys[size-1].String()
	}
	heads := make([]*redis.StringCmd, len(keys))
	if err := s.pipeline(ctx, len(keys), func(p redis.Pipeliner, i int) { heads[i] = p.LIndex(ctx, s.listKey(keys[i]), -1) }); err != nil {
		return nil, "", fmt.Errorf("list runs: %w", readError(ctx, err))
	}
	var runs []runner.StoredRun
	for i, head := range heads {
		if errors.Is(head.Err(), redis.Nil) {
			continue // gone meanwhile
		}
		last, err := decode(head.Val())
		if err != nil { // listed with revision 0: one run must not hide the others
			last = runner.Record{Data: []byte(head.Val())}
		}
		runs = append(runs, runner.StoredRun{Run: keys[i], Last: last})
	}
	return runs, next, nil
}

// pipeline sends n commands at once. What is absent is not an error.
func (s *Store) pipeline(ctx context.Context, n int, add func(p redis.Pipeliner, i int)) error {
	if err := ctx.Err(); err != nil || n == 0 {
		return err
	}
	commands, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			add(p, i)
		}
		return nil
	})
	for _, c := range commands {
		if e := c.Err(); e != nil && !errors.Is(e, redis.Nil) {
			return e
		}
	}
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// keys returns the first runs after cursor, at most limit: partition after partition, by name.
func (s *Store) keys(ctx context.Context, cursor string, limit int) ([]wire.RunKey, error) {
	after, err := state.ParseCursor(cursor)
	if err != nil {
		return nil, err
	}
	var names []string
	for p := range partitions {
		if name := fmt.Sprintf("%03d", p); name >= after.Partition {
			names = append(names, name)
		}
	}
	sizes := make([]*redis.IntCmd, len(names))
	if err := s.pipeline(ctx, len(names), func(p redis.Pipeliner, i int) { sizes[i] = p.ZCard(ctx, s.indexKey(names[i])) }); err != nil {
		return nil, err
	}
	var keys []wire.RunKey
	for start := 0; start < len(names) && len(keys) < limit; {
		// As many partitions as should fill the page, not more: each answers with up to what is missing.
		end, expected := start, int64(0)
		for end < len(names) && expected < int64(limit-len(keys)) {
			expected += sizes[end].Val()
			end++
		}
		more, err := s.members(ctx, names[start:end], after, int64(limit-len(keys)))
		if err != nil {
			return nil, err
		}
		keys = append(keys, more...)
		start = end
	}
	return keys[:min(len(keys), limit)], nil
}

// members reads up to limit names of each partition after a run, in one round trip.
func (s *Store) members(ctx context.Context, names []string, after wire.RunKey, limit int64) ([]wire.RunKey, error) {
	tokens := make([]*redis.StringSliceCmd, len(names))
	err := s.pipeline(ctx, len(names), func(p redis.Pipeliner, i int) {
		from := "-"
		if names[i] == after.Partition {
			from = "(" + after.Token
		}
		tokens[i] = p.ZRangeArgs(ctx, redis.ZRangeArgs{
			Key: s.indexKey(names[i]), Start: from, Stop: "+", ByLex: true, Count: limit,
		})
	})
	if err != nil {
		return nil, err
	}
	var keys []wire.RunKey
	for i, name := range names {
		for _, token := range tokens[i].Val() {
			keys = append(keys, wire.RunKey{Partition: name, Token: token})
		}
	}
	return keys, nil
}
