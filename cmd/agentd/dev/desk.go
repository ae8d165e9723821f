package dev

import (
	"context"
	"errors"
	"fmt"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/deskserver"
	"agentd/internal/config"
	"agentd/internal/desk"
	"agentd/internal/setup"
)

// withDesk serves the desk beside do, where the configuration wants an HTTP API or webhooks. Changes of those need a
// restart.
func (d *devServer) withDesk(ctx context.Context, cfg *config.Config, do func() error) error {
	if cfg.Approvals.HTTP == "" && len(cfg.Approvals.Webhooks) == 0 {
		return do()
	}
	who, err := setup.FindApprover(&config.Config{File: cfg.File, Settings: config.Settings{Approvals: cfg.Approvals}}, "") // NATS is this program's own
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
	opening, cancel := context.WithTimeout(ctx, cli.ConnectTimeout)
	defer cancel()
	log := d.a.LoggerAt(cli.DevLevel, cfg.Log.Format)
	inbox, err := desk.Open(opening, desk.Options{
		Conn: d.conn, Domains: cfg.Approvals.Domains, Contracts: cfg.Contracts, SigningKey: sign, Logger: log,
	})
	if err != nil {
		return err
	}
	defer inbox.Close()
	s := deskserver.Server{Desk: inbox, Conn: d.conn, Cfg: cfg, Who: who.Who, Token: token, Log: log}
	if err := s.Listen(ctx, cfg.Approvals.HTTP); err != nil {
		return err
	}
	if s.Listener != nil && d.a.Output != cli.OutputJSON {
		fmt.Fprintf(d.a.Out, "approvals http://%s/v1/requests, as %s\n", s.Listener.Addr(), who)
	}
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		err := s.Run(serving)
		if err != nil {
			select {
			case d.failed <- err:
			default: // the program ends already
			}
		}
		done <- err
	}()
	err = do()
	stop()
	if served := <-done; served != nil && !errors.Is(err, served) {
		err = errors.Join(err, served)
	}
	return err
}
