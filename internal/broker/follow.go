package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
)

// Follow is Watch from the beginning that also says when everything that was there has been handed out: caughtUp is
// called once, by the goroutine that calls handle.
func (c *Conn) Follow(ctx context.Context, z Zone, filters []string, caughtUp func(), handle func(Delivery)) error {
	pending := func(left uint64) {
		if left == 0 && caughtUp != nil {
			caughtUp()
			caughtUp = nil
		}
	}
	return c.watch(ctx, z, filters, jetstream.DeliverAllPolicy, pending, func(d Delivery, left uint64) bool {
		handle(d)
		pending(left)
		return true
	})
}

// Stored reads one message of a zone by its sequence. One that is no longer there is CodeUnavailable.
func (c *Conn) Stored(ctx context.Context, z Zone, sequence uint64) (Delivery, error) {
	name := StreamName(c.subjects, z)
	stream, err := c.js.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read %s/%d: %w", name, sequence, err)
	}
	m, err := stream.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "message %d of %s is no longer stored", sequence, name)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s/%d: %w", name, sequence, err)
	}
	return delivery{
		msg: &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data},
		meta: &nats.MsgMetadata{
			Stream: name, Sequence: nats.SequencePair{Stream: m.Sequence}, Timestamp: m.Time,
		},
	}, nil
}

// Reply publishes a person's answer beside those that are on its subject already: whoever was refused may answer again.
func (c *Conn) Reply(ctx context.Context, subject string, event sdk.Event) error {
	return c.send(ctx, subject, event)
}
