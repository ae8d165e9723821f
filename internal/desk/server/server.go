// Package server serves a desk to other programs: the HTTP API and webhooks.
package server

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"agentd/internal/broker"
	"agentd/internal/desk"
	"agentd/internal/desk/api"
	"agentd/internal/desk/webhook"
	"agentd/internal/httpguard"
)

// Server serves a desk to other programs.
type Server struct {
	Desk *desk.Desk
	Conn *broker.Conn
	// Webhooks are told of what is asked, with their secrets.
	Webhooks []webhook.Target
	// Who is the principal of all decisions that come over HTTP; callers bear the Token.
	Who, Token string
	Logger     *slog.Logger
	// Listener is nil without an HTTP API.
	Listener net.Listener
}

// Listen opens the address of the HTTP API; empty is none.
func (s *Server) Listen(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	var err error
	s.Listener, err = httpguard.Listen(ctx, address, s.Token)
	return err
}

// Run serves until ctx ends, or the desk cannot go on.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	running.Go(func() {
		webhook.Run(ctx, webhook.Options{Conn: s.Conn, Desk: s.Desk, Targets: s.Webhooks, Logger: s.Logger})
	})
	failed := make(chan error, 1)
	if s.Listener != nil {
		running.Go(func() {
			o := api.Options{Desk: s.Desk, Who: s.Who, Token: s.Token, Logger: s.Logger}
			if err := httpguard.Serve(ctx, s.Listener, api.Handler(o)); err != nil {
				failed <- err
			}
		})
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-s.Desk.Failed():
	}
	stop()
	running.Wait()
	return err
}
