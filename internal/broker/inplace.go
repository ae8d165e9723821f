package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/singleflight"

	"agentd/internal/broker/leader"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// forgotten is how long ago the server may have stored what it has forgotten, as far as a connection knows that was to no process of it before.
	forgotten = 2 * time.Hour
	// startedBefore is how long before a connection is lost another process of the server may have been started: who is told nothing notices it late.
	startedBefore = 15 * time.Second
	// puttingInPlace bounds one look at all consumers.
	puttingInPlace = 30 * time.Second
)

// inPlace remembers whether consumers are where their streams are. A server that has lost what its index of a stream says is there may find
// that out when it has loaded the consumers, and have the stream end before what they have delivered: they would pass over what is published
// next, and when the stream has caught up with them they cannot be told from others. So nothing is published on a stream that a server may
// set back before somebody has looked at its consumers in the process that the connection is to.
type inPlace struct {
	// process is the one whose consumers have been looked at.
	process atomic.Pointer[string]
	looking singleflight.Group
	// lost is when the connection to the process that was looked at last was lost, in Unix milliseconds by the broker's clock; 0 is that there was
	// none.
	lost atomic.Int64
}

// disconnected notes that the next process may have been started from now on.
func (c *Conn) disconnected() {
	if c.inPlace.process.Load() != nil {
		c.inPlace.lost.CompareAndSwap(0, c.Now())
	}
}

// publishable waits until a subject may be published on: for a connection, and until no consumer of its stream is ahead.
func (c *Conn) publishable(ctx context.Context, subject string) error {
	looked := c.inPlace.process.Load()
	if looked != nil && c.nc.ConnectedServerId() == *looked || !slices.Contains(Rebuildable, Layout{}.ZoneOf(subject)) || leader.Clustered(c.js) {
		return nil
	}
	server, err := c.awaitServer(ctx)
	if err != nil || server == "" {
		return err
	}
	select {
	case looked := <-c.inPlace.looking.DoChan(server, func() (any, error) { return nil, c.lookAtConsumers(server) }):
		return looked.Err
	case <-ctx.Done():
		return fmt.Errorf("look at the consumers of the server: %w", ctx.Err())
	}
}

// awaitServer is Server of a connection that stands. What is published while it does not is stored as soon as it does.
func (c *Conn) awaitServer(ctx context.Context) (string, error) {
	if c.nc.IsConnected() {
		return c.Server(), nil
	}
	connected := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(connected)
	for !c.nc.IsConnected() {
		select {
		case <-connected:
		case <-c.closed:
			return "", nats.ErrConnectionClosed
		case <-ctx.Done():
			return "", fmt.Errorf("wait for a connection: %w", ctx.Err())
		}
	}
	return c.Server(), nil
}

// lookAtConsumers puts consumers back that are ahead, unless somebody with the same rights has done so in this process of the server.
func (c *Conn) lookAtConsumers(server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), puttingInPlace)
	defer cancel()
	go func() {
		select {
		case <-c.closed:
			cancel()
		case <-ctx.Done():
		}
	}()
	noted, err := c.Note(ctx, c.inPlaceNote())
	switch denied := errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}); {
	case err != nil && !denied:
		return fmt.Errorf("look whether consumers are ahead of their streams: %w", err)
	case denied || string(noted) == server:
		c.areInPlace(server)
		return nil
	}
	if err := c.putAllBack(ctx); err != nil {
		return err
	}
	c.areInPlace(server)
	if err := c.SetNote(ctx, c.inPlaceNote(), []byte(server)); err != nil {
		c.log.Debug("that consumers are where their streams are is looked at again by others", "error", err)
	}
	return nil
}

// inPlaceNote is the name of the note with the process of the server whose consumers somebody has looked at, who has the same rights.
func (c *Conn) inPlaceNote() string { return "in_place_" + wire.NameToken(c.user) }

func (c *Conn) areInPlace(server string) {
	c.inPlace.lost.Store(0)
	c.inPlace.process.Store(&server)
}

// putAllBack puts consumers back that are ahead, as far as this user may. What cannot be mended by trying again is said.
func (c *Conn) putAllBack(ctx context.Context) error {
	since := time.UnixMilli(c.Now()).Add(-forgotten)
	if lost := c.inPlace.lost.Load(); lost > 0 {
		since = time.UnixMilli(lost).Add(-startedBefore)
	}
	for _, z := range Rebuildable {
		back, err := c.PutBack(ctx, z, since)
		if len(back) > 0 {
			c.log.Info("the server was started again; these consumers deliver again what they may have passed over", "consumers", back)
		}
		switch {
		case err == nil, errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}): // there is no such stream
		case errors.Is(err, ErrAhead):
			c.log.Warn("consumers pass over what comes next; an operator can set them back: nats consumer reset", "error", err)
		case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
			c.log.Warn("nobody looks whether consumers are ahead of a stream; agentd nats-config has the rights that are missing", "error", err)
		default:
			return err
		}
	}
	return nil
}

// ErrAhead is that consumers are ahead of their stream, and could not be set back.
var ErrAhead = errors.New("a consumer is ahead of its stream, whose end the server has lost, and passes over what comes next")

// PutBack has the consumers of a zone deliver what has been published since a time when the server had not been started yet, where they may
// have passed over some of it, and names them: those that are ahead of their stream. What the server publishes itself, as it does when a timer is
// due, does not wait until somebody has looked, so all that have got beyond the first of it deliver it again. It needs a server of 2.14. Errors:
// ErrAhead, of each that could not be set back; or that it is not known of all whether they are ahead.
func (c *Conn) PutBack(ctx context.Context, z Zone, since time.Time) (back []string, err error) {
	layout, err := c.Layout(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, part := range layout.Zones(z) {
		some, err := c.putBack(ctx, part, since)
		back = append(back, some...)
		if err != nil && !errors.Is(err, ErrAhead) {
			return back, err
		}
		problems = append(problems, err)
	}
	return back, errors.Join(problems...)
}

// putBack is PutBack of one stream.
func (c *Conn) putBack(ctx context.Context, part Zone, since time.Time) (back []string, err error) {
	readers, err := c.Readers(ctx, part)
	if err != nil {
		return nil, err
	}
	if Zone(wholeName(string(part))) != ZoneTimer {
		bounds, err := c.Bounds(ctx, part) // it is looked at last: what they had delivered by then has been stored by then
		if err != nil {
			return nil, err
		}
		readers = slices.DeleteFunc(readers, func(r Reader) bool { return r.Delivered <= bounds.Last })
	}
	if len(readers) == 0 {
		return nil, nil
	}
	first, err := c.SequenceAt(ctx, part, since)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, r := range readers {
		if r.Delivered < first {
			continue
		}
		name, to := StreamName(c.subjects, part)+"."+r.Name, min(r.Floor+1, first)
		bounded, explain, stop := c.refusals.until(ctx, "$JS.API.CONSUMER.RESET."+name)
		_, err := c.js.ResetConsumerToSequence(bounded, StreamName(c.subjects, part), r.Name, to)
		stop()
		if err != nil {
			problems = append(problems, fmt.Errorf("%w: set %s back to sequence %d: %w", ErrAhead, name, to, explain(err)))
			continue
		}
		back = append(back, name)
	}
	return back, errors.Join(problems...)
}
