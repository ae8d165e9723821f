package main

import (
	"context"
	"errors"
	"fmt"

	"agentd/internal/config"
	"agentd/internal/desk"
)

// withDesk serves the desk beside do, where the configuration wants an HTTP API or webhooks. Changes of those need a
// restart.
func (d *devServer) withDesk(ctx context.Context, cfg *config.Config, do func() error) error {
	if cfg.Approvals.HTTP == "" && len(cfg.Approvals.Webhooks) == 0 {
		return do()
	}
	who, err := d.a.approver(&config.Config{File: cfg.File, Approvals: cfg.Approvals}, "") // NATS is this program's own
	if err != nil {
		return err
	}
	token, err := apiToken(cfg, "")
	if err != nil {
		return err
	}
	sign, err := signer(cfg, "")
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	log := d.a.loggerAt(devLevel, cfg.Log.Format)
	inbox, err := desk.Open(opening, desk.Options{
		Conn: d.conn, Domains: cfg.Approvals.Domains, Contracts: cfg.Contracts, Signer: sign, Logger: log,
	})
	if err != nil {
		return err
	}
	defer inbox.Close()
	s := deskServer{desk: inbox, conn: d.conn, cfg: cfg, who: who.who, token: token, log: log}
	if err := s.listen(ctx, cfg.Approvals.HTTP); err != nil {
		return err
	}
	if s.listener != nil && d.a.output != outputJSON {
		fmt.Fprintf(d.a.out, "approvals http://%s/v1/requests, as %s\n", s.listener.Addr(), who)
	}
	serving, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		err := s.run(serving)
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
