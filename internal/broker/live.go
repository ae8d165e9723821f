package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Live sends a live event to whoever listens now. It is lossy: a client that falls behind asks for what it missed.
func (c *Conn) Live(event wire.Live) {
	if !c.nc.IsConnected() {
		return // else it would wait in a buffer, and arrive when it has ceased to be true
	}
	if event.Ephemeral {
		event.ID = nuid.Next()
	}
	data, err := json.Marshal(event)
	if err == nil {
		err = c.nc.PublishMsg(&nats.Msg{
			Subject: c.subjects.Live(event.Agent, wire.NewRunKey(event.Run)), Data: data,
			Header: nats.Header{headerContentType: {wire.ContentTypeStructured}},
		})
	}
	if err != nil {
		c.log.Debug("live event is lost", "run", event.Run, "type", event.Type, "error", err)
	}
}

// WatchLive calls handle with the live events of a run, of all runs of an agent where run is zero, or of all agents where agent is
// empty too, until stop is called. Workers know of it when WatchLive returns, so that who starts a run then misses nothing of it.
// Events that handle is too slow for are lost. missed is called when others may have been, and when the connection is closed, with nil; and
// with CodePermissionDenied when none come, as the server refuses them to this user. It may be called by two goroutines and must not wait.
func (c *Conn) WatchLive(agent string, run wire.RunKey, handle func(wire.Live), missed func(refused error)) (stop func() error, err error) {
	filter := c.subjects.LiveFilter(agent, run)
	forget := c.refusals.heard(filter, missed)
	stopLive, err := c.subscribe(filter, c.decodeLive(handle))
	if err != nil {
		forget()
		return nil, err
	}
	stopAnnouncing, err := c.AnnounceWatch(agent, run, func() { missed(nil) })
	if err != nil {
		forget()
		return nil, errors.Join(err, stopLive())
	}
	return func() error {
		forget()
		return errors.Join(stopAnnouncing(), stopLive())
	}, nil
}

// AnnounceWatch tells workers that live events are read, until stop is called: it is what WatchLive does for those who listen
// already.
func (c *Conn) AnnounceWatch(agent string, run wire.RunKey, missed func()) (stop func() error, err error) {
	return c.announceEach(wire.WatchEvery, c.subjects.Watch(agent, run), missed)
}

func (c *Conn) announceEach(every time.Duration, subject string, missed func()) (stop func() error, err error) {
	w := &watching{c: c, subject: subject, every: every, missed: missed, asked: make(chan struct{}, 1)}
	stopAsked, err := c.subscribe(c.subjects.WatchAsk(), func(*nats.Msg) {
		select {
		case w.asked <- struct{}{}:
		default: // it answers as it is
		}
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.try(ctx)
	w.announce()
	if err := c.flush(); err != nil {
		w.forget()
		cancel()
		return nil, errors.Join(fmt.Errorf("announce that live events are read: %w", err), stopAsked())
	}
	w.changed = c.nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	var renewing sync.WaitGroup
	renewing.Go(func() { w.renew(ctx) })
	return sync.OnceValue(func() error {
		cancel()
		renewing.Wait()
		w.forget()
		return stopAsked()
	}), nil
}

// decodeLive passes live events on.
func (c *Conn) decodeLive(handle func(wire.Live)) nats.MsgHandler {
	from := strings.TrimSuffix(c.subjects.All(wire.KindStream), ">")
	return func(m *nats.Msg) {
		// Whoever may make a consumer may have the server deliver its messages here: they keep the subject that they came on.
		if !strings.HasPrefix(m.Subject, from) {
			c.log.Warn("message of another kind among live events", "subject", m.Subject)
			return
		}
		var event wire.Live
		if err := json.Unmarshal(m.Data, &event); err != nil {
			c.log.Debug("live event cannot be read", "subject", m.Subject, "error", err)
			return
		}
		handle(event)
	}
}

// watching announces that live events are read.
type watching struct {
	c       *Conn
	subject string
	every   time.Duration
	missed  func()
	// asked has a token when a worker wants to know who watches, and changed one when the connection is there again, or closed.
	asked   chan struct{}
	changed chan nats.Status
	// refused is closed when the server refuses the announcement, and nil when that is known; forget ends listening for it.
	refused <-chan struct{}
	forget  func()
}

// try has it known when the server refuses the announcement from now on.
func (w *watching) try(ctx context.Context) {
	permitted, _, forget := w.c.refusals.until(ctx, w.subject)
	w.refused, w.forget = permitted.Done(), forget
}

func (w *watching) announce() {
	if !w.c.nc.IsConnected() {
		return // it is announced once the connection is there again
	}
	if err := w.c.nc.Publish(w.subject, nil); err != nil {
		w.c.log.Debug("workers are not told that live events are read", "subject", w.subject, "error", err)
	}
}

// renew announces it again and again. What was told before all workers knew was missed: between servers, an announcement may be
// slower than the message that starts a run, so that is looked for once more when it has surely come. Over a connection on which the server
// refuses it, nothing more is announced: workers tell always where nobody may (see AskWatchers).
func (w *watching) renew(ctx context.Context) {
	defer w.c.nc.RemoveStatusListener(w.changed)
	ticker := time.NewTicker(w.every)
	defer ticker.Stop()
	known, last := false, time.Now()
	for {
		lost := false
		select {
		case <-ctx.Done():
			return
		case <-w.refused:
			w.refused = nil
			ticker.Stop()
			continue
		case <-ticker.C:
			lost, known = !known || time.Since(last) > wire.WatchLasts, true
		case <-w.asked:
			lost, known = true, false
		case now := <-w.changed:
			if now == nats.CLOSED {
				w.missed() // and whoever asks for it learns why
				return
			}
			w.forget()
			w.try(ctx)
			ticker.Reset(w.every)
			lost, known = true, false
		}
		w.announce()
		last = time.Now()
		if lost {
			w.missed()
		}
	}
}

// OnWatch calls handle, one call at a time, for every announcement that live events are read, until stop is called: of a run, of all
// runs of an agent (its token) where run is zero, or of all agents where agent is empty too. unread reports whether there are any that
// handle has not returned from; it knows of all that the connection has read. lost is called after some were dropped,
// because more came than handle could take.
func (c *Conn) OnWatch(handle func(agent string, run wire.RunKey), lost func()) (unread func() bool, stop func() error, err error) {
	dropped := 0
	sub, err := c.nc.Subscribe(c.subjects.Watches(), func(m *nats.Msg) {
		if a, err := c.subjects.Parse(m.Subject); err == nil {
			handle(a.Agent, a.Run)
		}
		if n, err := m.Sub.Dropped(); err == nil && n > dropped {
			dropped = n
			lost()
		}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("listen for watchers: %w", err)
	}
	if err := sub.SetPendingLimits(mostUnread, mostUnreadBytes); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen for watchers: %w", err), sub.Unsubscribe())
	}
	unread = func() bool {
		n, _, err := sub.Pending()
		return err != nil || n > 0
	}
	return unread, sub.Unsubscribe, nil
}

const (
	// mostUnread and mostUnreadBytes bound the announcements that wait to be read.
	mostUnread      = 4096
	mostUnreadBytes = 1 << 20
	// answering is how long watchers have to answer when a worker asks who they are.
	answering = time.Second
)

// AskWatchers has all watchers announce again what they read, and returns when they have had the time for it: at once, when there are
// none. CodePermissionDenied says that this user may not ask, as in the files of older versions of agentd nats-config: nobody may
// announce anything then.
func (c *Conn) AskWatchers(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, answering)
	defer stop()
	ctx, explain, forget := c.refusals.until(ctx, c.subjects.WatchAsk())
	defer forget()
	// They see the reply subject, so it is one of its own. On it, the server says that there are none; they themselves announce.
	inbox := c.nc.NewInbox()
	none, err := c.nc.SubscribeSync(inbox)
	if err != nil {
		return fmt.Errorf("ask who watches: %w", err)
	}
	if err := c.nc.PublishRequest(c.subjects.WatchAsk(), inbox, nil); err != nil {
		return errors.Join(fmt.Errorf("ask who watches: %w", err), none.Unsubscribe())
	}
	_, err = none.NextMsgWithContext(ctx)
	if err = explain(err); !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
		err = nil // there are none, or they have had their time
	}
	return errors.Join(err, none.Unsubscribe())
}

// subscribe is nats.Conn.Subscribe. A subscription whose connection is closed has ended with it.
func (c *Conn) subscribe(subject string, handle nats.MsgHandler) (stop func() error, err error) {
	s, err := c.nc.Subscribe(subject, handle)
	if err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, err)
	}
	return func() error {
		if err := s.Unsubscribe(); !Closed(err) && !errors.Is(err, nats.ErrBadSubscription) {
			return err
		}
		return nil
	}, nil
}
