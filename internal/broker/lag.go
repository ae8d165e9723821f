package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/broker/streams"
	"agentd/internal/retry"
	"agentd/sdk"
)

// Backlog is what a consumer has not finished: Pending messages were never delivered, Unacked ones are in hand. Pulls are the
// requests for messages that wait at it, that is of readers that have nothing to do.
type Backlog struct {
	Pending, Unacked, Pulls int64
	// Delivered is when the last message was delivered, in Unix milliseconds; 0 is never. Reached is how far into the stream that was:
	// what was published a moment ago is neither pending nor unacknowledged before the consumer has heard of it.
	Delivered int64
	Reached   uint64
}

// Backlog asks the consumer's leader.
func (c *Conn) Backlog(ctx context.Context, ref streams.ConsumerRef) (Backlog, error) {
	info, err := c.consumerInfo(ctx, ref)
	if err != nil {
		return Backlog{}, err
	}
	return backlogOf(info), nil
}

func backlogOf(info *jetstream.ConsumerInfo) Backlog {
	b := Backlog{Pending: int64(info.NumPending), Unacked: int64(info.NumAckPending), Pulls: int64(info.NumWaiting), Reached: info.Delivered.Stream}
	if last := info.Delivered.Last; last != nil {
		b.Delivered = last.UnixMilli()
	}
	return b
}

// ConsumerState is how far the readers of a consumer are.
type ConsumerState struct {
	Stream, Name string
	Backlog
	// Redelivered is how many messages were delivered again that are not finished.
	Redelivered int64
	Paused      bool
}

// ConsumerState asks the consumer's leader.
func (c *Conn) ConsumerState(ctx context.Context, ref streams.ConsumerRef) (ConsumerState, error) {
	info, err := c.consumerInfo(ctx, ref)
	if err != nil {
		return ConsumerState{}, err
	}
	return ConsumerState{
		Stream: info.Stream, Name: info.Name, Backlog: backlogOf(info), Redelivered: int64(info.NumRedelivered), Paused: info.Paused,
	}, nil
}

// A reader that has no request at a consumer may renew it, or be busy: readSince after a message was delivered somebody is
// taken to be there, and busySince where a message is in hand.
const (
	readSince = time.Minute
	busySince = 5 * time.Minute
)

// Who renews its requests has none for a moment: a consumer is looked at so often before nobody is taken to read it.
const (
	readLooks = 5
	lookPause = 100 * time.Millisecond
)

// Unread reports whether nobody seems to read the consumers, on any stream of their zones: none of them has a request for messages, and nothing
// was delivered lately. One that does not exist is jetstream.ErrConsumerNotFound.
func (c *Conn) Unread(ctx context.Context, refs ...streams.ConsumerRef) (bool, error) {
	all, err := c.Divided(ctx, refs...)
	if err != nil {
		return false, err
	}
	unread, err := c.unread(ctx, all, func(unread int) bool { return unread < len(all) })
	return len(unread) == len(all), err
}

// PartlyRead are those of a consumer's, on the streams of its zone, that nobody seems to read, although somebody reads others of them.
func (c *Conn) PartlyRead(ctx context.Context, ref streams.ConsumerRef) ([]streams.ConsumerRef, error) {
	all, err := c.Divided(ctx, ref)
	if err != nil || len(all) == 1 {
		return nil, err
	}
	unread, err := c.unread(ctx, all, func(unread int) bool { return unread == 0 })
	if len(unread) == len(all) {
		return nil, err
	}
	return unread, err
}

// unread are those of the consumers that nobody seems to read. It looks no longer when enough is said by how many are left.
func (c *Conn) unread(ctx context.Context, refs []streams.ConsumerRef, enough func(unread int) bool) ([]streams.ConsumerRef, error) {
	for look := 0; ; look++ {
		var left []streams.ConsumerRef
		for _, ref := range refs {
			b, err := c.Backlog(ctx, ref)
			if err != nil {
				return nil, err
			}
			since := time.Duration(c.Now()-b.Delivered) * time.Millisecond
			if b.Pulls == 0 && since >= readSince && (b.Unacked == 0 || since >= busySince) {
				left = append(left, ref)
			}
		}
		if refs = left; enough(len(left)) || look == readLooks-1 {
			return left, nil
		}
		if err := retry.Sleep(ctx, lookPause); err != nil {
			return nil, err
		}
	}
}

// Unserved reports whether nobody seems to take the calls of a contract's type in a domain. Where agents take them that is not
// known, and false; people answer now and then, without being seen.
func (c *Conn) Unserved(ctx context.Context, domain, contractType string) (bool, error) {
	if domain == sdk.HumanDomain || sdk.AsksPermission(contractType) {
		return false, nil
	}
	unread, err := c.Unread(ctx, streams.ServiceConsumer(domain, contractType))
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		return false, nil
	}
	return unread, err
}

// Working names a consumer that a worker reads, or has read within the last minute; "" is that no worker runs.
func (c *Conn) Working(ctx context.Context) (consumer string, err error) {
	stream, err := c.js.Stream(ctx, streams.Name(c.subjects, streams.Start))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look who reads init events: %w", err)
	}
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		b := backlogOf(info)
		if b.Pulls > 0 || b.Unacked > 0 && info.TimeStamp.UnixMilli()-b.Delivered < readSince.Milliseconds() {
			consumer = info.Stream + "/" + info.Name
		}
	}
	if err := consumers.Err(); err != nil {
		return "", fmt.Errorf("look who reads init events: %w", err)
	}
	return consumer, nil
}
