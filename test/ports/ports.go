// Package ports finds ports for servers that a test stops and starts again.
package ports

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Ports from first to first+many are below those that systems hand out to whoever asks for any port, so nobody is given
// one of them while the server on it is away.
const first, many = 10_000, 20_000

// found are the ports that this process was given, by number: whoever was given one may not listen yet, or not now.
var found sync.Map

// Find returns a port of 127.0.0.1 that nothing listens on, and that it has not returned before.
func Find(ctx context.Context) (int, error) {
	var lc net.ListenConfig
	for {
		port := first + rand.IntN(many)
		if _, before := found.LoadOrStore(port, true); before {
			continue
		}
		l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		return port, l.Close()
	}
}

// Free is Find for a test.
func Free(t testing.TB) int {
	t.Helper()
	port, err := Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
