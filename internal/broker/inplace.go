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

	"agentd/internal/atonce"
	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/sdk"
	"agentd/sdk/wire"
)

const (
	// forgotten is how long ago the server may have stored what it has forgotten, as far as a connection knows that was to no process of it before.
	forgotten = 2 * time.Hour
	// startedBefore is how long before a connection is lost another process of the server may have been started: who is told nothing notices it late.
	startedBefore = 15 * time.Second
	// puttingInPlace bounds one look at all consumers: some requests for each of up to 513 streams.
	puttingInPlace = 2 * time.Minute
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

// cameBack notes that the connection was lost to no other process.
func (c *Conn) cameBack() {
	if looked := c.inPlace.process.Load(); looked != nil && *looked == c.nc.ConnectedServerId() {
		c.inPlace.lost.Store(0)
	}
}

// publishable waits until a subject may be published on: for a connection, and until no consumer of its stream is ahead.
func (c *Conn) publishable(ctx context.Context, subject string) error {
	if c.looked(c.nc.ConnectedServerId()) || !slices.Contains(streams.Rebuildable, streams.Layout{}.ZoneOf(subject)) {
		return nil
	}
	for {
		server, err := c.awaitServer(ctx)
		if err != nil || server == "" || c.looked(server) {
			return err
		}
		select {
		case looked := <-c.inPlace.looking.DoChan(server, func() (any, error) { return nil, c.lookAtConsumers(server) }):
			if looked.Err != nil {
				return looked.Err
			}
		case <-ctx.Done():
			return fmt.Errorf("look at the consumers of the server: %w", ctx.Err())
		}
	}
}

// looked reports whether consumers have been looked at in a process of the server.
func (c *Conn) looked(server string) bool {
	process := c.inPlace.process.Load()
	return process != nil && *process == server
}

// awaitServer is Server of a connection that stands. What is published while it does not is stored as soon as it does.
func (c *Conn) awaitServer(ctx context.Context) (string, error) {
	if server, stands := c.standing(); stands {
		return server, nil
	}
	connected := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(connected)
	for {
		if server, stands := c.standing(); stands {
			return server, nil
		}
		select {
		case <-connected:
		case <-c.closed:
			return "", nats.ErrConnectionClosed
		case <-ctx.Done():
			return "", fmt.Errorf("wait for a connection: %w", ctx.Err())
		}
	}
}

// standing is Server, and whether the connection stands.
func (c *Conn) standing() (server string, stands bool) {
	if c.nc.ConnectedClusterName() != "" {
		return "", true
	}
	server = c.nc.ConnectedServerId()
	return server, server != ""
}

// lookAtConsumers puts consumers back that are ahead, unless somebody with the same rights has done so in this process of the server.
func (c *Conn) lookAtConsumers(server string) error {
	ctx, cancel := context.WithTimeout(context.Background(), puttingInPlace)
	defer cancel()
	stop := c.untilClosed(cancel)
	defer stop()
	noted, err := c.Note(ctx, c.inPlaceNote())
	switch {
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		c.areInPlace(server)
		return nil
	case err != nil && !NotProvisioned(err):
		return fmt.Errorf("look whether consumers are ahead of their streams: %w", err)
	case string(noted) == server:
		c.areInPlace(server)
		return nil
	}
	if err := c.putAllBack(ctx); err != nil {
		return err
	}
	if c.areInPlace(server) {
		go c.noteInPlace(server) // nobody waits for it
	}
	return nil
}

// untilClosed cancels when the connection is closed, until stop is called.
func (c *Conn) untilClosed(cancel func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-c.closed:
			cancel()
		case <-done:
		}
	}()
	return func() { close(done) }
}

// inPlaceNote is the name of the note with the process of the server whose consumers somebody has looked at, who has the same rights.
func (c *Conn) inPlaceNote() string { return "in_place_" + wire.NameToken(c.user) }

// noteInPlace has others with the same rights not look again. Who misses it does.
func (c *Conn) noteInPlace(server string) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	stop := c.untilClosed(cancel)
	defer stop()
	ctx, explain, end := c.refusals.until(ctx, c.leaseSubject(c.inPlaceNote()))
	defer end()
	if err := c.SetNote(ctx, c.inPlaceNote(), []byte(server)); err != nil {
		c.log.Debug("that consumers are where their streams are is looked at again by others", "error", explain(err))
	}
}

// areInPlace notes that the consumers of a process have been looked at, unless the connection has another one by now.
func (c *Conn) areInPlace(server string) bool {
	if c.nc.ConnectedServerId() != server {
		return false
	}
	c.inPlace.lost.Store(0)
	c.inPlace.process.Store(&server)
	return true
}

// putAllBack puts consumers back that are ahead, as far as this user may. What cannot be mended by trying again is said.
func (c *Conn) putAllBack(ctx context.Context) error {
	since := time.UnixMilli(c.Now()).Add(-forgotten)
	if lost := time.UnixMilli(c.inPlace.lost.Load()).Add(-startedBefore); lost.After(since) {
		since = lost
	}
	back, err := c.putBack(ctx, since, streams.Rebuildable...)
	if len(back) > 0 {
		c.log.Info("consumers deliver again what they may have passed over in another process of the server", "consumers", back)
	}
	switch {
	case errors.Is(err, errAhead):
		c.log.Warn("consumers pass over what comes next; an operator can set them back: nats consumer reset", "error", err)
	case errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
		c.log.Warn("nobody looks whether consumers are ahead of a stream; agentd nats-config has the rights that are missing", "error", err)
	default:
		return err
	}
	return nil
}

// errAhead is that consumers are ahead of their stream, and could not be set back.
var errAhead = errors.New("a consumer is ahead of its stream, whose end the server has lost, and passes over what comes next")

// putBack has the consumers of zones deliver what has been published since a time when the server had not been started yet, where they may
// have passed over some of it, and names them: those that are ahead of their stream. What the server publishes itself, as it does when a timer is
// due, does not wait until somebody has looked, so all that have got beyond the first of it deliver it again. Streams that are not there have none.
// Errors: errAhead, and CodePermissionDenied where this user may not look, of all of them; or that it is not known whether they are ahead.
func (c *Conn) putBack(ctx context.Context, since time.Time, zones ...streams.Zone) (back []string, err error) {
	layout, err := c.Layout(ctx)
	if err != nil {
		return nil, err
	}
	var parts []streams.Zone
	for _, z := range zones {
		parts = append(parts, layout.Zones(z)...)
	}
	type seen struct {
		back    []string
		problem error
	}
	all, err := atonce.Take(len(parts), func(i int) (seen, error) {
		back, err := c.putBackIn(ctx, parts[i], since)
		switch {
		case errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}):
			return seen{}, nil
		case errors.Is(err, errAhead), errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}):
			return seen{back, err}, nil
		}
		return seen{back, nil}, err
	})
	var problems []error
	for _, one := range all {
		back, problems = append(back, one.back...), append(problems, one.problem)
	}
	return back, errors.Join(append(problems, err)...)
}

// putBackIn is putBack of one stream.
func (c *Conn) putBackIn(ctx context.Context, part streams.Zone, since time.Time) (back []string, err error) {
	readers, err := c.Readers(ctx, part)
	if err != nil {
		return nil, err
	}
	bounds, err := c.Bounds(ctx, part) // it is looked at last: what they had delivered by then has been stored by then
	if err != nil {
		return nil, err
	}
	ahead := func(r Reader) bool { return r.Delivered > bounds.Last }
	if streams.Whole(part) != streams.Timer || !c.resets() {
		readers = slices.DeleteFunc(readers, func(r Reader) bool { return !ahead(r) })
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
		name, to := streams.Name(c.subjects, part)+"."+r.Name, min(r.Floor+1, first)
		switch err := c.reset(ctx, part, r.Name, to); {
		case err == nil:
			back = append(back, name)
		case ahead(r):
			problems = append(problems, fmt.Errorf("%w: set %s back to sequence %d: %w", errAhead, name, to, err))
		default:
			c.log.Debug("timers that came before anybody looked at their consumer do not come again", "consumer", name, "error", err)
		}
	}
	return back, errors.Join(problems...)
}

// resettingServer is the oldest server that sets consumers back.
var resettingServer = [2]int{2, 14}

func (c *Conn) resets() bool { return c.serverIs(resettingServer) }

// Refillable reports whether workers would notice that the server with the streams was started again (see Server), and could have consumers
// that are ahead of a stream deliver what it gets back.
func (c *Conn) Refillable() bool {
	held, _ := c.nc.ConnectedServerJetStream()
	return held && !leader.Clustered(c.js) && c.resets()
}

// reset sets a consumer back to a sequence. An older server does not answer who asks it to.
func (c *Conn) reset(ctx context.Context, part streams.Zone, consumer string, to uint64) error {
	if !c.resets() {
		return sdk.Errorf(sdk.CodeConfig, "the NATS server is %s; %d.%d and newer ones do that", c.nc.ConnectedServerVersion(), resettingServer[0], resettingServer[1])
	}
	stream := streams.Name(c.subjects, part)
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	ctx, explain, stop := c.refusals.until(ctx, "$JS.API.CONSUMER.RESET."+stream+"."+consumer)
	defer stop()
	_, err := c.js.ResetConsumerToSequence(ctx, stream, consumer, to)
	return explain(err)
}
