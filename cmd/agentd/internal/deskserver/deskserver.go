// Package deskserver serves the desk to other programs: the HTTP API and webhooks.
package deskserver

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/desk"
	"agentd/internal/desk/api"
	"agentd/internal/desk/hooks"
	"agentd/internal/setup"
)

// Server serves a desk to other programs.
type Server struct {
	Desk       *desk.Desk
	Conn       *broker.Conn
	Cfg        *config.Config
	Who, Token string
	Log        *slog.Logger
	// listener is nil without an HTTP API.
	Listener net.Listener
}

// Listen opens the address of the HTTP API; empty is none.
func (s *Server) Listen(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	var err error
	s.Listener, err = api.Listen(ctx, address, s.Token)
	return err
}

// Run serves until ctx ends, or the desk cannot go on.
func (s *Server) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	told, err := setup.WithSecrets(s.Cfg)
	if err != nil {
		if s.Listener != nil {
			err = errors.Join(err, s.Listener.Close())
		}
		return err
	}
	var running sync.WaitGroup
	running.Go(func() {
		hooks.Run(ctx, hooks.Options{Conn: s.Conn, Desk: s.Desk, Hooks: told, Logger: s.Log})
	})
	failed := make(chan error, 1)
	if s.Listener != nil {
		running.Go(func() {
			o := api.Options{Desk: s.Desk, Who: s.Who, Token: s.Token, Logger: s.Log}
			if err := api.Serve(ctx, s.Listener, o); err != nil {
				failed <- err
			}
		})
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-s.Desk.Failed():
	}
	stop()
	running.Wait()
	return err
}
