// Package brokertest has brokers for tests: embedded servers, and connections to them.
package brokertest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// Deadline bounds every wait for something that must happen; tests that pass do not come near it.
const Deadline = time.Minute

// Context ends with the test, or when that takes too long.
func Context(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Deadline)
	t.Cleanup(cancel)
	return ctx
}

// Server starts a server that is closed with the test, unless the test closes it before.
func Server(t *testing.T, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Dir == "" {
		o.Dir = Dir(t)
	}
	s, err := embedded.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Dir is a folder that is removed with the test, after the servers in it were closed.
func Dir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "data")
}

// Connect connects until the test ends. It logs to stderr when the tests are verbose: a test's own log must not be written to after its end,
// which callbacks of a closing connection may do.
func Connect(t *testing.T, o broker.ConnectOptions) *broker.Conn {
	t.Helper()
	if o.Subjects.Root() == "" {
		o.Subjects = wire.DefaultSubjects()
	}
	o.Logger = slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("test", t.Name())
	}
	c, err := broker.Connect(Context(t), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Eventually waits until ok.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	poll.Until(t, Deadline, what, ok)
}
