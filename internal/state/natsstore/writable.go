package natsstore

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/leader"
)

// What is written again and again is a content like others, under its SHA-256.
const (
	probeContent = "probe"
	probeDigest  = "ba9c736f19e7f60b7f6764adb0b7908c0a2b394e09b6c09863528c7f2bc86095"
)

// Writable implements state.Store. A server whose disk was full does not answer, also when there is room again, until it is
// restarted.
func (s *Store) Writable(ctx context.Context) error {
	err := s.request(ctx, func(ctx context.Context) error {
		_, err := s.js.PublishMsg(ctx, &nats.Msg{
			Subject: s.ofNoRun(probeDigest), Data: []byte(probeContent),
			Header: nats.Header{headerChunks: {"1"}, jetstream.MsgRollup: {jetstream.MsgRollupSubject}},
		}, jetstream.WithExpectStream(s.stream))
		return err
	})
	if errors.Is(err, errNoAnswer) {
		err = context.DeadlineExceeded
	}
	return leader.Unwritten(s.stream, err)
}
