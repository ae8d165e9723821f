package natsstore

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"agentd/internal/runner"
	"agentd/sdk/wire"
)

const (
	// batchEntries and batchBytes bound what one request reads. Most journals fit into one. The server adds the message
	// that crosses the limit in bytes; the client drops messages when 64 MiB of a subscription are pending.
	batchEntries = 256
	batchBytes   = 8 << 20

	headerPending = "Nats-Num-Pending"
	// headerBefore is the sequence of the message before in the same answer; 0 in the first.
	headerBefore = "Nats-Last-Sequence"
)

// Entries implements runner.Store by direct reads, which any replica may answer.
func (s *Store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	var records []runner.Record
	for last := after; ; {
		b, err := s.batch(ctx, run, last, batchEntries)
		if err != nil {
			return nil, fmt.Errorf("read entries of run %s after %d: %w", run, last.Rev, err)
		}
		if b.purged {
			records = nil
		}
		records = append(records, b.records...)
		if b.done && b.purged && after.Rev >= b.records[0].Rev {
			return nil, nil // whoever knows a later record knows more than is left
		}
		if b.done {
			return records, nil
		}
		if len(records) > 0 {
			last = records[len(records)-1].Version
		}
		last.Position = b.end
	}
}

// batch is what one request read.
type batch struct {
	records []runner.Record
	// purged says that nothing before records counts: the first one is the tombstone.
	purged bool
	done   bool
	// end is the sequence of the last message that was read.
	end uint64
}

// batch reads some messages, most of them at most, and at least one unless it is done. Messages on their way to the client may be lost: what
// comes after a gap is left for the next request.
func (s *Store) batch(ctx context.Context, run wire.RunKey, after runner.Version, most int) (batch, error) {
	b := batch{end: after.Position}
	subject := s.subjects.Journal(run)
	err := s.request(ctx, func(ctx context.Context) error {
		messages, err := jetstreamext.GetBatch(ctx, s.js, s.stream, most,
			jetstreamext.GetBatchSeq(after.Position+1), jetstreamext.GetBatchSubject(subject),
			jetstreamext.GetBatchMaxBytes(batchBytes))
		if err != nil {
			return err
		}
		b.done, err = s.collect(messages, func(m *jetstream.RawStreamMsg) error {
			if foreign(m) {
				b.end = m.Sequence
				return nil
			}
			r, err := record(m)
			switch {
			case err != nil:
				return err
			case m.Header.Get(headerTombstone) != "":
				b.records, b.purged = nil, true
			case r.Rev != after.Rev+uint64(len(b.records))+1:
				return errGap
			}
			b.records, b.end = append(b.records, r), m.Sequence
			return nil
		})
		if err == nil && !b.done && b.end == after.Position {
			return errors.Join(errNoAnswer, ctx.Err())
		}
		return err
	})
	switch {
	case errors.Is(err, errGap) && len(b.records) > 0:
		return b, nil
	case errors.Is(err, errGap):
		return batch{}, s.missing(ctx, subject, after)
	}
	return b, err
}

var errGap = errors.New("an entry is missing")

// missing tells an entry that got lost on its way here from one that is not there: the leader knows.
func (s *Store) missing(ctx context.Context, subject string, after runner.Version) error {
	m, err := s.next(ctx, subject, after.Position+1)
	for err == nil && foreign(m) {
		m, err = s.next(ctx, subject, m.Sequence+1)
	}
	if err != nil {
		return fmt.Errorf("look for entry %d: %w", after.Rev+1, err)
	}
	next, err := record(m)
	if err == nil && next.Rev != after.Rev+1 && m.Header.Get(headerTombstone) == "" {
		err = fmt.Errorf("%w: entry %d is followed by entry %d", runner.ErrCorrupt, after.Rev, next.Rev)
	}
	if err == nil {
		err = fmt.Errorf("entry %d was lost on its way: %w", after.Rev+1, errNoAnswer)
	}
	return err
}

// collect hands on the messages of a direct read, and reports whether they were all that there is.
func (s *Store) collect(
	messages iter.Seq2[*jetstream.RawStreamMsg, error], each func(*jetstream.RawStreamMsg) error,
) (bool, error) {
	done := false
	for m, err := range messages {
		switch {
		case errors.Is(err, jetstreamext.ErrNoMessages):
			return true, nil
		case errors.Is(err, nats.ErrNoResponders):
			return false, fmt.Errorf("stream %s must exist and allow direct reads: %w", s.stream, err)
		case err != nil:
			return false, err
		}
		if err := each(m); err != nil {
			return false, err
		}
		done = m.Header.Get(headerPending) == "0"
	}
	return done, nil
}
