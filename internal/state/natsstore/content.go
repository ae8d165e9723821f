package natsstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
	"agentd/internal/state"
	"agentd/sdk/wire"
)

// A content that is larger than one message is allowed to be is split: chunk i > 0 is on the content's subject with i as
// a further token. A header of each says how many there are; chunk 0 is written last.
const (
	maxChunk     = 512 << 10
	headerChunks = "Agentd-Chunks"
)

// PutBlob implements runner.Store.
func (s *Store) PutBlob(ctx context.Context, run wire.RunKey, digest string, data []byte) error {
	return s.put(ctx, s.subjects.Blob(run, digest), digest, data)
}

// Blob implements runner.Store.
func (s *Store) Blob(ctx context.Context, run wire.RunKey, digest string) ([]byte, error) {
	return s.content(ctx, s.subjects.Blob(run, digest), digest)
}

// PutSpec implements runner.Store.
func (s *Store) PutSpec(ctx context.Context, digest string, data []byte) error {
	return s.put(ctx, s.subjects.Spec(digest), digest, data)
}

// Spec implements runner.Store.
func (s *Store) Spec(ctx context.Context, digest string) ([]byte, error) {
	return s.content(ctx, s.subjects.Spec(digest), digest)
}

func chunkSubject(subject string, i int) string { return subject + "." + strconv.Itoa(i) }

// put creates a content if it is absent. What is there has the same hash, so it is the same.
func (s *Store) put(ctx context.Context, subject, digest string, data []byte) error {
	if err := state.CheckDigest(digest); err != nil {
		return fmt.Errorf("write content: %w", err)
	}
	chunks := max(1, (len(data)+maxChunk-1)/maxChunk)
	for i := chunks - 1; i >= 0; i-- {
		m := &nats.Msg{
			Subject: subject, Data: data[i*maxChunk : min((i+1)*maxChunk, len(data))],
			Header: nats.Header{headerChunks: {strconv.Itoa(chunks)}},
		}
		if i > 0 {
			m.Subject = chunkSubject(subject, i)
		}
		_, err := s.publishAfter(ctx, m, runner.Version{})
		if err != nil && !refused(err, jetstream.JSErrCodeStreamWrongLastSequence) {
			return fmt.Errorf("write content %s: %w", digest, err)
		}
	}
	return nil
}

func (s *Store) content(ctx context.Context, subject, digest string) ([]byte, error) {
	if err := state.CheckDigest(digest); err != nil {
		return nil, fmt.Errorf("read content: %w", err)
	}
	first, err := s.lastOwn(ctx, subject)
	if err != nil {
		return nil, fmt.Errorf("read content %s: %w", digest, err)
	}
	chunks, err := strconv.Atoi(first.Header.Get(headerChunks))
	if err != nil {
		return nil, fmt.Errorf("%w: read content %s: message %d holds no content: headers %v",
			runner.ErrCorrupt, digest, first.Sequence, first.Header)
	}
	data := first.Data
	for i := 1; i < chunks; i++ {
		m, err := s.lastOwn(ctx, chunkSubject(subject, i))
		if errors.Is(err, runner.ErrNotFound) {
			return nil, fmt.Errorf("%w: read content %s: chunk %d of %d is missing", runner.ErrCorrupt, digest, i, chunks)
		}
		if err != nil {
			return nil, fmt.Errorf("read content %s: %w", digest, err)
		}
		data = append(data, m.Data...)
	}
	return data, nil
}
