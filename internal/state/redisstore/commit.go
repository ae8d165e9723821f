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

// commit runs a script that writes, and waits until what it wrote is durable.
func (s *Store) commit(ctx context.Context, script *redis.Script, keys []string, args ...any) error {
	var answer *redis.Cmd
	var err error
	if s.o.Replicas == 0 {
		answer, err = s.run(ctx, script, keys, args)
	} else {
		err = s.replicated(ctx, keys[0], func(p redis.Pipeliner) { answer = script.EvalSha(ctx, p, keys, args...) })
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			err = s.replicated(ctx, keys[0], func(p redis.Pipeliner) { answer = script.Eval(ctx, p, keys, args...) })
		}
	}
	if answer == nil || answer.Err() != nil {
		return writeError(ctx, err)
	}
	switch {
	case answer.Val() == int64(conflicted):
		return runner.ErrConflict // whatever became of the wait
	case err != nil: // it is written, also where the wait was refused: the server may have become a replica in between
		return fmt.Errorf("%w: %w", runner.ErrAmbiguous, readError(ctx, err))
	}
	return nil
}

// run runs a script. Without its answer nothing is known of it.
func (s *Store) run(ctx context.Context, script *redis.Script, keys []string, args []any) (*redis.Cmd, error) {
	answer := evalSHA(ctx, script, keys, args)
	err := s.ask(ctx, answer)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		answer = script.Eval(ctx, s.client, keys, args...)
		err = answer.Err()
	}
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// ask sends a command, with what others send at the same time. After an error it must not be touched.
func (s *Store) ask(ctx context.Context, cmd redis.Cmder) error {
	if client, one := s.client.(*redis.Client); one {
		return s.gatherer.do(ctx, client, cmd)
	}
	return s.client.Process(ctx, cmd)
}

func evalSHA(ctx context.Context, script *redis.Script, keys []string, args []any) *redis.Cmd {
	words := append(make([]any, 0, 3+len(keys)+len(args)), "evalsha", script.Hash(), len(keys))
	for _, k := range keys {
		words = append(words, k)
	}
	return redis.NewCmd(ctx, append(words, args...)...)
}

// PutBlob implements runner.Store. It waits for replicas although the entry that names the blob does, too: the server may be
// another one by then. The digest is noted first, so that every blob can be found again.
func (s *Store) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	noted, key := s.digestsKey(run), s.blobKey(run, digest)
	return s.put(ctx, digest, func() error {
		if s.o.Replicas == 0 {
			return s.pipeline(ctx, 1, func(p redis.Pipeliner, _ int) {
				p.SAdd(ctx, noted, digest)
				p.SetArgs(ctx, key, data, redis.SetArgs{Mode: "NX"}) // what is there is the same
			})
		}
		return s.replicated(ctx, key, func(p redis.Pipeliner) {
			p.SAdd(ctx, noted, digest)
			p.Set(ctx, key, data, 0) // WAIT covers what is written, and not what is there
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
