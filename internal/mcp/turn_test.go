package mcp

import (
	"context"
	"errors"
	"log/slog"
	"testing"
)

// Who waits for a former connection to end, and gives up, has not tried to connect: nobody waits longer for that.
func TestServer_WhoGivesUpBeforeTheTurnCostsNoPause(t *testing.T) {
	t.Parallel()
	s, err := NewServer(ServerConfig{Name: "other", Command: "nothing"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	former := &connection{ended: make(chan struct{})}
	former.lost.Store(true)
	former.releases.Do(func() {}) // it is being released, and does not end
	s.conn = former
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		if _, err := s.connected(ctx); !errors.Is(err, context.Canceled) || !s.notBefore.IsZero() || s.conn != former {
			t.Fatalf("%v; the next attempt is at %s", err, s.notBefore)
		}
	}
}
