package natsstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state"
)

// markSubject is where a mark is: among what is of no run, under the digest of its name.
func (s *Store) markSubject(name string) string {
	digest := sha256.Sum256([]byte("mark " + name))
	return s.ofNoRun(hex.EncodeToString(digest[:]))
}

// Mark implements state.Store: the stream is lost, or set back, as a whole.
func (s *Store) Mark(ctx context.Context, name, mark string) error {
	err := state.CheckMark(name, mark)
	if err == nil {
		err = s.request(ctx, func(ctx context.Context) error {
			_, err := s.js.PublishMsg(ctx, &nats.Msg{
				Subject: s.markSubject(name), Data: []byte(mark),
				Header: nats.Header{headerChunks: {"1"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
			}, jetstream.WithExpectStream(s.stream))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("mark the store: %w", err)
	}
	return nil
}

// Marked implements state.Store.
func (s *Store) Marked(ctx context.Context, name, mark string) (bool, error) {
	if err := state.CheckMark(name, mark); err != nil {
		return false, err
	}
	m, err := s.lastOwn(ctx, s.markSubject(name))
	if errors.Is(err, runner.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the mark of the store: %w", err)
	}
	return string(m.Data) == mark, nil
}
