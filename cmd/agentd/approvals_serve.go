package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/desk"
	"agentd/internal/desk/api"
	"agentd/internal/desk/hooks"
	"agentd/sdk"
)

// defaultTokenEnv is the variable with the token of the desk's HTTP API.
const defaultTokenEnv = "AGENTD_APPROVALS_TOKEN"

type deskServeFlags struct{ http, tokenFile string }

func (a *app) approvalsServeCommand(f *approvalsFlags) *cobra.Command {
	var s deskServeFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the desk to other front ends: an HTTP API with events, and webhooks",
		Long: "serve answers the HTTP API of docs/approvals.md on --http, else on approvals.http, and tells the webhooks of\n" +
			"approvals.webhooks, whose consumers `agentd provision` makes. All decisions that come this way are published as\n" +
			"the same principal, --as.\n\n" +
			"Callers present the token of AGENTD_APPROVALS_TOKEN (or of the variable that approvals.token_env names, or of\n" +
			"--token-file) as a bearer token. Without one, only an address of loopback is served.",
		Example: "  agentd approvals serve --http 127.0.0.1:8090",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd.Context(), f, func(d *deskClient) error {
				if hooked := d.conn.cfg.Approvals; len(f.domains) > 0 && len(hooked.Webhooks) > 0 {
					return &exitError{exitUsage, errors.New("webhooks are told of approvals.domains; set those instead of --domain")}
				}
				return a.serveDesk(cmd.Context(), d, s)
			})
		},
	}
	cmd.Flags().StringVar(&s.http, "http", "", "address of the HTTP API, such as 127.0.0.1:8090 (default: approvals.http)")
	cmd.Flags().StringVar(&s.tokenFile, "token-file", "", "file with the bearer token")
	return cmd
}

func (a *app) serveDesk(ctx context.Context, d *deskClient, f deskServeFlags) error {
	cfg := d.conn.cfg
	log, err := a.logger(cfg)
	if err != nil {
		return err
	}
	token, err := apiToken(cfg, f.tokenFile)
	if err != nil {
		return err
	}
	s := deskServer{desk: d.Desk, conn: d.conn.Conn, cfg: cfg, who: d.approver.who, token: token, log: log}
	if err := s.listen(ctx, cmp.Or(f.http, cfg.Approvals.HTTP)); err != nil {
		return err
	}
	if s.listener == nil && len(cfg.Approvals.Webhooks) == 0 {
		return &exitError{exitUsage, errors.New("there is nothing to serve; set --http, or approvals.webhooks")}
	}
	if s.listener != nil {
		fmt.Fprintf(a.out, "http      http://%s/v1/requests\n", s.listener.Addr())
	}
	fmt.Fprintf(a.out, "as        %s\nready\n", d.approver)
	return s.run(ctx)
}

// apiToken is the token of the HTTP API; empty is none.
func apiToken(cfg *config.Config, file string) (string, error) {
	if file == "" {
		return os.Getenv(cmp.Or(cfg.Approvals.TokenEnv, defaultTokenEnv)), nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", sdk.Errorf(sdk.CodeConfig, "token file %s is empty", file)
	}
	return token, nil
}

// deskServer serves a desk to other programs.
type deskServer struct {
	desk       *desk.Desk
	conn       *broker.Conn
	cfg        *config.Config
	who, token string
	log        *slog.Logger
	// listener is nil without an HTTP API.
	listener net.Listener
}

// listen opens the address of the HTTP API; empty is none.
func (s *deskServer) listen(ctx context.Context, address string) error {
	if address == "" {
		return nil
	}
	var err error
	s.listener, err = api.Listen(ctx, address, s.token)
	return err
}

// run serves until ctx ends, or the desk cannot go on.
func (s *deskServer) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	told, err := withSecrets(s.cfg)
	if err != nil {
		if s.listener != nil {
			err = errors.Join(err, s.listener.Close())
		}
		return err
	}
	var running sync.WaitGroup
	running.Go(func() {
		hooks.Run(ctx, hooks.Options{Conn: s.conn, Desk: s.desk, Hooks: told, Logger: s.log})
	})
	failed := make(chan error, 1)
	if s.listener != nil {
		running.Go(func() {
			o := api.Options{Desk: s.desk, Who: s.who, Token: s.token, Logger: s.log}
			if err := api.Serve(ctx, s.listener, o); err != nil {
				failed <- err
			}
		})
	}
	select {
	case <-ctx.Done():
	case err = <-failed:
	case err = <-s.desk.Failed():
	}
	stop()
	running.Wait()
	return err
}

// webhooks are the configured ones, without their secrets.
func webhooks(cfg *config.Config) []hooks.Hook {
	var list []hooks.Hook
	for _, w := range cfg.Approvals.Webhooks {
		list = append(list, hooks.Hook{URL: w.URL})
	}
	return list
}

// withSecrets are the configured webhooks. One without its secret is an error: nothing is sent unsigned.
func withSecrets(cfg *config.Config) ([]hooks.Hook, error) {
	list := webhooks(cfg)
	var missing []error
	for i, w := range cfg.Approvals.Webhooks {
		if list[i].Secret = os.Getenv(w.SecretEnv); list[i].Secret == "" {
			missing = append(missing, sdk.Errorf(sdk.CodeConfig, "webhook %d: environment variable %s is not set", i+1, w.SecretEnv))
		}
	}
	return list, errors.Join(missing...)
}

// approvalDomains are those that the desk shows by configuration.
func approvalDomains(cfg *config.Config) []string {
	if len(cfg.Approvals.Domains) == 0 {
		return []string{sdk.HumanDomain}
	}
	return cfg.Approvals.Domains
}
