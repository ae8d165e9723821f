package broker

import (
	"context"
	"errors"
	"time"
)

// noteKept is how long a note is kept that nobody writes again. Who misses one does more than they need, and writes it.
const noteKept = 30 * 24 * time.Hour

// Note reads what was noted under a name that no lease has; nil is nothing.
func (c *Conn) Note(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	m, err := c.Last(ctx, c.leaseSubject(name))
	if errors.Is(err, ErrNotStored) {
		return nil, nil
	}
	return m.Data, err
}

// SetNote notes something under a name, in place of what was noted before.
func (c *Conn) SetNote(ctx context.Context, name string, note []byte) error {
	return c.keepLast(ctx, c.leaseSubject(name), note, noteKept)
}
