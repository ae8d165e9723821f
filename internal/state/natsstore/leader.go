package natsstore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// leader reads the last message of a subject by the stream's API, which only its leader answers. The client's own call
// would be a direct read, which any replica may answer with an older message.
func (s *Store) leader(ctx context.Context, subject string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	reply, err := s.js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+s.stream, request)
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
		return nil, fmt.Errorf("the server sent neither message nor error")
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
