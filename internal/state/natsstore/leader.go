package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"agentd/internal/broker/leader"
	"agentd/internal/runner"
)

// last reads the subject's last message from the stream's leader, or runner.ErrNotFound.
func (s *Store) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	return s.read(ctx, subject, leader.Query{LastOn: subject})
}

// read reads a message on the subject from the stream's leader, or runner.ErrNotFound.
func (s *Store) read(ctx context.Context, subject string, q leader.Query) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	err := s.request(ctx, func(ctx context.Context) (err error) {
		m, err = leader.Read(ctx, s.js, s.stream, q)
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

// ownBefore reads the last message before a sequence that a store wrote. Foreign ones are passed over in batches, and once: where a
// search ended is remembered.
func (s *Store) ownBefore(ctx context.Context, subject string, end uint64) (*jetstream.RawStreamMsg, error) {
	known := s.passed.on(subject, end)
	for known.end < end {
		next, err := s.pass(ctx, subject, known, end)
		if err != nil {
			return nil, err
		}
		known = next
	}
	s.passed.keep(subject, known)
	if known.own == 0 {
		return nil, fmt.Errorf("%s: %w", subject, runner.ErrNotFound)
	}
	m, err := s.read(ctx, subject, leader.Query{Sequence: known.own})
	if errors.Is(err, runner.ErrNotFound) { // it was removed since; what is before it was too
		s.passed.keep(subject, passed{end: end})
	}
	return m, err
}

// pass reads on from where a search is, up to a sequence.
func (s *Store) pass(ctx context.Context, subject string, at passed, end uint64) (passed, error) {
	before := at.end
	err := s.request(ctx, func(ctx context.Context) error {
		messages, err := jetstreamext.GetBatch(ctx, s.js, s.stream, batchEntries,
			jetstreamext.GetBatchSeq(before), jetstreamext.GetBatchSubject(subject), jetstreamext.GetBatchMaxBytes(batchBytes))
		if err != nil {
			return err
		}
		last := "0"
		_, err = s.collect(messages, func(m *jetstream.RawStreamMsg) error {
			if m.Header.Get(headerBefore) != last || m.Sequence >= end { // one was lost on its way, or it is done
				return errGap
			}
			at.take(m)
			last = strconv.FormatUint(m.Sequence, 10)
			return nil
		})
		return err
	})
	if err != nil && !errors.Is(err, errGap) {
		return passed{}, err
	}
	if at.end > before {
		return at, nil
	}
	// Whoever answers a direct read may not have it yet; the leader has.
	m, err := s.next(ctx, subject, before)
	switch {
	case errors.Is(err, runner.ErrNotFound), err == nil && m.Sequence >= end:
		at.end = end
		return at, nil
	case err != nil:
		return passed{}, err
	}
	at.take(m)
	return at, nil
}

// next reads the first message on a subject from a sequence on, or runner.ErrNotFound.
func (s *Store) next(ctx context.Context, subject string, from uint64) (*jetstream.RawStreamMsg, error) {
	return s.read(ctx, subject, leader.Query{Sequence: from, NextOn: subject})
}
