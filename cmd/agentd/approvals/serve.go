package approvals

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/desk"
	"agentd/internal/desk/server"
	"agentd/internal/retry"
	"agentd/internal/setup"
	"agentd/sdk"
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
			return serve(cmd.Context(), a, f, s)
		},
	}
	cmd.Flags().StringVar(&s.http, "http", "", "address of the HTTP API, such as 127.0.0.1:8090 (default: approvals.http)")
	cmd.Flags().StringVar(&s.tokenFile, "token-file", "", "file with the bearer token")
	return cmd
}

// The pauses between attempts to open the desk, and how long each may take.
var reopening = retry.Pauses{First: 250 * time.Millisecond, Longest: 10 * time.Second, Spread: 0.2}

const longestOpening = 10 * time.Second

// serve waits for the server, opens the desk and serves it. A server that goes away meanwhile comes back.
func serve(ctx context.Context, a *cli.App, f *approvalsFlags, s deskServeFlags) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	if len(f.domains) > 0 && len(cfg.Approvals.Webhooks) > 0 {
		return cli.Usage(errors.New("webhooks are told of approvals.domains; set those instead of --domain"))
	}
	o, who, err := deskOptions(a, cfg, f)
	if err != nil {
		return err
	}
	if o.Logger, err = a.Logger(cfg); err != nil {
		return err
	}
	c, err := a.Await(ctx, cfg, o.Logger)
	if ctx.Err() != nil && c == nil {
		return nil // it was stopped while it waited for the server
	}
	if err != nil {
		return err
	}
	o.Conn = c.Conn
	opened, err := reopen(ctx, o)
	if ctx.Err() != nil {
		return c.CloseAfter(nil)
	}
	if err != nil {
		return c.CloseAfter(err)
	}
	defer opened.Close()
	return c.CloseAfter(serveDesk(ctx, a, &deskClient{Desk: opened, conn: c, approver: who}, s, o.Logger))
}

// reopen opens the desk, until that succeeds or fails for another reason than that the server went away.
func reopen(ctx context.Context, o desk.Options) (opened *desk.Desk, err error) {
	err = reopening.Do(ctx, retry.Sleep, func() error {
		opening, cancel := context.WithTimeout(ctx, longestOpening)
		defer cancel()
		if opened, err = desk.Open(opening, o); err == nil {
			return nil
		}
		told, typed := errors.AsType[*sdk.Error](err)
		if broker.NotProvisioned(err) || typed && told.Code != sdk.CodeUnavailable {
			return retry.Final(err)
		}
		o.Logger.WarnContext(ctx, "the desk cannot be opened yet", "error", err)
		return err
	})
	return opened, err
}

func serveDesk(ctx context.Context, a *cli.App, d *deskClient, f deskServeFlags, log *slog.Logger) error {
	cfg := d.conn.Config
	token, err := setup.APIToken(cfg, f.tokenFile)
	if err != nil {
		return err
	}
	told, err := setup.Webhooks(cfg)
	if err != nil {
		return err
	}
	s := server.Server{Desk: d.Desk, Conn: d.conn.Conn, Webhooks: told, Who: d.approver.Who, Token: token, Logger: log}
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
