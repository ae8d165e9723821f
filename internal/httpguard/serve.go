package httpguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"

	"agentd/sdk"
)

// Listen opens the address. Without a token it must be one of loopback: what is served lets people decide.
func Listen(ctx context.Context, address, token string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "address %q: want HOST:PORT, such as 127.0.0.1:8090", address)
	}
	if ip := net.ParseIP(host); token == "" && (ip == nil || !ip.IsLoopback()) && host != "localhost" {
		return nil, sdk.Errorf(sdk.CodeConfig, "on %s anybody who reaches this machine could decide: set a token, or listen on 127.0.0.1", address)
	}
	return Open(ctx, address)
}

// Open opens the address, whoever reaches it. What the system says of one that is taken is not what to do about it.
func Open(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, sdk.Errorf(sdk.CodeConfig, "%s is in use; stop what listens there, or choose another address", address).WithCause(err)
	case err != nil:
		return nil, sdk.Errorf(sdk.CodeConfig, "cannot listen on %q; choose an address of this machine, such as 127.0.0.1:8090", address).WithCause(err)
	}
	return l, nil
}

// A response may take as long as a decision waits for what becomes of it, and to be read; streams of events bound each event instead.
const (
	answering    = time.Minute
	closeTimeout = 3 * time.Second
)

// Serve answers requests until ctx ends.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	server := Server(h, answering)
	server.BaseContext = func(net.Listener) context.Context { return ctx }
	done := make(chan error, 1)
	go func() { done <- server.Serve(l) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	err := server.Shutdown(stopping)
	if served := <-done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
