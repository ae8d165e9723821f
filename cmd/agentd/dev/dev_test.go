package dev

import (
	"context"
	"errors"
	"testing"
	"time"

	"agentd/internal/broker/embedded"
	"agentd/test/poll"
)

// Who waits for a server that reads what is in its folder is told so, and gets the server.
func TestStarted_TellsThatTheServerIsSlow(t *testing.T) {
	t.Parallel()
	slow, told := make(chan time.Time, 1), make(chan struct{})
	slow <- time.Time{}
	server, err := started(t.Context(), func() (*embedded.Server, error) {
		<-told
		return embedded.Start(embedded.Options{Dir: t.TempDir()})
	}, slow, func() { close(told) })
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
}

// Whoever does not want to wait is not kept, and the server does not keep its folder.
func TestStarted_EndsWithWhoWaits(t *testing.T) {
	t.Parallel()
	o := embedded.Options{Dir: t.TempDir()}
	ctx, interrupt := context.WithCancel(t.Context())
	reading, read := make(chan struct{}), make(chan error, 1)
	go func() {
		<-reading
		interrupt()
	}()
	left := make(chan struct{})
	server, err := started(ctx, func() (*embedded.Server, error) {
		close(reading)
		select {
		case <-left:
		case <-time.After(time.Minute): // nobody left
		}
		server, err := embedded.Start(o)
		read <- err
		return server, err
	}, nil, func() { t.Error("somebody is told that it is slow") })
	if server != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("while it reads its folder it ends with %v, %v", server, err)
	}
	close(left)
	if err := <-read; err != nil {
		t.Fatal(err)
	}
	poll.Until(t, time.Minute, "another server has the folder", func() bool {
		other, err := embedded.Start(o)
		return err == nil && other.Close() == nil
	})
}
