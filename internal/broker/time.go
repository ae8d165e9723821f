package broker

import (
	"context"
	"time"

	"agentd/internal/broker/streams"
)

// ownClock is the clock of this process.
type ownClock struct {
	wall  func() time.Time
	began time.Time
}

func newOwnClock(wall func() time.Time) ownClock {
	if wall == nil {
		wall = time.Now
	}
	return ownClock{wall: wall, began: wall()}
}

// steady is the time in Unix milliseconds as if nobody had set the clock since the process connected.
func (o ownClock) steady() int64 { return o.began.Add(o.wall().Sub(o.began)).UnixMilli() }

// Now is the time by the broker's clock, in Unix milliseconds: what is dated, decided or awaited together with others goes by
// it, not by the clock of this machine. It is this machine's until MeasureClock was called.
func (c *Conn) Now() int64 { return c.broker.Broker(c.own.steady()) }

// Ahead is how far this machine's clock is ahead of the broker's, less than 0 if it is behind.
func (c *Conn) Ahead() time.Duration {
	return time.Duration(c.own.wall().UnixMilli()-c.Now()) * time.Millisecond
}

// MeasureClock measures the broker's clock; looking at a consumer does.
func (c *Conn) MeasureClock(ctx context.Context) error {
	_, err := c.Backlog(ctx, streams.ConsumerRef{Zone: streams.Start, Name: streams.UnroutedConsumer})
	return err
}
