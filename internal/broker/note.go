package broker

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/sdk"
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

// Lasting is Note of what lasts; nothing is noted where the streams are not made yet.
func (c *Conn) Lasting(ctx context.Context, name string) ([]byte, error) {
	noted, err := c.Note(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	return noted, err
}

// SetLasting is SetNote for as long as the stream is there, not for noteKept. What was noted before stays behind it: a server that has lost
// that message, and not the index that names it, removes whatever is put in its place.
func (c *Conn) SetLasting(ctx context.Context, name string, note []byte) error {
	return c.keep(ctx, c.lasting(name, note))
}

func (c *Conn) lasting(name string, note []byte) *nats.Msg {
	return &nats.Msg{Subject: c.leaseSubject(name), Data: note}
}

// FirstLasting is SetLasting unless something is noted under the name, and returns what is noted then: the same to all who call it at once.
func (c *Conn) FirstLasting(ctx context.Context, name string, note []byte) ([]byte, error) {
	if err := c.keep(ctx, c.lasting(name, note), jetstream.WithExpectLastSequencePerSubject(0)); err != nil {
		return nil, err
	}
	noted, err := c.Note(ctx, name)
	if err == nil && noted == nil {
		return nil, sdk.Errorf(sdk.CodeUnavailable, "what somebody else has noted under %s is not there yet", name)
	}
	return noted, err
}
