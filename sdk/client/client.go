package client

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"agentd/internal/broker"
	"agentd/internal/signature"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Conn is what a Client talks over. Connect makes one; New takes one that exists. Its methods may be called concurrently.
type Conn interface {
	Subjects() wire.Subjects
	// Start publishes an init event for an agent, as the connection's principal.
	Start(ctx context.Context, agent string, event wire.Event) error
	// Control publishes a control message to a run, as a principal or as nobody in particular, which operators may.
	Control(ctx context.Context, verb wire.ControlVerb, agent string, run wire.RunKey, who string, event wire.Event) error
	// Reply publishes a person's answer on a reply subject, beside those that are there.
	Reply(ctx context.Context, subject string, event wire.Event) error
	// WaitDone returns the terminal event of a run.
	WaitDone(ctx context.Context, agent string, run wire.RunKey, init string) (wire.Event, error)
	// Ask asks an agent's workers and decodes the answer. The error is sdk.CodeUnavailable when none is there, and
	// sdk.CodePermissionDenied when the connection's principal may not see the run.
	Ask(ctx context.Context, agent string, query wire.Query, answer any) error
	// WatchLive calls handle with the live events of a run until it is stopped, and lets workers know that they are read before it
	// returns. missed, which does not wait, is called when some may have been missed, as after the connection was lost, with nil; and with
	// sdk.CodePermissionDenied when none come, as the connection's principal may not listen to them.
	WatchLive(agent string, run wire.RunKey, handle func(wire.Live), missed func(refused error)) (stop func() error, err error)
}

// InProcess is a NATS server in this process, such as an sdktest.Harness.
type InProcess interface{ InProcessConn() (net.Conn, error) }

// Options say where the broker is and who the client is. The zero value is NATS on this machine without a login.
type Options struct {
	// URL is a comma-separated list of NATS servers; empty is nats://127.0.0.1:4222. InProcess is used in its place.
	URL       string
	InProcess InProcess
	// Creds, NKey, CA, Cert and Key are paths of files: credentials or the seed of an nkey; the authorities that the server's
	// certificate must be of, in place of the system's; and the client's own certificate.
	Creds, NKey, CA, Cert, Key string
	// Root is the first token of every subject; empty is "agentd".
	Root string
	// As is the principal under which the client starts runs and answers; empty is anonymous. The broker enforces it: in a
	// configuration made by `agentd nats-config` it is the name of the NATS user.
	As string
	// SigningKey signs decisions; nil signs none. Permission requests may ask for signed ones.
	SigningKey ed25519.PrivateKey
	// Source is what the client calls itself in events; empty is "agentd.client".
	Source string
	// Name shows in the server's list of connections.
	Name string
	// Patience is how long Send, Answer and Decide wait for what becomes of what they sent; 0 is 10 s.
	Patience time.Duration
	// Logger is told of lost connections; nil is nobody.
	Logger *slog.Logger
}

const (
	defaultURL    = "nats://127.0.0.1:4222"
	defaultSource = "agentd.client"
	// defaultPatience: a worker that is there takes a moment.
	defaultPatience = 10 * time.Second
)

// FromEnvironment returns options from NATS_URL, NATS_CREDS, NATS_NKEY, NATS_CA, NATS_CERT, NATS_KEY and AGENTD_ROOT.
func FromEnvironment() Options {
	l := broker.LoginFromEnvironment()
	return Options{
		URL: os.Getenv("NATS_URL"), Root: os.Getenv("AGENTD_ROOT"),
		Creds: l.Creds, NKey: l.NKey, CA: l.CA, Cert: l.Cert, Key: l.Key,
	}
}

// Client starts and follows runs. Safe for concurrent use.
type Client struct {
	conn     Conn
	as       string
	source   string
	patience time.Duration
	signer   *signature.Signer
	// blind is that the client may not read dead letters: it does not try again.
	blind *atomic.Bool
	close func() error
}

// Connect connects to NATS; the caller closes the client. It fails when no server answers before ctx ends, with
// sdk.CodeUnavailable, and with sdk.CodeConfig when the server is too old. Later the client reconnects for ever.
func Connect(ctx context.Context, o Options) (*Client, error) {
	subjects, err := wire.NewSubjects(cmp.Or(o.Root, wire.DefaultRoot))
	if err != nil {
		return nil, err
	}
	conn, err := broker.Connect(ctx, broker.ConnectOptions{
		URL: cmp.Or(o.URL, defaultURL), InProcess: o.InProcess, Login: broker.Login{Creds: o.Creds, NKey: o.NKey, CA: o.CA, Cert: o.Cert, Key: o.Key},
		Name: o.Name, Who: o.As, Subjects: subjects, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	c := New(conn, o)
	c.close = conn.Close
	return c, nil
}

// New returns a client on a connection that stays its caller's. Of the options it takes As, SigningKey, Source and Patience; As must be
// the connection's own principal. Without a connection it panics.
func New(conn Conn, o Options) *Client {
	if conn == nil {
		panic("client: a client of no connection")
	}
	c := &Client{
		conn: conn, as: o.As, source: cmp.Or(o.Source, defaultSource), patience: cmp.Or(o.Patience, defaultPatience),
		blind: &atomic.Bool{}, close: func() error { return nil },
	}
	if o.SigningKey != nil {
		c.signer = signature.NewSigner(o.SigningKey)
	}
	return c
}

// Close ends the connection that Connect made. What waits, such as Wait and Follow, ends with it, and so does every later call: the error is
// sdk.CodeUnavailable, and not retryable. Runs go on.
func (c *Client) Close() error { return c.close() }

// newID is an event id that nobody else has.
func newID(kind string) string { return kind + "-" + strings.ToLower(rand.Text()) }

// coded gives an error of a connection a code, unless the caller's own context has ended. The broker's deadlines are not the caller's.
func coded(ctx context.Context, err error) error {
	_, has := errors.AsType[*sdk.Error](err)
	switch {
	case err == nil, has, ctx.Err() != nil:
		return err
	case broker.Closed(err):
		return sdk.Errorf(sdk.CodeUnavailable, "the connection to NATS was closed").WithCause(err)
	case broker.Unanswered(err):
		return &sdk.Error{Code: sdk.CodeUnavailable, Message: "nobody answers: NATS cannot be reached, or who is asked there", Retryable: true}
	}
	return err
}

// isClosed reports whether an error is that of a closed connection.
func isClosed(err error) bool { return broker.Closed(err) }

// isUnavailable reports whether an error passes when somebody answers again.
func isUnavailable(err error) bool {
	return errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) && !isClosed(err)
}

func badRequest(format string, args ...any) error {
	return sdk.Errorf(sdk.CodeInvalidEvent, "%s", fmt.Sprintf(format, args...))
}
