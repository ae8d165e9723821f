// Package console is agentd console: the pages in which people look at runs, decide and steer them.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/config"
	"agentd/internal/console/live"
	"agentd/internal/httpguard"
	"agentd/internal/setup"
)

type flags struct{ http, index, tokenFile string }

// Command is agentd console.
func Command(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve the pages in which runs are seen, decided and steered, in a browser",
		Long: "console serves its pages on --http. On an address of this machine it lets everybody in who is on it; on any other, people\n" +
			"log in with the token of --token-file, and TLS has to be put in front.\n\n" +
			"With --index it keeps an index of runs in a file, which answers agentd runs list, too, and pages are fast however many runs\n" +
			"there are.\n\n" +
			"Everything that is done in it is published as the principal --as, which each page says; without it the console is\n" +
			"read-only.",
		Example: "  agentd console --as anna\n  agentd console --as anna --index /var/lib/agentd\n  agentd console --http :8080 --token-file /run/secrets/console --as desk",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), a, f) },
	}
	cmd.Flags().StringVar(&f.http, "http", "127.0.0.1:8484", "address to listen on")
	cmd.Flags().StringVar(&f.index, "index", "", "file for the index of runs, or a folder for it (default: workers are asked for all their runs)")
	cmd.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the token to log in with")
	return cmd
}

func run(ctx context.Context, a *cli.App, f flags) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	var who setup.Principal
	if a.As != "" {
		if who, err = setup.FindApprover(cfg, a.As); err != nil {
			return cli.Usage(err)
		}
	}
	token := ""
	if f.tokenFile != "" {
		if token, err = setup.APIToken(cfg, f.tokenFile); err != nil {
			return err
		}
	}
	listener, err := httpguard.Listen(ctx, f.http, token)
	if err != nil {
		return err
	}
	return errors.Join(serve(ctx, a, cfg, f.index, listener, who, token), ignoreClosed(listener.Close()))
}

// ignoreClosed is err, unless it says that the server closed the listener.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func serve(ctx context.Context, a *cli.App, cfg *config.Config, index string, l net.Listener, who setup.Principal, token string) error {
	log, err := a.Logger(cfg)
	if err != nil {
		return err
	}
	c, err := a.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	console, err := live.Open(ctx, live.Options{
		Conn: c.Conn, Config: func() *config.Config { return cfg }, Who: who, Index: index, Token: token, Logger: log,
		Connect: func(ctx context.Context) (*broker.Conn, error) {
			examining, err := a.Connect(ctx, cfg)
			if err != nil {
				return nil, err
			}
			return examining.Conn, nil
		},
	})
	if err != nil {
		return c.CloseAfter(err)
	}
	as := "nobody: read-only (name somebody with --as)"
	if who.Who != "" {
		as = who.String()
	}
	fmt.Fprintf(a.Out, "console   http://%s/\nas        %s\nready\n", l.Addr(), as)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- httpguard.Serve(serving, l, console) }()
	select {
	case err = <-done:
	case err = <-console.Failed():
		stop()
		err = errors.Join(err, <-done)
	}
	return c.CloseAfter(errors.Join(err, console.Close()))
}
