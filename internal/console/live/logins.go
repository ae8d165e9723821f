package live

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"

	"agentd/internal/broker"
	"agentd/internal/console"
	"agentd/internal/desk"
	"agentd/internal/login"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Login is how people log in to a console, each as themselves.
type Login struct {
	Provider *login.Provider
	// Key seals what browsers keep, of 32 bytes; nil is one that nobody else has, so that logins end with the console.
	Key []byte
	// Connect makes a connection to the broker as a person, who shows the proof of a login. The broker says whether it counts.
	Connect func(ctx context.Context, who, proof string) (*broker.Conn, error)
}

// logins implements console.Logins.
type logins struct {
	Login
	sealing cipher.AEAD
	conn    *broker.Conn
	// desk is set when the desk is open.
	desk *desk.Desk
	log  *slog.Logger
}

func newLogins(l Login, conn *broker.Conn, d *desk.Desk, log *slog.Logger) (*logins, error) {
	if l.Key == nil {
		l.Key = make([]byte, 32)
		rand.Read(l.Key) // never fails
	}
	block, err := aes.NewCipher(l.Key)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "the key that seals logins cannot be used; make one with: agentd keys new").WithCause(err)
	}
	sealing, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("seal logins: %w", err)
	}
	return &logins{l, sealing, conn, d, log}, nil
}

// What is sealed is said with it: a login that has begun is none that has ended.
const (
	begun = "agentd console login"
	ended = "agentd console session"
)

// seal makes a text of a value that others can neither read nor change.
func (l *logins) seal(kind string, value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", fmt.Errorf("seal a login: %w", err)
	}
	sealed := l.sealing.Seal(nil, nil, data, []byte(kind)) //nolint:gosec // it makes a random nonce itself, and takes none
	return base64.RawURLEncoding.EncodeToString(sealed), nil
}

func (l *logins) unseal(kind, text string, value any) error {
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	var data []byte
	if err == nil {
		data, err = l.sealing.Open(nil, nil, sealed, []byte(kind))
	}
	if err == nil {
		err = json.Unmarshal(data, value)
	}
	if err != nil {
		return sdk.Errorf(sdk.CodePermissionDenied, "this login is not one of this console, or is over; log in again").WithCause(err)
	}
	return nil
}

// At implements console.Logins.
func (l *logins) At() string {
	if u, err := url.Parse(l.Provider.Issuer()); err == nil && u.Host != "" {
		return u.Host
	}
	return l.Provider.Issuer()
}

// Begin implements console.Logins.
func (l *logins) Begin(ctx context.Context, to string) (address, sealed string, err error) {
	address, pending, err := l.Provider.Begin(ctx, to)
	if err != nil {
		return "", "", err
	}
	sealed, err = l.seal(begun, pending)
	return address, sealed, err
}

// Finish implements console.Logins.
func (l *logins) Finish(ctx context.Context, sealed, state, code string) (session, to string, err error) {
	var pending login.Pending
	if err := l.unseal(begun, sealed, &pending); err != nil {
		return "", "", err
	}
	proof, who, err := l.Provider.Finish(ctx, pending, state, code)
	if err != nil {
		return "", "", err
	}
	l.log.Info("somebody logged in", "who", who.Who, "operator", who.Operator, "domains", who.Domains)
	session, err = l.seal(ended, proof)
	return session, pending.To, err
}

// who is whom a session is of, and the proof that it holds.
func (l *logins) who(ctx context.Context, session string) (who login.Person, proof string, err error) {
	if err := l.unseal(ended, session, &proof); err != nil {
		return who, "", err
	}
	who, err = l.Provider.Person(ctx, proof)
	return who, proof, err
}

// Person implements console.Logins.
func (l *logins) Person(ctx context.Context, session string) (console.Person, error) {
	who, _, err := l.who(ctx, session)
	if err != nil {
		return console.Person{}, err
	}
	return console.Person{
		Who: who.Who, As: who.Who + " (logged in at " + l.At() + ")", Operator: who.Operator, Domains: who.Domains, Until: who.Until,
	}, nil
}

// Desk implements console.Logins. A connection is made for each thing that is done: that takes a few milliseconds, and nothing is kept
// that outlives the login.
func (l *logins) Desk(ctx context.Context, session string) (*desk.Desk, func(), error) {
	who, proof, err := l.who(ctx, session)
	if err != nil {
		return nil, nil, err
	}
	conn, err := l.Connect(ctx, who.Who, proof)
	if err != nil {
		l.log.Warn("the broker does not let somebody in", "who", who.Who, "error", err)
		return nil, nil, sdk.Errorf(sdk.CodePermissionDenied,
			"the broker does not let you in as %s, so you may look and not decide: the server needs agentd nats-callout, and its configuration an approver of this name",
			who.Who).WithCause(err)
	}
	done := func() {
		if err := conn.Close(); err != nil {
			l.log.Warn("a connection could not be closed", "who", who.Who, "error", err)
		}
	}
	return l.desk.Over(conn), done, nil
}

// Runs implements console.Logins: over the console's own connection, which has the rights of an operator.
func (l *logins) Runs(who string) *client.Client {
	return client.New(inName{l.conn, who}, client.Options{Source: Source, As: who})
}

// inName is a connection that starts runs as somebody.
type inName struct {
	*broker.Conn
	who string
}

// Start implements client.Conn.
func (c inName) Start(ctx context.Context, agent string, event wire.Event) error {
	return c.StartAs(ctx, agent, c.who, event)
}
