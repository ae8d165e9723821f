package natsstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/runner"
)

// last reads the subject's last message from the stream's leader, or runner.ErrNotFound.
func (s *Store) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	err := s.request(ctx, func(ctx context.Context) (err error) {
		m, err = leader.Read(ctx, s.js, s.stream, leader.Query{LastOn: subject})
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%s: %w", subject, runner.ErrNotFound)
	}
	return m, err
}

// foreign reports whether no store wrote a message. The server answers requests on whatever reply subject they name, also on
// those of a journal, which the requester may not publish to: such answers have no header of ours, and are passed over.
func foreign(m *jetstream.RawStreamMsg) bool {
	return m.Header.Get(headerRev) == "" && m.Header.Get(headerEtag) == "" && m.Header.Get(headerChunks) == ""
}

// lastOwn reads the last message on a subject that a store wrote.
func (s *Store) lastOwn(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	m, err := s.last(ctx, subject)
	if err != nil || !foreign(m) {
		return m, err
	}
	return s.ownBefore(ctx, subject, m.Sequence)
}

// ownBefore reads the last message before a sequence that a store wrote. It looks at all that are on the subject.
func (s *Store) ownBefore(ctx context.Context, subject string, end uint64) (*jetstream.RawStreamMsg, error) {
	var own *jetstream.RawStreamMsg
	for from := uint64(1); from < end; {
		m, err := s.next(ctx, subject, from)
		if errors.Is(err, runner.ErrNotFound) || err == nil && m.Sequence >= end {
			break
		}
		if err != nil {
			return nil, err
		}
		if !foreign(m) {
			own = m
		}
		from = m.Sequence + 1
	}
	if own == nil {
		return nil, fmt.Errorf("%s: %w", subject, runner.ErrNotFound)
	}
	return own, nil
}

// next reads the first message on a subject from a sequence on, or runner.ErrNotFound.
func (s *Store) next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	err := s.request(ctx, func(ctx context.Context) (err error) {
		m, err = leader.Read(ctx, s.js, s.stream, leader.Query{Sequence: from, NextOn: subject})
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%s: %w", subject, runner.ErrNotFound)
	}
	return m, err
}
