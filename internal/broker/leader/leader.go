// Package leader reads messages of a stream from its leader, one at a time. The client's own call would be a direct read
// where the stream allows it, which any replica may answer with an older message. It also names why a leader takes no writes.
package leader

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Query says which message of a stream is meant: the one at Sequence, the last on LastOn, or the first from Sequence on
// whose subject matches NextOn.
type Query struct {
	Sequence uint64 `json:"seq,omitempty"`
	LastOn   string `json:"last_by_subj,omitempty"`
	NextOn   string `json:"next_by_subj,omitempty"`
}

// Read returns a message, or jetstream.ErrMsgNotFound.
func Read(ctx context.Context, js jetstream.JetStream, stream string, q Query) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(q)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	var m *jetstream.RawStreamMsg
	err = Patiently(ctx, js, "stream "+stream, func(ctx context.Context) (err error) {
		m, err = read(ctx, js, stream, request)
		return err
	})
	return m, err
}

func read(ctx context.Context, js jetstream.JetStream, stream string, request []byte) (*jetstream.RawStreamMsg, error) {
	reply, err := js.Conn().RequestWithContext(ctx, API(js.Options(), "STREAM.MSG.GET."+stream), request)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Subject  string    `json:"subject"`
			Sequence uint64    `json:"seq"`
			Headers  string    `json:"hdrs"`
			Data     []byte    `json:"data"`
			Time     time.Time `json:"time"`
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
	got := answer.Message
	header, err := headers(got.Headers)
	if err != nil {
		return nil, fmt.Errorf("decode headers: %w", err)
	}
	return &jetstream.RawStreamMsg{
		Subject: got.Subject, Sequence: got.Sequence, Header: header, Data: got.Data, Time: got.Time,
	}, nil
}

func headers(encoded string) (nats.Header, error) {
	if encoded == "" {
		return nil, nil
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, err
	}
	return nats.DecodeHeadersMsg(raw)
}

// API is the subject of a JetStream request, in the client's domain or under its prefix.
func API(o jetstream.JetStreamOptions, request string) string {
	switch {
	case o.APIPrefix != "":
		return strings.TrimSuffix(o.APIPrefix, ".") + "." + request
	case o.Domain != "":
		return "$JS." + o.Domain + ".API." + request
	}
	return "$JS.API." + request
}
