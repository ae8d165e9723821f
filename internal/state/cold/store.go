// Package cold lets journals of finished runs leave Redis. What is archived is one message of a stream (ADR 34): all entries and blobs of a
// run, as the store keeps them. Redis keeps the head, the last entry and a note of where the archive is. Whoever reads gets what is in
// the archive as if it were in Redis, and whoever appends has it brought back first.
package cold

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/internal/state/redisstore"
	"agentd/sdk/wire"
)

const (
	// requestTimeout bounds one request to the server of the archives.
	requestTimeout = 5 * time.Second
	// attempts is how often something begins anew because a journal was archived or brought back under it.
	attempts = 3
	// remembered is for how long the journal that was read last from its archive is good.
	remembered = 10 * time.Second
)

// Store is a redisstore.Store with archives. Safe for concurrent use. Nothing is asked of the stream before a run has an archive.
type Store struct {
	*redisstore.Store
	js       jetstream.JetStream
	stream   string
	subjects wire.Subjects

	mu sync.Mutex
	// recent is the journal that was read last, by the archive's place in the stream, at a time.
	recent   *journal
	recentAt time.Time
	sequence uint64
}

var (
	_ state.Store    = (*Store)(nil)
	_ state.Archiver = (*Store)(nil)
)

// New returns a store whose archives are in a stream, which need not be there. The caller keeps the connection.
func New(hot *redisstore.Store, js jetstream.JetStream, stream string, subjects wire.Subjects) *Store {
	return &Store{Store: hot, js: js, stream: stream, subjects: subjects}
}

// errThawed says that a journal is not in its archive alone any more.
var errThawed = errors.New("the journal was brought back")

// archived reads the journal of a run whose entries are in its archive alone, or returns errThawed.
func (s *Store) archived(ctx context.Context, run wire.RunKey) (*journal, error) {
	a, err := s.Archived(ctx, run)
	if err != nil {
		return nil, err
	}
	if !a.Thin {
		return nil, errThawed
	}
	if j := s.remembered(run, a.Note.Sequence); j != nil {
		return j, nil
	}
	j, err := s.fetch(ctx, run, a.Note)
	if err == nil {
		s.remember(j, a.Note.Sequence)
		return j, nil
	}
	if now, lookErr := s.Archived(ctx, run); lookErr == nil && now != a {
		return nil, errThawed
	}
	if errors.Is(err, runner.ErrNotFound) {
		err = damaged(fmt.Sprintf("is gone: message %d of %s", a.Note.Sequence, s.stream))
	}
	return nil, fmt.Errorf("the journal of run %s is in %w", run, err)
}

// fetch reads a noted archive, or runner.ErrNotFound. Where it is gone, the run may have gone on since and have been archived anew, and Redis set
// back to before that: the newer archive has all that the older one had.
func (s *Store) fetch(ctx context.Context, run wire.RunKey, n redisstore.Note) (*journal, error) {
	m, err := s.at(ctx, run, n.Sequence)
	gone := err
	if errors.Is(gone, runner.ErrNotFound) {
		m, err = s.newest(ctx, run)
	}
	if err != nil {
		return nil, err
	}
	j, _, err := unpack(m.data)
	if err == nil && (j.run != run || !j.end(n.Etag)) {
		err = damaged("is that of another journal")
	}
	switch {
	case err == nil:
		return j, nil
	case gone != nil:
		return nil, gone
	}
	return nil, fmt.Errorf("message %d of %s: %w", n.Sequence, s.stream, err)
}

func (s *Store) remembered(run wire.RunKey, sequence uint64) *journal {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.recent == nil || time.Since(s.recentAt) > remembered {
		s.recent = nil
		return nil
	}
	if s.recent.run != run || s.sequence != sequence {
		return nil
	}
	return s.recent
}

func (s *Store) remember(j *journal, sequence uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recent, s.sequence, s.recentAt = j, sequence, time.Now()
}

// reading reads from Redis, or from the archive where only that has what is wanted.
func (s *Store) reading(ctx context.Context, run wire.RunKey, fromRedis func() error, fromArchive func(*journal) error) error {
	var err error
	for range attempts {
		if err = fromRedis(); !errors.Is(err, redisstore.ErrThinned) {
			return err
		}
		var j *journal
		if j, err = s.archived(ctx, run); err == nil {
			return fromArchive(j)
		}
		if !errors.Is(err, errThawed) {
			return err
		}
	}
	return fmt.Errorf("read run %s: %w: it is archived and brought back again and again", run, runner.ErrConflict)
}

// Entries implements runner.Store.
func (s *Store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	var records []runner.Record
	err := s.reading(ctx, run, func() (err error) {
		records, err = s.Store.Entries(ctx, run, after)
		return err
	}, func(j *journal) error {
		records = part(j.records, after.Rev, len(j.records))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// Part implements runner.Store.
func (s *Store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	var records []runner.Record
	err := s.reading(ctx, run, func() (err error) {
		records, err = s.Store.Part(ctx, run, from, most)
		return err
	}, func(j *journal) error {
		records = part(j.records, max(from, 1)-1, most)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return records, nil
}

// part copies the records after a revision, most of them at most: who gets them may change them.
func part(records []runner.Record, after uint64, most int) []runner.Record {
	records = records[min(after, uint64(len(records))):]
	records = slices.Clone(records[:min(most, len(records))])
	for i := range records {
		records[i].Data = bytes.Clone(records[i].Data)
	}
	return records
}

// Blob implements runner.Store.
func (s *Store) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	var data []byte
	err := s.reading(ctx, run, func() (err error) {
		if data, err = s.Store.Blob(ctx, run, digest); !errors.Is(err, runner.ErrNotFound) {
			return err
		}
		a, lookErr := s.Archived(ctx, run)
		if lookErr == nil && a.Thin {
			return redisstore.ErrThinned
		}
		if lookErr == nil && a.Note != (redisstore.Note{}) { // it may have been brought back since
			data, err = s.Store.Blob(ctx, run, digest)
		}
		return errors.Join(err, lookErr)
	}, func(j *journal) error {
		archived, there := j.blob(digest)
		if !there {
			return fmt.Errorf("read content %s: %w", digest, runner.ErrNotFound)
		}
		data = bytes.Clone(archived)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return data, nil
}

// Append implements runner.Store. A journal that is in its archive alone is brought back first.
func (s *Store) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	for tries := attempts; ; tries-- {
		v, err := s.Store.Append(ctx, run, base, next)
		if !errors.Is(err, redisstore.ErrThinned) {
			return v, err
		}
		if tries == 1 {
			return runner.Version{}, fmt.Errorf("append to run %s: %w: it is archived again and again", run, runner.ErrConflict)
		}
		if err := s.thaw(ctx, run); err != nil {
			return runner.Version{}, fmt.Errorf("append to run %s: %w", run, err)
		}
	}
}

// thaw brings a journal back. One that was brought back, or goes on, is left as it is.
func (s *Store) thaw(ctx context.Context, run wire.RunKey) error {
	j, err := s.archived(ctx, run)
	if err == nil {
		err = s.Thaw(ctx, run, j.records, j.blobs)
	}
	if errors.Is(err, errThawed) || errors.Is(err, runner.ErrConflict) {
		return nil
	}
	return err
}

// Purge implements state.Store. The archive is deleted after the journal; if that fails, Archive or a repeated Purge does it.
func (s *Store) Purge(ctx context.Context, run wire.RunKey, base runner.Version, keep runner.Record) (runner.Version, error) {
	a, err := s.Archived(ctx, run)
	if err != nil {
		return runner.Version{}, err
	}
	v, err := s.Store.Purge(ctx, run, base, keep)
	if err == nil {
		err = s.drop(ctx, run, a.Note)
	}
	if err != nil {
		return runner.Version{}, err
	}
	return v, nil
}

// Remove implements state.Store. A run that has a tombstone alone needs its archive no more, which is deleted first: nothing would say
// that it is there afterwards.
func (s *Store) Remove(ctx context.Context, run wire.RunKey, base runner.Version) error {
	a, err := s.Archived(ctx, run)
	if err == nil && a.Rev == 1 {
		if err = s.drop(ctx, run, a.Note); err == nil {
			return s.Store.Remove(ctx, run, base)
		}
	}
	if err == nil {
		if err = s.Store.Remove(ctx, run, base); err == nil {
			err = s.drop(ctx, run, a.Note)
		}
	}
	return err
}

// drop deletes the archive that is noted of a run which needs it no more, and the note. Only what was there when it was noted is deleted: the
// run's name may be that of another one by now.
func (s *Store) drop(ctx context.Context, run wire.RunKey, n redisstore.Note) error {
	if n == (redisstore.Note{}) {
		return nil
	}
	through, err := n.Sequence, error(nil)
	if through == 0 {
		var m message
		m, err = s.newest(ctx, run)
		through = m.sequence
	}
	if err == nil && through > 0 {
		err = s.delete(ctx, run, through)
	}
	if err != nil && !errors.Is(err, errNoStream) {
		return fmt.Errorf("delete the archive of run %s: %w", run, err)
	}
	return s.ForgetNote(ctx, run, n)
}
