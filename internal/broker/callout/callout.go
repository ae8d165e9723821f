// Package callout lets people who have no NATS user of their own connect to a server, each into their own account: the server asks this
// program who shows a proof of a login instead of a password, and it answers with a user of that account (auth callout).
//
// The key that signs the answers can let anybody in as anybody, into the account of the streams too. It belongs to this program
// alone: a console that had it would be everybody.
package callout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"agentd/internal/broker"
	"agentd/sdk"
)

// life is how long a connection counts. Whoever was taken out of a group has no further one.
const life = 15 * time.Minute

const (
	// requests is where a server asks.
	requests = "$SYS.REQ.USER.AUTH"
	// queue has each request answered by one of several programs.
	queue = "agentd-callout"
	// deciding bounds finding out who somebody is; a server waits for two seconds.
	deciding = 2 * time.Second
	// atOnce bounds the logins that are looked at.
	atOnce = 16
)

// Person is whom a proof is of, and what the server lets them do.
type Person struct {
	// Name is the name of the user, and Account where it is.
	Name, Account      string
	Publish, Subscribe []string
}

// Find finds out whom a proof is of. Its error is told to the log of the server and of this program, not to who connects.
type Find func(ctx context.Context, proof string) (Person, error)

// Key signs answers.
type Key struct{ pair nkeys.KeyPair }

// NewKey makes a key: its seed, which is a secret, and its public part, which the server has to know.
func NewKey() (seed, public string, err error) {
	pair, err := nkeys.CreateAccount()
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	defer pair.Wipe()
	secret, err := pair.Seed()
	if err != nil {
		return "", "", fmt.Errorf("make a key: %w", err)
	}
	public, err = pair.PublicKey()
	return string(secret), public, err
}

// IsPublic reports whether a text is the public part of a key.
func IsPublic(text string) bool { return nkeys.IsValidPublicAccountKey(text) }

// ReadKey reads the seed in a file.
func ReadKey(path string) (Key, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fmt.Errorf("read the key: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(data)
	if err != nil {
		return Key{}, sdk.Errorf(sdk.CodeConfig, "%s has no key; make one with: agentd nats-callout --new-key %s", path, path)
	}
	if public, err := pair.PublicKey(); err != nil || !IsPublic(public) {
		return Key{}, sdk.Errorf(sdk.CodeConfig, "%s is the key of a user; make one for this with: agentd nats-callout --new-key FILE", path)
	}
	return Key{pair}, nil
}

// Public is the public part.
func (k Key) Public() (string, error) { return k.pair.PublicKey() }

// Serve answers the servers until ctx ends.
func Serve(ctx context.Context, conn *broker.Conn, key Key, find Find, log *slog.Logger) error {
	return conn.AnswerRequests(ctx, requests, queue, atOnce, func(ctx context.Context, data []byte) ([]byte, error) {
		request, err := jwt.DecodeAuthorizationRequestClaims(string(data))
		if err != nil {
			return nil, fmt.Errorf("read the question of a server: %w", err)
		}
		ctx, stop := context.WithTimeout(ctx, deciding)
		defer stop()
		response := jwt.NewAuthorizationResponseClaims(request.UserNkey)
		response.Audience = request.Server.ID
		user, err := person(ctx, request, key, find)
		from := request.ClientInformation.Host
		if err != nil {
			log.Warn("somebody is not let in", "from", from, "error", err)
			response.Error = "this login does not count"
		} else {
			log.Info("somebody is let in", "who", user.Name, "account", user.Audience, "from", from)
			if response.Jwt, err = user.Encode(key.pair); err != nil {
				return nil, fmt.Errorf("sign a user: %w", err)
			}
		}
		answer, err := response.Encode(key.pair)
		return []byte(answer), err
	})
}

// person is the user that a connection becomes. Only a proof alone is looked at: a name and a password are those of somebody else's user,
// mistyped.
func person(ctx context.Context, request *jwt.AuthorizationRequestClaims, key Key, find Find) (*jwt.UserClaims, error) {
	if public, err := key.Public(); err != nil || request.Subject != public {
		return nil, errors.Join(err, errors.New("the server asks for answers of another key"))
	}
	o := request.ConnectOptions
	if o.Token == "" || o.Username != "" || o.Password != "" {
		return nil, errors.New("it shows no proof of a login")
	}
	p, err := find(ctx, o.Token)
	if err != nil {
		return nil, err
	}
	user := jwt.NewUserClaims(request.UserNkey)
	user.Name, user.Audience = p.Name, p.Account
	user.Expires = time.Now().Add(life).Unix()
	user.Pub.Allow.Add(p.Publish...)
	user.Sub.Allow.Add(p.Subscribe...)
	return user, nil
}
