package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	neturl "net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/address"
	"agentd/internal/broker/gather"
	"agentd/internal/broker/leader"
	"agentd/internal/broker/streams"
	"agentd/internal/clock"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// minServer is the oldest server with scheduled messages.
var minServer = [2]int{2, 12}

// ConnectOptions say where the broker is.
type ConnectOptions struct {
	// URL is a comma-separated list of servers; InProcess is one in this process instead.
	URL       string
	InProcess InProcess
	Login
	// Proof is shown in place of a password, and of every other way to log in that Login and URL have: that Who has logged in elsewhere,
	// which a program that the server asks understands (package callout).
	Proof string
	// Name shows in the server's list of connections.
	Name string
	// Who is the principal under which init events and control messages are published, as the last token of their subject;
	// empty is nobody in particular.
	Who      string
	Subjects wire.Subjects
	Logger   *slog.Logger
	// Wait keeps trying when no server is there at first, as workers do.
	Wait bool
	// Waits, unless nil, is told when a request has waited for a second for a leader, as it does while the servers of a cluster elect
	// one, and for what. Otherwise it is logged.
	Waits func(what string, err error)
	// Clock is this process's own; nil is time.Now. What it says is corrected: see Conn.Now.
	Clock func() time.Time
}

// InProcess is a NATS server in this process.
type InProcess interface{ InProcessConn() (net.Conn, error) }

// Conn is a connection that reconnects for ever. Safe for concurrent use.
type Conn struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	subjects wire.Subjects
	// user is the name that it connected with; who its principal.
	user, who string
	log       *slog.Logger
	// embedded is set when the server is in this process.
	embedded bool
	refusals refusals
	own      ownClock
	// broker is its clock as far as it was measured.
	broker clock.Clock
	// closed is closed when the connection is gone for good.
	closed  chan struct{}
	contact contact
	inPlace inPlace
	// looking are those who look at the servers of the list, and whether the one that it is connected to is cut off.
	looking sync.WaitGroup
	// waits is ConnectOptions.Waits.
	waits func(what string, err error)
	// layout is how streams are divided; nil is not known yet.
	layout atomic.Pointer[streams.Layout]
}

// Connect connects and checks the server's version. Its inboxes have a prefix of their own: acknowledgements must not be
// where others can guess them.
func Connect(ctx context.Context, o ConnectOptions) (*Conn, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	user, err := o.user()
	if err != nil {
		return nil, err
	}
	c := &Conn{
		subjects: o.Subjects, user: user, who: o.Who, log: o.Logger, embedded: o.InProcess != nil, own: newOwnClock(o.Clock),
		closed: make(chan struct{}), waits: o.Waits,
	}
	if c.waits == nil {
		c.waits = func(what string, err error) {
			c.log.Warn("no server answers for it; waiting", "what", what, "error", err)
		}
	}
	url, login, err := o.shown()
	if err != nil {
		return nil, err
	}
	options := append(c.options(&o), login...)
	if o.InProcess != nil {
		url, options = "", append(options, nats.InProcessServer(gather.Server{InProcessConnProvider: o.InProcess}))
	}
	if c.nc, err = nats.Connect(url, options...); err != nil {
		if _, unreadable := errors.AsType[*neturl.Error](err); unreadable { // whose text repeats the URL
			err = errors.New("want nats://USER:PASSWORD@HOST:PORT, with characters such as / and @ of the password as %2F and %40")
		}
		return nil, sdk.Errorf(sdk.CodeUnavailable, "no connection to NATS at %q", address.Hide(o.URL)).WithCause(err)
	}
	if err := c.ready(ctx, o.URL); err != nil {
		c.nc.Close()
		return nil, err
	}
	js, err := jetstream.New(c.nc, jetstream.WithDefaultTimeout(5*time.Second))
	if err != nil {
		c.nc.Close()
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	c.js = followed{
		JetStream: refusable{js, &c.refusals}, contact: &c.contact, heard: &c.contact.reads,
		waits: c.waits, leave: c.leave, streamOf: c.streamOf, publishable: c.publishable,
	}
	if o.Wait {
		c.tellAway(o.URL)
	}
	if !c.embedded {
		c.looking.Go(c.lookAround)
	}
	return c, nil
}

// options are those of every connection, beside who it logs in as.
func (c *Conn) options(o *ConnectOptions) []nats.Option {
	return []nats.Option{
		nats.Name(o.Name), nats.MaxReconnects(-1), nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, time.Second), nats.RetryOnFailedConnect(o.Wait),
		nats.PingInterval(pingEvery), nats.MaxPingsOutstanding(pingsLost), nats.CustomInboxPrefix(InboxPrefix(c.subjects, c.user)),
		// Credentials may be refused for the minutes in which an operator rolls out new ones.
		nats.IgnoreAuthErrorAbort(),
		nats.SetCustomDialer(&gather.Dialer{Dialer: net.Dialer{Timeout: nats.DefaultTimeout}}),
		nats.ClosedHandler(func(*nats.Conn) { close(c.closed) }),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			c.disconnected()
			if err != nil {
				c.log.Warn("connection to NATS is lost", "error", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			c.cameBack()
			c.reconnected()
			c.log.Info("connected to NATS again", "url", address.Hide(nc.ConnectedUrl()))
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			if c.refusals.report(err) {
				return // whoever asked says it
			}
			c.log.Error("NATS reports an error", "subject", subject, "error", err)
		}),
	}
}

// user is the name of the user that the connection becomes.
func (o *ConnectOptions) user() (string, error) {
	if o.Proof != "" {
		return o.Who, nil
	}
	return UserName(o.URL, o.Login)
}

// shown is what the server is shown of who connects, with the URL that goes with it.
func (o *ConnectOptions) shown() (url string, options []nats.Option, err error) {
	l := o.Login
	if o.Proof != "" {
		l.Creds, l.NKey = "", ""
	}
	if options, err = l.options(); err != nil || o.Proof == "" {
		return o.URL, options, err
	}
	servers := address.Servers(o.URL)
	for i, server := range servers {
		servers[i] = address.WithoutLogin(server)
	}
	return strings.Join(servers, ","), append(options, nats.Token(o.Proof)), nil
}

// reportWaiting is how often somebody is told that the server is still missing.
const reportWaiting = 10 * time.Second

// ready waits until the connection stands, then checks the version.
func (c *Conn) ready(ctx context.Context, url string) error {
	connected := c.nc.StatusChanged(nats.CONNECTED)
	defer c.nc.RemoveStatusListener(connected)
	report := time.NewTicker(reportWaiting)
	defer report.Stop()
	if !c.nc.IsConnected() {
		c.log.Warn("NATS cannot be reached yet; waiting for it", "url", address.Hide(url))
	}
	reason := func() string {
		if err := c.nc.LastError(); err != nil {
			return err.Error()
		}
		return "no server listens there"
	}
	for !c.nc.IsConnected() {
		select {
		case <-connected:
		case <-report.C:
			c.log.Warn("NATS still cannot be reached; of a cluster, give the URLs of all servers", "url", address.Hide(url), "error", reason())
		case <-c.closed:
			return fmt.Errorf("connect to NATS: %w", nats.ErrConnectionClosed)
		case <-ctx.Done():
			return fmt.Errorf("connect to NATS: %w", errors.Join(ctx.Err(), c.nc.LastError()))
		}
	}
	return c.checkVersion()
}

func (c *Conn) checkVersion() error {
	if !c.serverIs(minServer) {
		return sdk.Errorf(sdk.CodeConfig, "the NATS server is %s; agentd needs %d.%d or newer, because its timers are scheduled messages",
			c.nc.ConnectedServerVersion(), minServer[0], minServer[1])
	}
	return nil
}

// serverIs reports whether the server is of a version, or newer.
func (c *Conn) serverIs(oldest [2]int) bool {
	var is [2]int
	_, err := fmt.Sscanf(c.nc.ConnectedServerVersion(), "%d.%d", &is[0], &is[1])
	return err == nil && slices.Compare(is[:], oldest[:]) >= 0
}

// Subjects are those of this connection's root.
func (c *Conn) Subjects() wire.Subjects { return c.subjects }

// JetStream is for internal/state, which keeps journals in the same broker.
func (c *Conn) JetStream() jetstream.JetStream { return c.js }

// Impatient is a JetStream that waits for no election, and leaves no server: for who examines servers.
func (c *Conn) Impatient() (jetstream.JetStream, error) {
	js, err := jetstream.New(c.nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	return refusable{js, &c.refusals}, nil
}

// Embedded reports whether the server is in this process.
func (c *Conn) Embedded() bool { return c.embedded }

// User is the name that it connected with; empty is none.
func (c *Conn) User() string { return c.user }

// Connected reports whether the connection stands now.
func (c *Conn) Connected() bool { return c.nc.IsConnected() }

// ServerVersion is the version of the server connected to.
func (c *Conn) ServerVersion() string { return c.nc.ConnectedServerVersion() }

// Close drains the connection: what was published is flushed first. It may be repeated.
func (c *Conn) Close() error {
	err := c.nc.Drain()
	switch {
	case err == nil:
	case errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrConnectionReconnecting):
		// No server to drain to. Nothing is lost: publishing returns only when the broker has confirmed.
		c.nc.Close()
	default:
		c.nc.Close()
		return fmt.Errorf("drain connection: %w", err)
	}
	<-c.closed
	c.looking.Wait()
	return nil
}

// Closed reports whether an error says that the connection was closed, or is being closed: no further try can succeed.
func Closed(err error) bool {
	return errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionDraining)
}

// Unanswered reports whether an error says that nobody answered. What became of the request is unknown.
func Unanswered(err error) bool { return leader.Unanswered(err) }

// flush waits until the server has read what was sent before. nats.Conn.Flush calls a connection closed that was only lost meanwhile.
func (c *Conn) flush() error {
	err := c.nc.Flush()
	if Closed(err) && !c.nc.IsClosed() {
		return nats.ErrDisconnected
	}
	return err
}
