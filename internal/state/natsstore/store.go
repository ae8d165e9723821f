// Package natsstore keeps runs in JetStream: one message an entry on the run's own subject, appended by expected last
// subject sequence. An entry is as durable as the stream: with sync_interval "always" (the embedded server's setting) it
// is on disk when Append returns.
package natsstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"agentd/internal/runner"
	"agentd/sdk"
)

// Headers of an entry's message.
const (
	headerRev  = "Agentd-Rev"
	headerEtag = "Agentd-Etag"
)

const (
	// maxEntry is the largest entry in bytes.
	maxEntry = 512 << 10
	// batch is how many entries one request reads.
	batch = 1000
	// attempt bounds one request.
	attempt = 5 * time.Second
)

// Store implements runner.Store. Safe for concurrent use.
type Store struct {
	js       jetstream.JetStream
	stream   string
	subjects sdk.Subjects
}

var _ runner.Store = (*Store)(nil)

// New returns a store in an existing stream, which must allow direct reads.
func New(js jetstream.JetStream, stream string, subjects sdk.Subjects) *Store {
	return &Store{js: js, stream: stream, subjects: subjects}
}

// Head implements runner.Store. It asks the stream's leader.
func (s *Store) Head(ctx context.Context, run sdk.RunKey) (runner.Record, error) {
	m, err := s.last(ctx, s.subjects.Journal(run))
	if err != nil {
		return runner.Record{}, err
	}
	return record(m.Header, m.Data, m.Sequence)
}

func record(h nats.Header, data []byte, sequence uint64) (runner.Record, error) {
	rev, err := strconv.ParseUint(h.Get(headerRev), 10, 64)
	if err != nil || h.Get(headerEtag) == "" {
		return runner.Record{}, fmt.Errorf("message %d is no journal entry: headers %v", sequence, h)
	}
	return runner.Record{
		Version: runner.Version{Rev: rev, Etag: h.Get(headerEtag), Position: sequence}, Data: data,
	}, nil
}

// Entries implements runner.Store by a batched read.
func (s *Store) Entries(ctx context.Context, run sdk.RunKey, after runner.Version) ([]runner.Record, error) {
	var records []runner.Record
	for next := after.Position + 1; ; {
		found := 0
		messages, err := jetstreamext.GetBatch(ctx, s.js, s.stream, batch,
			jetstreamext.GetBatchSeq(next), jetstreamext.GetBatchSubject(s.subjects.Journal(run)))
		if err != nil {
			return nil, fmt.Errorf("read entries: %w", err)
		}
		for m, err := range messages {
			if errors.Is(err, jetstreamext.ErrNoMessages) {
				return records, nil
			}
			if err != nil {
				return nil, fmt.Errorf("read entries: %w", err)
			}
			rec, err := record(m.Header, m.Data, m.Sequence)
			if err != nil {
				return nil, err
			}
			records = append(records, rec)
			found++
			next = m.Sequence + 1
		}
		if found == 0 {
			return records, nil
		}
		// A batch may end early by its size in bytes, so only an empty one is the end. The common case needs no second
		// request: what was asked for is at the subject's last message.
		if found < batch && s.isLast(ctx, run, records[len(records)-1]) {
			return records, nil
		}
	}
}

// isLast reports whether rec is known to be the last entry. When in doubt the caller reads on.
func (s *Store) isLast(ctx context.Context, run sdk.RunKey, rec runner.Record) bool {
	head, err := s.Head(ctx, run)
	return err == nil && head.Position == rec.Position
}

// Append implements runner.Store.
func (s *Store) Append(ctx context.Context, run sdk.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	if len(next.Data) > maxEntry {
		return runner.Version{}, sdk.Errorf(sdk.CodeTooLarge, "entry %d has %d bytes; the limit is %d", next.Rev, len(next.Data), maxEntry)
	}
	m := &nats.Msg{Subject: s.subjects.Journal(run), Data: next.Data, Header: nats.Header{
		headerRev: {strconv.FormatUint(next.Rev, 10)}, headerEtag: {next.Etag},
	}}
	try, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	ack, err := s.js.PublishMsg(try, m,
		jetstream.WithExpectStream(s.stream), jetstream.WithExpectLastSequencePerSubject(base.Position))
	if err == nil {
		return runner.Version{Rev: next.Rev, Etag: next.Etag, Position: ack.Sequence}, nil
	}
	if ctx.Err() != nil {
		return runner.Version{}, ctx.Err()
	}
	return s.learn(try, run, next, err)
}

// learn finds out what became of an append that was not confirmed: the journal itself tells.
func (s *Store) learn(ctx context.Context, run sdk.RunKey, next runner.Record, cause error) (runner.Version, error) {
	head, err := s.Head(ctx, run)
	switch {
	case err == nil && head.Etag == next.Etag:
		return head.Version, nil
	case wrongSequence(cause) && (err == nil || errors.Is(err, runner.ErrNotFound)):
		return runner.Version{}, fmt.Errorf("%w: %w", runner.ErrConflict, cause)
	}
	return runner.Version{}, fmt.Errorf("%w: %w", runner.ErrAmbiguous, errors.Join(cause, err))
}

// wrongSequence reports whether the stream refused the write for its expected last sequence. Replicated streams say so
// in a second way while another write is in flight.
func wrongSequence(err error) bool {
	const inFlight = 10164
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == inFlight)
}

// Barrier implements runner.Store. What the leader shows is as durable as what it acknowledged.
func (s *Store) Barrier(ctx context.Context, run sdk.RunKey, v runner.Version) error {
	head, err := s.Head(ctx, run)
	switch {
	case err != nil && ctx.Err() == nil && !errors.Is(err, runner.ErrNotFound):
		return fmt.Errorf("%w: %w", runner.ErrAmbiguous, err)
	case err != nil && !errors.Is(err, runner.ErrNotFound):
		return err
	case head.Etag != v.Etag:
		return runner.ErrConflict
	}
	return nil
}

// PutBlob implements runner.Store.
func (s *Store) PutBlob(ctx context.Context, run sdk.RunKey, digest string, data []byte) error {
	return s.put(ctx, s.subjects.Blob(run, digest), data)
}

// Blob implements runner.Store.
func (s *Store) Blob(ctx context.Context, run sdk.RunKey, digest string) ([]byte, error) {
	return s.content(ctx, s.subjects.Blob(run, digest))
}

// PutSpec implements runner.Store.
func (s *Store) PutSpec(ctx context.Context, digest string, data []byte) error {
	return s.put(ctx, s.subjects.Spec(digest), data)
}

// Spec implements runner.Store.
func (s *Store) Spec(ctx context.Context, digest string) ([]byte, error) {
	return s.content(ctx, s.subjects.Spec(digest))
}

// put creates a content under its hash; what is there already is the same.
func (s *Store) put(ctx context.Context, subject string, data []byte) error {
	_, err := s.js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: data},
		jetstream.WithExpectStream(s.stream), jetstream.WithExpectLastSequencePerSubject(0))
	if err != nil && !wrongSequence(err) {
		return fmt.Errorf("write %s: %w", subject, err)
	}
	return nil
}

func (s *Store) content(ctx context.Context, subject string) ([]byte, error) {
	m, err := s.last(ctx, subject)
	if err != nil {
		return nil, err
	}
	return m.Data, nil
}

// last reads the subject's last message from the stream's leader.
func (s *Store) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	m, err := s.leader(ctx, subject)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, fmt.Errorf("%s: %w", subject, runner.ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	return m, nil
}

// Runs implements runner.Store. The cursor is the partition and token of the last run listed.
func (s *Store) Runs(ctx context.Context, cursor string, limit int) ([]runner.StoredRun, string, error) {
	first := 0
	if cursor != "" {
		p, err := strconv.Atoi(strings.SplitN(cursor, ".", 2)[0])
		if err != nil || p < 0 || p > 255 {
			return nil, "", sdk.Errorf(sdk.CodeInvalidEvent, "%q is no cursor", cursor)
		}
		first = p
	}
	var runs []runner.StoredRun
	for p := first; p < 256; p++ {
		keys, err := s.partition(ctx, fmt.Sprintf("%03d", p))
		if err != nil {
			return nil, "", err
		}
		for _, k := range keys {
			if k.String() <= cursor {
				continue
			}
			if len(runs) == limit {
				return runs, runs[len(runs)-1].Run.String(), nil
			}
			head, err := s.Head(ctx, k)
			if errors.Is(err, runner.ErrNotFound) {
				continue // purged meanwhile
			}
			if err != nil {
				return nil, "", err
			}
			runs = append(runs, runner.StoredRun{Run: k, Last: head})
		}
	}
	return runs, "", nil
}

// partition lists the runs of a partition in order.
func (s *Store) partition(ctx context.Context, p string) ([]sdk.RunKey, error) {
	stream, err := s.js.Stream(ctx, s.stream)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	filter := s.subjects.Journal(sdk.RunKey{Partition: p, Token: "*"})
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	keys := make([]sdk.RunKey, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		keys = append(keys, sdk.RunKey{Partition: p, Token: subject[strings.LastIndexByte(subject, '.')+1:]})
	}
	slices.SortFunc(keys, func(a, b sdk.RunKey) int { return cmp.Compare(a.Token, b.Token) })
	return keys, nil
}
