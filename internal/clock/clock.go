// Package clock corrects a process's clock by the broker's, so that what programs on several machines write into journals and
// events is dated as if they had one clock. It reads no clock itself. All times are Unix milliseconds.
package clock

import "sync"

// Clock knows how far a process's own clock is ahead of the broker's at most: what it dates is never dated later than by the broker, so
// that whatever follows from that is stored at a later date. The zero Clock takes the two to be equal. Safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	ahead int64
	known bool
}

// Measured takes in what the broker's clock said between two times of the process's own. What is known stays as it is while
// it agrees with that, so that the clock does not jitter, and otherwise becomes the most that does: it is never further
// off than the last answer took.
func (c *Clock) Measured(asked, broker, answered int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	least, most := asked-broker, answered-broker
	if !c.known || c.ahead < least || c.ahead > most {
		c.ahead, c.known = most, true
	}
}

// Stored takes in that the broker stored something at a time before one of the process's own: it cannot be earlier than that.
func (c *Clock) Stored(broker, own int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known {
		c.ahead = min(c.ahead, own-broker)
	}
}

// Broker is the broker's time at one of the process's own, or a little less.
func (c *Clock) Broker(own int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return own - c.ahead
}
