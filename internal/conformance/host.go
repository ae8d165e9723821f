package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/retry"
	"agentd/sdk/wire"
)

// look is how often something is looked at that nobody tells of.
const look = 20 * time.Millisecond

// host is a server of its own, with a look at what is published there, and what is said of the case that is tried.
type host struct {
	dir    string
	server *embedded.Server
	conn   *broker.Conn
	// subjects are those that seen has the messages of, until untail.
	subjects []string
	seen     *trace
	untail   func() error
	// advice is what the case that is tried has to say beside passing.
	advice []string
}

// finding is why a case did not pass. Every other error ends the trial of all.
type finding struct {
	outcome Outcome
	why     string
}

func (f *finding) Error() string { return f.why }

func failed(format string, args ...any) error { return &finding{Failed, fmt.Sprintf(format, args...)} }

func skipped(format string, args ...any) error {
	return &finding{Skipped, fmt.Sprintf(format, args...)}
}

func (h *host) advise(format string, args ...any) {
	h.advice = append(h.advice, fmt.Sprintf(format, args...))
}

// openHost starts the server and looks at all that is published on the subjects.
func (h *host) openHost(ctx context.Context, subjects ...string) error {
	dir, err := os.MkdirTemp("", "agentd-conformance-")
	if err != nil {
		return fmt.Errorf("make a folder for the server: %w", err)
	}
	h.dir, h.seen, h.subjects = dir, newTrace(), subjects
	if h.server, err = embedded.Start(embedded.Options{Dir: h.dir, Listen: true, Port: -1}); err != nil {
		return err
	}
	h.conn, err = broker.Connect(ctx, broker.ConnectOptions{
		URL: h.server.URL(), Name: "conformance", Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return h.listen()
}

// listen looks at what is published from now on.
func (h *host) listen() error {
	var err error
	h.untail, err = h.conn.TailInOrder(h.subjects, h.seen.add)
	return err
}

// closeHost ends the server and removes what it leaves. It may follow a failed openHost.
func (h *host) closeHost() error {
	var err error
	defer func() { *h = host{} }()
	if h.untail != nil {
		err = h.untail()
	}
	if h.conn != nil {
		err = errors.Join(err, h.conn.Close())
	}
	if h.server != nil {
		err = errors.Join(err, h.server.Close())
	}
	return errors.Join(err, os.RemoveAll(h.dir))
}

// restartServer ends the server and starts it again at the same address, with what it had.
func (h *host) restartServer(ctx context.Context, patience time.Duration) error {
	address, err := url.Parse(h.server.URL())
	if err != nil {
		return fmt.Errorf("read the server's address: %w", err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		return fmt.Errorf("read the server's port: %w", err)
	}
	if err := h.server.Close(); err != nil {
		return err
	}
	if h.server, err = embedded.Start(embedded.Options{Dir: h.dir, Listen: true, Port: port, PortOnly: true}); err != nil {
		return err
	}
	// An answer of the server says that it has the subscriptions of seen again: a connection that stands may not have sent them yet.
	return until(ctx, patience, func() bool {
		_, err := h.conn.JetStream().AccountInfo(ctx)
		return err == nil
	})
}

// errLate is what until returns when its time is over.
var errLate = errors.New("it did not happen in time")

// until looks again and again until something is so.
func until(ctx context.Context, patience time.Duration, holds func() bool) error {
	late := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(late) {
			return errLate
		}
		if err := retry.Sleep(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// result is what became of a case.
func (h *host) result(ctx context.Context, name, rule string, began time.Time, err error) (Result, error) {
	r := Result{Case: name, Outcome: Passed, Rule: rule, Millis: time.Since(began).Milliseconds()}
	f, found := errors.AsType[*finding](err)
	switch {
	case found:
		r.Outcome, r.Why = f.outcome, f.why
	case err != nil:
		return r, fmt.Errorf("case %s: %w", name, err)
	case len(h.advice) > 0:
		r.Outcome, r.Why = Advised, h.advice[0]
		for _, more := range h.advice[1:] {
			r.Why += "; " + more
		}
	}
	return r, ctx.Err()
}
