package broker

import (
	"context"
	"fmt"
)

// Backlog is what a consumer has not finished: Pending messages were never delivered, Unacked ones are in hand. Pulls are the
// requests for messages that wait at it, that is of readers that have nothing to do.
type Backlog struct{ Pending, Unacked, Pulls int64 }

// Backlog asks the consumer's leader.
func (c *Conn) Backlog(ctx context.Context, ref ConsumerRef) (Backlog, error) {
	asked := c.own.steady()
	consumer, err := c.js.Consumer(ctx, StreamName(c.subjects, ref.Zone), ref.Name)
	if err != nil {
		return Backlog{}, fmt.Errorf("look at consumer %s: %w", ref.Name, err)
	}
	info := consumer.CachedInfo() // it was just asked for
	if !info.TimeStamp.IsZero() {
		c.broker.Measured(asked, info.TimeStamp.UnixMilli(), c.own.steady())
	}
	return Backlog{Pending: int64(info.NumPending), Unacked: int64(info.NumAckPending), Pulls: int64(info.NumWaiting)}, nil
}
