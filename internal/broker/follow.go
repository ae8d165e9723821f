package broker

import (
	"context"
	"errors"
	"fmt"

	"agentd/sdk/wire"

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

// Stored reads one message of a zone by its subject and sequence. One that was removed is CodeUnavailable. It needs
// the right to read that subject alone, as Watch does, not that to read the whole stream.
func (c *Conn) Stored(ctx context.Context, z Zone, subject string, sequence uint64) (Delivery, error) {
	name := StreamName(c.subjects, z)
	var found Delivery
	err := c.read(ctx, name, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: sequence,
	}, func(left uint64) bool { return left > 0 }, func(m jetstream.Msg, meta *jetstream.MsgMetadata) bool {
		if meta.Sequence.Stream == sequence {
			found = watched(m, meta)
		}
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("read %s/%d: %w", name, sequence, err)
	}
	if found == nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "message %d of %s is no longer stored", sequence, name)
	}
	return found, nil
}

// First publishes what a person says on a subject where they have said nothing yet; else it does nothing.
func (c *Conn) First(ctx context.Context, subject string, event wire.Event) error {
	m, err := c.message(subject, event)
	if err != nil {
		return err
	}
	ctx, explain, stop := c.refusals.until(ctx, subject)
	defer stop()
	_, err = c.js.PublishMsg(ctx, m, jetstream.WithExpectStream(c.streamOf(subject)), jetstream.WithExpectLastSequencePerSubject(0))
	api, ok := errors.AsType[*jetstream.APIError](err)
	switch {
	case err == nil:
		return nil
	case ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return nil
	}
	return c.publishError(subject, explain(err))
}

// Reply publishes a person's answer beside those that are on its subject already: whoever was refused may answer again.
func (c *Conn) Reply(ctx context.Context, subject string, event wire.Event) error {
	return c.send(ctx, subject, event)
}
