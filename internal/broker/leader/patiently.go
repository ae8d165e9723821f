package leader

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"agentd/internal/retry"
)

const (
	// electing is for how long a request is repeated while nobody leads what it is for: servers notice after up to 20 s that they are cut
	// off, and elect another leader in 4 to 9 s.
	electing = 30 * time.Second
	// onlyAttempt bounds a request to a server that is alone, where it is made once.
	onlyAttempt = 5 * time.Second
)

// attempts bound each request that may be repeated, one after the other: it may have been lost with the leader that it reached, or need longer
// than the one before had.
var attempts = retry.Pauses{First: time.Second, Longest: 4 * time.Second}

// asking are the pauses between requests.
var asking = retry.Pauses{First: 100 * time.Millisecond, Longest: 500 * time.Millisecond}

// Listener is told how requests fare, by an implementation of jetstream.JetStream that is one: it can leave a server that is cut off.
type Listener interface {
	// Unanswered says that nobody has answered a request since then.
	Unanswered(what string, since time.Time, err error)
	// Answered says that a request was answered.
	Answered()
}

// Patiently makes a request that may be repeated, again and again while nobody answers it that leads what it is for, or while servers are
// away that are to have it, until ctx ends or an election must be over. A server that is alone elects nobody: there it is made once.
func Patiently(ctx context.Context, js jetstream.JetStream, what string, request func(context.Context) error) error {
	again := func(err error) bool { return Unanswered(err) || unplaced(err) }
	bounds := attempts.Start()
	return patiently(ctx, js, what, again, func(ctx context.Context) error {
		within := onlyAttempt
		if Clustered(js) {
			within = bounds.Next()
		}
		bounded, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return request(bounded)
	})
}

// PatientlyOnce is Patiently for a request that must not reach a leader twice: one that may have reached one is not repeated.
func PatientlyOnce(ctx context.Context, js jetstream.JetStream, what string, request func(context.Context) error) error {
	return patiently(ctx, js, what, nobody, request)
}

func patiently(
	ctx context.Context, js jetstream.JetStream, what string, again func(error) bool, request func(context.Context) error,
) error {
	listener, heard := js.(Listener)
	began := time.Now()
	// While a connection changes servers it does not say whether they are a cluster: afterwards it does.
	known := Clustered(js)
	for pauses := asking.Start(); ; {
		err := request(ctx)
		if err == nil && !known {
			return nil
		}
		if known = known || Clustered(js); !known {
			return err
		}
		switch {
		case !heard:
		case Unanswered(err):
			listener.Unanswered(what, began, err)
		case err == nil || refused(err):
			listener.Answered()
		}
		if !again(err) || time.Since(began) > electing || retry.Sleep(ctx, pauses.Next()) != nil {
			return err
		}
	}
}

// Clustered reports whether the servers are a cluster. A connection that is between two of them does not know, but has more than one to go to.
func Clustered(js jetstream.JetStream) bool {
	nc := js.Conn()
	return nc.ConnectedClusterName() != "" || !nc.IsConnected() && len(nc.ServerPool()) > 1
}

// errCodeNotAvailable and errCodeOffline are how a server says that it knows no leader, or that all who have a stream are away.
const (
	errCodeNotAvailable jetstream.ErrorCode = 10008
	errCodeOffline      jetstream.ErrorCode = 10118
)

// Leaderless reports whether a server answered that it knows nobody who leads.
func Leaderless(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == errCodeNotAvailable || api.ErrorCode == errCodeOffline)
}

// errCodeUnplaced is how a server says that it finds too few others for what is to be made.
const errCodeUnplaced jetstream.ErrorCode = 10005

// unplaced reports whether a server finds too few others because it has not heard of them: they may have just started.
func unplaced(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == errCodeUnplaced && strings.Contains(api.Description, "offline")
}

// nobody reports whether an error says that a request reached nobody.
func nobody(err error) bool {
	return Leaderless(err) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}

// Unanswered reports whether an error says that nobody answered who leads what a request was for. What became of the request is unknown.
func Unanswered(err error) bool {
	return nobody(err) || errors.Is(err, nats.ErrTimeout) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, nats.ErrConnectionReconnecting) || errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrReconnectBufExceeded)
}

// refused reports whether a server answered no.
func refused(err error) bool {
	_, ok := errors.AsType[*jetstream.APIError](err)
	return ok && !Leaderless(err)
}
