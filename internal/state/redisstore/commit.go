package redisstore

import (
	"context"
	"errors"
	"fmt"

	"agentd/sdk/wire"

	"github.com/redis/go-redis/v9"

	"agentd/internal/runner"
	"agentd/internal/state"
)

// commit runs a script that writes, and waits until what it wrote is durable.
func (s *Store) commit(ctx context.Context, script *redis.Script, keys []string, args ...any) error {
	var answer *redis.Cmd
	var err error
	if s.o.Replicas == 0 {
		answer = script.Run(ctx, s.client, keys, args...)
		err = answer.Err()
	} else {
		err = s.replicated(ctx, keys[0], func(p redis.Pipeliner) { answer = script.EvalSha(ctx, p, keys, args...) })
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			err = s.replicated(ctx, keys[0], func(p redis.Pipeliner) { answer = script.Eval(ctx, p, keys, args...) })
		}
	}
	if answer != nil && answer.Err() == nil && answer.Val() == int64(conflicted) {
		return runner.ErrConflict // whatever became of the wait
	}
	return writeError(ctx, err)
}

// replicated sends a write, and then waits for replicas on the same connection: WAIT covers what its own connection
// wrote.
func (s *Store) replicated(ctx context.Context, key string, write func(redis.Pipeliner)) error {
	node, err := s.node(ctx, key)
	if err != nil {
		return err
	}
	var wait *redis.Cmd
	_, err = node.Pipelined(ctx, func(p redis.Pipeliner) error {
		write(p)
		if s.waitAOF {
			wait = p.Do(ctx, "waitaof", 1, s.o.Replicas, s.o.ReplicaTimeout.Milliseconds())
		} else {
			wait = p.Do(ctx, "wait", s.o.Replicas, s.o.ReplicaTimeout.Milliseconds())
		}
		return nil
	})
	cluster, ok := s.client.(*redis.ClusterClient)
	if ok && (redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")) {
		cluster.ReloadState(ctx) // the client follows redirections of its own requests only
	}
	if err != nil {
		return err
	}
	have, err := s.confirmed(wait)
	if err != nil {
		return err
	}
	if have < s.o.Replicas {
		return fmt.Errorf("%d of %d replicas have confirmed after %s", have, s.o.Replicas, s.o.ReplicaTimeout)
	}
	return nil
}

// confirmed is the number of replicas that have the write, by the answer to WAIT or WAITAOF.
func (s *Store) confirmed(wait *redis.Cmd) (int, error) {
	if !s.waitAOF {
		return wait.Int()
	}
	synced, err := wait.Int64Slice() // the master itself: 0 or 1; replicas
	if err != nil {
		return 0, err
	}
	if len(synced) != 2 || synced[0] == 0 {
		return 0, nil
	}
	return int(synced[1]), nil
}

// node is the server that has the key.
func (s *Store) node(ctx context.Context, key string) (*redis.Client, error) {
	switch c := s.client.(type) {
	case *redis.Client:
		return c, nil
	case *redis.ClusterClient:
		return c.MasterForKey(ctx, key)
	}
	return nil, fmt.Errorf("a client of type %T cannot wait for replicas", s.client)
}

// PutBlob implements runner.Store. It waits for no replica: the entry that names the blob is written to the same server
// after it, so the wait for the entry covers both. The digest is noted first, so that every blob can be found again.
func (s *Store) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	return s.put(ctx, digest, func() error {
		return s.pipeline(ctx, 1, func(p redis.Pipeliner, _ int) {
			p.SAdd(ctx, s.digestsKey(run), digest)
			p.SetArgs(ctx, s.blobKey(run, digest), data, redis.SetArgs{Mode: "NX"}) // what is there is the same
		})
	})
}

// PutSpec implements runner.Store.
func (s *Store) PutSpec(ctx context.Context, digest string, data []byte) error {
	key := s.specKey(digest)
	return s.put(ctx, digest, func() error {
		if s.o.Replicas == 0 {
			return s.create(ctx, key, data)
		}
		return s.replicated(ctx, key, func(p redis.Pipeliner) { p.Set(ctx, key, data, 0) })
	})
}

func (s *Store) put(ctx context.Context, digest string, write func() error) error {
	err := ctx.Err()
	if err == nil {
		err = state.CheckDigest(digest)
	}
	if err == nil {
		err = write()
	}
	if err != nil {
		return fmt.Errorf("write content %s: %w", digest, readError(ctx, err))
	}
	return nil
}

// create writes a content if it is absent. What is there has the same hash, so it is the same.
func (s *Store) create(ctx context.Context, key string, data []byte) error {
	err := s.client.SetArgs(ctx, key, data, redis.SetArgs{Mode: "NX"}).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// Blob implements runner.Store.
func (s *Store) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	return s.content(ctx, s.blobKey(run, digest), digest)
}

// Spec implements runner.Store.
func (s *Store) Spec(ctx context.Context, digest string) ([]byte, error) {
	return s.content(ctx, s.specKey(digest), digest)
}

func (s *Store) content(ctx context.Context, key, digest string) ([]byte, error) {
	err := ctx.Err()
	if err == nil {
		err = state.CheckDigest(digest)
	}
	var data []byte
	if err == nil {
		data, err = s.client.Get(ctx, key).Bytes()
	}
	if err != nil {
		return nil, fmt.Errorf("read content %s: %w", digest, readError(ctx, err))
	}
	return data, nil
}
