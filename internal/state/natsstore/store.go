// Package natsstore keeps runs in JetStream: one message an entry on the run's own subject, appended by expected last
// subject sequence. An entry is as durable as the stream makes it: with sync_interval "always" (the embedded server's
// setting) it is on disk when Append returns.
package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// Headers of an entry's message.
const (
	headerRev  = "Agentd-Rev"
	headerEtag = "Agentd-Etag"
	// headerTombstone says that the record is all there is of the run, whatever is still stored before it.
	headerTombstone = "Agentd-Tombstone"
)

// requestTimeout bounds one request to the server.
const requestTimeout = 5 * time.Second

// errNoAnswer stands for the end of a request's own time, so that nobody takes it for the end of the caller's context.
var errNoAnswer = errors.New("the server did not answer in time")

// Store implements runner.Store. Safe for concurrent use.
type Store struct {
	js       jetstream.JetStream
	stream   string
	subjects wire.Subjects
	timeout  time.Duration
	// wholeList is up to how many subjects in the stream a list of runs asks for all at once, not by partition.
	wholeList uint64
	// from and to are the partitions whose runs it has, without the last.
	from, to int
	passed   searches
	rests    rests
}

var _ state.Store = (*Store)(nil)

// New returns a store in an existing stream that has the journal, blob and spec subjects and allows direct reads. The
// caller keeps the connection.
func New(js jetstream.JetStream, stream string, subjects wire.Subjects) *Store {
	return &Store{
		js: js, stream: stream, subjects: subjects, timeout: requestTimeout, wholeList: 2_000, to: partitions,
	}
}

// request runs one request within the store's time, and again while nobody leads the stream.
func (s *Store) request(ctx context.Context, do func(ctx context.Context) error) error {
	return leader.PatientlyOnce(ctx, s.js, "stream "+s.stream, func(ctx context.Context) error { return s.once(ctx, do) })
}

// once runs one request within the store's time, and tells apart whose time ended.
func (s *Store) once(ctx context.Context, do func(ctx context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := do(bounded)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w (%s)", errNoAnswer, s.timeout)
	}
	return err
}

// Head implements runner.Store. It asks the stream's leader.
func (s *Store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	m, err := s.lastOwn(ctx, s.subjects.Journal(run))
	if err != nil {
		return runner.Record{}, fmt.Errorf("read head of run %s: %w", run, err)
	}
	return record(m)
}

func record(m *jetstream.RawStreamMsg) (runner.Record, error) {
	rev, err := strconv.ParseUint(m.Header.Get(headerRev), 10, 64)
	if err != nil || m.Header.Get(headerEtag) == "" {
		return runner.Record{}, fmt.Errorf("%w: message %d on %s is not an entry: headers %v",
			runner.ErrCorrupt, m.Sequence, m.Subject, m.Header)
	}
	return runner.Record{
		Version: runner.Version{Rev: rev, Etag: m.Header.Get(headerEtag), Position: m.Sequence}, Data: m.Data,
	}, nil
}

// Append implements runner.Store.
func (s *Store) Append(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	v, err := s.append(ctx, run, base, next)
	if err != nil {
		return runner.Version{}, fmt.Errorf("append to run %s: %w", run, err)
	}
	return v, nil
}

func (s *Store) append(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record,
) (runner.Version, error) {
	if err := state.CheckRecord(base, next); err != nil {
		return runner.Version{}, err
	}
	if err := ctx.Err(); err != nil {
		return runner.Version{}, err
	}
	sequence, err := s.publishAfter(ctx, s.message(run, next), base)
	if err == nil {
		return runner.Version{Rev: next.Rev, Etag: next.Etag, Position: sequence}, nil
	}
	return s.learn(ctx, run, base, next, err)
}

// publishAfter writes m if base is the last entry on its subject, whatever foreign messages came after it.
func (s *Store) publishAfter(ctx context.Context, m *nats.Msg, base runner.Version) (uint64, error) {
	sequence, err := s.publish(ctx, m, base.Position)
	if !refused(err, jetstream.JSErrCodeStreamWrongLastSequence) {
		return sequence, err
	}
	end, lookErr := s.last(ctx, m.Subject)
	if lookErr != nil || !foreign(end) {
		return 0, err
	}
	own, lookErr := s.ownBefore(ctx, m.Subject, end.Sequence)
	absent := errors.Is(lookErr, runner.ErrNotFound)
	if lookErr != nil && !absent || absent && base.Position != 0 || !absent && own.Sequence != base.Position {
		return 0, err
	}
	return s.publish(ctx, m, end.Sequence)
}

func (s *Store) message(run wire.RunKey, r runner.Record) *nats.Msg {
	return &nats.Msg{Subject: s.subjects.Journal(run), Data: r.Data, Header: nats.Header{
		headerRev: {strconv.FormatUint(r.Rev, 10)}, headerEtag: {r.Etag},
	}}
}

// publish writes m if the subject's last message is at sequence last; 0 is none.
func (s *Store) publish(ctx context.Context, m *nats.Msg, last uint64) (uint64, error) {
	var sequence uint64
	err := s.request(ctx, func(ctx context.Context) error {
		ack, err := s.js.PublishMsg(ctx, m,
			jetstream.WithExpectStream(s.stream), jetstream.WithExpectLastSequencePerSubject(last))
		if err == nil {
			sequence = ack.Sequence
		}
		return err
	})
	return sequence, err
}

// learn finds out what became of an append that was not confirmed. Whatever the acknowledgement said or failed to say,
// the journal itself tells: an earlier attempt may have written the entry, and others may answer on its inbox.
func (s *Store) learn(
	ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record, cause error,
) (runner.Version, error) {
	head, err := s.Head(ctx, run)
	absent := errors.Is(err, runner.ErrNotFound)
	switch {
	case err != nil && !absent:
		return runner.Version{}, fmt.Errorf("%w: %w", runner.ErrAmbiguous, errors.Join(cause, err))
	case head.Etag == next.Etag:
		return head.Version, nil
	case head.Etag != base.Etag, refused(cause, jetstream.JSErrCodeStreamWrongLastSequence):
		return runner.Version{}, fmt.Errorf("%w: %w", runner.ErrConflict, cause)
	case definite(cause):
		return runner.Version{}, cause
	}
	// The journal still ends at base, and the request may still be on its way there.
	return runner.Version{}, fmt.Errorf("%w: %w", runner.ErrAmbiguous, cause)
}

// errCodeOtherInFlight is how a replicated stream refuses an expected last sequence while another write to the subject
// is being replicated, which may be an earlier attempt of the same.
const errCodeOtherInFlight jetstream.ErrorCode = 10164

func refused(err error, codes ...jetstream.ErrorCode) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	if !ok {
		return false
	}
	for _, code := range codes {
		if api.ErrorCode == code {
			return true
		}
	}
	return false
}

// definite reports whether the server said no in a way that the same request will meet again.
func definite(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.Code < 500 && api.ErrorCode != errCodeOtherInFlight || errors.Is(err, nats.ErrMaxPayload)
}

// Barrier implements runner.Store. What the leader shows is as durable as what it acknowledged.
func (s *Store) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	head, err := s.Head(ctx, run)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("barrier of run %s: %w", run, ctx.Err())
	case err != nil && !errors.Is(err, runner.ErrNotFound):
		return fmt.Errorf("barrier of run %s: %w: %w", run, runner.ErrAmbiguous, err)
	case head.Etag != v.Etag:
		return fmt.Errorf("barrier of run %s: %w", run, runner.ErrConflict)
	}
	return nil
}
