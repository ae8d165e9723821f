package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/desk/server"
	"agentd/internal/setup"
)

type deskServeFlags struct{ http, tokenFile string }

func serveCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
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
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error {
				if hooked := d.conn.Config.Approvals; len(f.domains) > 0 && len(hooked.Webhooks) > 0 {
					return cli.Usage(errors.New("webhooks are told of approvals.domains; set those instead of --domain"))
				}
				return serveDesk(cmd.Context(), a, d, s)
			})
		},
	}
	cmd.Flags().StringVar(&s.http, "http", "", "address of the HTTP API, such as 127.0.0.1:8090 (default: approvals.http)")
	cmd.Flags().StringVar(&s.tokenFile, "token-file", "", "file with the bearer token")
	return cmd
}

func serveDesk(ctx context.Context, a *cli.App, d *deskClient, f deskServeFlags) error {
	cfg := d.conn.Config
	log, err := a.Logger(cfg)
	if err != nil {
		return err
	}
	token, err := setup.APIToken(cfg, f.tokenFile)
	if err != nil {
		return err
	}
	told, err := setup.Webhooks(cfg)
	if err != nil {
		return err
	}
	s := server.Server{Desk: d.Desk, Conn: d.conn.Conn, Hooks: told, Who: d.approver.Who, Token: token, Logger: log}
	if err := s.Listen(ctx, cmp.Or(f.http, cfg.Approvals.HTTP)); err != nil {
		return err
	}
	if s.Listener == nil && len(cfg.Approvals.Webhooks) == 0 {
		return cli.Usage(errors.New("there is nothing to serve; set --http, or approvals.webhooks"))
	}
	if s.Listener != nil {
		fmt.Fprintf(a.Out, "http      http://%s/v1/requests\n", s.Listener.Addr())
	}
	fmt.Fprintf(a.Out, "as        %s\nready\n", d.approver)
	return s.Run(ctx)
}
