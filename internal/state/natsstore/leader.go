package natsstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/runner"
)

// last reads the subject's last message from the stream's leader, or runner.ErrNotFound.
func (s *Store) last(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	var m *jetstream.RawStreamMsg
	err := s.request(ctx, func(ctx context.Context) (err error) {
		m, err = s.askLeader(ctx, map[string]any{"last_by_subj": subject})
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
		m, err = s.askLeader(ctx, map[string]any{"seq": from, "next_by_subj": subject})
		return err
	})
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, fmt.Errorf("%s: %w", subject, runner.ErrNotFound)
	}
	return m, err
}

// askLeader uses the stream's API, which only its leader answers. The client's own call would be a direct read, which
// any replica may answer with an older message.
func (s *Store) askLeader(ctx context.Context, which map[string]any) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(which)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	reply, err := s.js.Conn().RequestWithContext(ctx, s.api("STREAM.MSG.GET."+s.stream), request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
			Headers  string `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(reply.Data, &answer); err != nil {
		return nil, fmt.Errorf("decode the server's answer: %w", err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, jetstream.ErrMsgNotFound
	case answer.Error != nil:
		return nil, answer.Error
	case answer.Message == nil:
		return nil, errors.New("the server sent neither message nor error")
	}
	m := &jetstream.RawStreamMsg{
		Subject: answer.Message.Subject, Sequence: answer.Message.Sequence, Data: answer.Message.Data,
	}
	if answer.Message.Headers == "" {
		return m, nil
	}
	raw, err := base64.StdEncoding.DecodeString(answer.Message.Headers)
	if err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
	}
	if m.Header, err = nats.DecodeHeadersMsg(raw); err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
	}
	return m, nil
}

// api is the subject of a JetStream request, in the client's domain or under its prefix.
func (s *Store) api(request string) string {
	o := s.js.Options()
	switch {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "." + request
	case o.Domain != "":
		return "$JS." + o.Domain + ".API." + request
	}
	return "$JS.API." + request
}
