package devserver

import (
	"context"
	"errors"
	"time"

	"agentd/internal/config"
	"agentd/internal/desk"
	"agentd/internal/desk/server"
	"agentd/internal/setup"
)

// openTimeout bounds reading what is open.
const openTimeout = 10 * time.Second

// withDesk serves the desk beside do, where the configuration wants an HTTP API or webhooks. Changes of those need a
// restart.
func (d *Server) withDesk(ctx context.Context, cfg *config.Config, do func() error) error {
	if cfg.Approvals.HTTP == "" && len(cfg.Approvals.Webhooks) == 0 {
		return do()
	}
	who, err := approver(cfg)
	if err != nil {
		return err
	}
	token, err := setup.APIToken(cfg, "")
	if err != nil {
		return err
	}
	sign, err := setup.SigningKey(cfg, "")
	if err != nil {
		return err
	}
	told, err := setup.Webhooks(cfg)
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	inbox, err := desk.Open(opening, desk.Options{
		Conn: d.o.Conn, Domains: cfg.Approvals.Domains, Contracts: cfg.Contracts, SigningKey: sign, Logger: d.o.Logger,
	})
	if err != nil {
		return err
	}
	defer inbox.Close()
	s := server.Server{Desk: inbox, Conn: d.o.Conn, Webhooks: told, Who: who.Who, Token: token, Logger: d.o.Logger}
	if err := s.Listen(ctx, cfg.Approvals.HTTP); err != nil {
		return err
	}
	if s.Listener != nil {
		d.o.Tell.Desk(s.Listener.Addr(), who)
	}
	return d.beside(ctx, s.Run, do)
}

// beside serves something while do runs. When that fails, the program ends.
func (d *Server) beside(ctx context.Context, serve func(context.Context) error, do func() error) error {
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		err := serve(serving)
		if err != nil {
			d.fail(err)
		}
		done <- err
	}()
	err := do()
	stop()
	if served := <-done; served != nil && !errors.Is(err, served) {
		err = errors.Join(err, served)
	}
	return err
}

// approver is who acts here: NATS is this program's own.
func approver(cfg *config.Config) (setup.Principal, error) {
	return setup.FindApprover(&config.Config{File: cfg.File, Settings: config.Settings{Approvals: cfg.Approvals}}, "")
}
