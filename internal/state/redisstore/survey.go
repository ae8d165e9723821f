package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"agentd/sdk"
)

// Weight is what the store has in the server's memory.
type Weight struct{ Keys, Bytes int64 }

// Weigh asks for the memory of every key of the root, as MEMORY USAGE tells it. It looks at the names of all keys of the server.
func (s *Store) Weigh(ctx context.Context) (Weight, error) {
	var w Weight
	err := s.eachPage(ctx, func(keys []string) error {
		sizes := make([]*redis.IntCmd, len(keys))
		if err := s.pipeline(ctx, len(keys), func(p redis.Pipeliner, i int) { sizes[i] = p.MemoryUsage(ctx, keys[i], 0) }); err != nil {
			return err
		}
		for _, size := range sizes {
			w.Bytes += size.Val()
		}
		w.Keys += int64(len(keys))
		return nil
	})
	if err != nil {
		return Weight{}, fmt.Errorf("weigh the keys of %s: %w", s.o.Root, readError(ctx, err))
	}
	return w, nil
}

// borrowedKey says that the root is borrowed, and by whom.
func (s *Store) borrowedKey() string { return s.o.Root + ":borrowed" }

// Borrow takes the root for this program, until GiveBack. One that has any run, or is borrowed, is refused: sdk.CodeConfig.
func (s *Store) Borrow(ctx context.Context, by string) error {
	runs, err := s.keys(ctx, "", 1)
	if err != nil {
		return fmt.Errorf("look for runs of the root %q: %w", s.o.Root, readError(ctx, err))
	}
	if len(runs) > 0 {
		if other, err := s.Borrowed(ctx); err != nil || other == "" {
			return errors.Join(err, sdk.Errorf(sdk.CodeConfig, "the root %q is in use: Redis has runs of it; choose another", s.o.Root))
		}
	}
	first, err := s.client.SetNX(ctx, s.borrowedKey(), by, 0).Result()
	if err != nil {
		return fmt.Errorf("take the root %q: %w", s.o.Root, writeError(ctx, err))
	}
	if !first {
		other, err := s.Borrowed(ctx)
		return errors.Join(err, sdk.Errorf(sdk.CodeConfig, "the root %q is taken in Redis by %s; choose another, or if that program is gone, remove what it left: agentd bench --remove --root %s",
			s.o.Root, other, s.o.Root))
	}
	return nil
}

// Borrowed says who has the root; empty is nobody.
func (s *Store) Borrowed(ctx context.Context) (by string, err error) {
	by, err = s.client.Get(ctx, s.borrowedKey()).Result()
	if errors.Is(err, redis.Nil) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look who has the root %q: %w", s.o.Root, readError(ctx, err))
	}
	return by, nil
}

// GiveBack removes every key of a borrowed root: all runs and specs, whatever their state, and last what says that it is borrowed. It may
// be repeated. A root that nobody borrowed is left as it is: sdk.CodeConfig.
func (s *Store) GiveBack(ctx context.Context) error {
	by, err := s.Borrowed(ctx)
	if err != nil {
		return err
	}
	if by == "" {
		return sdk.Errorf(sdk.CodeConfig, "nobody has taken the root %q in Redis, so that nothing of it is removed", s.o.Root)
	}
	err = s.eachPage(ctx, func(keys []string) error {
		keys = slices.DeleteFunc(keys, func(key string) bool { return key == s.borrowedKey() })
		return s.pipeline(ctx, len(keys), func(p redis.Pipeliner, i int) { p.Unlink(ctx, keys[i]) })
	})
	if err == nil {
		err = s.client.Del(ctx, s.borrowedKey()).Err()
	}
	if err != nil {
		return fmt.Errorf("remove the keys of the root %q: %w", s.o.Root, readError(ctx, err))
	}
	return nil
}

// scanned is how many names of keys the server looks at in one request, which keeps it from others meanwhile.
const scanned = 1000

// eachPage calls do with the keys of the root, some at a time, and with some of them maybe twice.
func (s *Store) eachPage(ctx context.Context, do func(keys []string) error) error {
	scan := func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := node.Scan(ctx, cursor, s.o.Root+":*", scanned).Result()
			if err == nil {
				err = do(keys)
			}
			if err != nil || next == 0 {
				return err
			}
			cursor = next
		}
	}
	cluster, ok := s.client.(*redis.ClusterClient)
	if !ok {
		return scan(ctx, s.client)
	}
	var one sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		one.Lock()
		defer one.Unlock()
		return scan(ctx, master)
	})
}

// Durability is when the server writes to disk what it confirms: "always", "everysec", "no", "none" without an append-only file, or ""
// where it does not say.
func (s *Store) Durability(ctx context.Context) string {
	setting := func(name string) string { return s.client.ConfigGet(ctx, name).Val()[name] }
	if setting("appendonly") == "no" {
		return "none"
	}
	return setting("appendfsync")
}

// RoundTrip is how long the server takes to answer when it has nothing to do for that.
func (s *Store) RoundTrip(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	if err := s.client.Ping(ctx).Err(); err != nil {
		return 0, fmt.Errorf("ask Redis for a sign of life: %w", readError(ctx, err))
	}
	return time.Since(began), nil
}

// counting tells of each command that a client sends, but for those with which it connects.
type counting func(command string)

func (c counting) tell(of redis.Cmder) {
	if name := of.Name(); name != "hello" && name != "client" {
		c(name)
	}
}

// DialHook implements redis.Hook.
func (c counting) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return next(ctx, network, address)
	}
}

// ProcessHook implements redis.Hook.
func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.tell(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements redis.Hook.
func (c counting) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			c.tell(cmd)
		}
		return next(ctx, cmds)
	}
}

// count has Options.Command told.
func (s *Store) count() {
	if s.o.Command != nil {
		s.client.AddHook(counting(s.o.Command))
	}
}
