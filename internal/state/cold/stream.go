package cold

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
	"agentd/internal/runner"
	"agentd/sdk/wire"
)

// message is one on the subject of a run's archive: an archive, or what somebody had the server answer there.
type message struct {
	sequence uint64
	data     []byte
}

// at reads the message with a sequence from the stream's leader, or runner.ErrNotFound.
func (s *Store) at(ctx context.Context, run wire.RunKey, sequence uint64) (message, error) {
	m, err := s.read(ctx, leader.Query{Sequence: sequence})
	if err == nil && m.Subject != s.subjects.Cold(run) {
		err = fmt.Errorf("message %d of %s is on %s: %w", sequence, s.stream, m.Subject, runner.ErrNotFound)
	}
	if err != nil {
		return message{}, err
	}
	return message{m.Sequence, m.Data}, nil
}

// newest reads the last message on a run's subject from the stream's leader; its sequence is 0 where none is.
func (s *Store) newest(ctx context.Context, run wire.RunKey) (message, error) {
	m, err := s.read(ctx, leader.Query{LastOn: s.subjects.Cold(run)})
	if errors.Is(err, runner.ErrNotFound) {
		return message{}, nil
	}
	if err != nil {
		return message{}, err
	}
	return message{m.Sequence, m.Data}, nil
}

// errNoStream says that the stream of archives is not there, and with it no archive.
var errNoStream = errors.New("the stream is not there")

func noStream(err error) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("%w: %w", errNoStream, err)
	}
	return err
}

func (s *Store) read(ctx context.Context, q leader.Query) (*jetstream.RawStreamMsg, error) {
	m, err := leader.Read(ctx, s.js, s.stream, q)
	switch {
	case err == nil:
		return m, nil
	case ctx.Err() != nil:
		return nil, errors.Join(ctx.Err(), err)
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return nil, fmt.Errorf("%s: %w", s.stream, runner.ErrNotFound)
	}
	return nil, fmt.Errorf("%s, which cannot be read: %w", s.stream, noStream(err))
}

// publish writes an archive in the place of all messages on its subject, the last of which is the one with the sequence last; 0 is none.
func (s *Store) publish(ctx context.Context, run wire.RunKey, archive []byte, last uint64) (uint64, error) {
	m := &nats.Msg{Subject: s.subjects.Cold(run), Data: archive, Header: nats.Header{
		jetstream.MsgRollup: {jetstream.MsgRollupSubject},
	}}
	var sequence uint64
	err := s.request(ctx, func(ctx context.Context) error {
		ack, err := s.js.PublishMsg(ctx, m, jetstream.WithExpectStream(s.stream), jetstream.WithExpectLastSequencePerSubject(last))
		if err == nil {
			sequence = ack.Sequence
		}
		return err
	})
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		return 0, fmt.Errorf("%w: %w", runner.ErrConflict, err)
	}
	if err != nil {
		return 0, fmt.Errorf("write to %s: %w", s.stream, err)
	}
	return sequence, nil
}

// delete removes the messages on a run's subject up to a sequence.
func (s *Store) delete(ctx context.Context, run wire.RunKey, through uint64) error {
	err := s.request(ctx, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, s.stream)
		if err != nil {
			return err
		}
		return stream.Purge(ctx, jetstream.WithPurgeSubject(s.subjects.Cold(run)), jetstream.WithPurgeSequence(through+1))
	})
	if err != nil {
		return fmt.Errorf("delete from %s: %w", s.stream, noStream(err))
	}
	return nil
}

// request runs one request, and again while nobody leads the stream.
func (s *Store) request(ctx context.Context, do func(ctx context.Context) error) error {
	return leader.PatientlyOnce(ctx, s.js, "stream "+s.stream, func(ctx context.Context) error {
		bounded, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := do(bounded)
		if err != nil && ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		return err
	})
}
