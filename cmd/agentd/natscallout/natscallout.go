// Package natscallout is agentd nats-callout: it tells a NATS server who somebody is that logged in to the console.
package natscallout

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/accounts"
	"agentd/internal/broker/callout"
	"agentd/internal/config"
	"agentd/internal/login"
	"agentd/internal/setup"
	"agentd/sdk"
)

type flags struct{ key, newKey, account string }

// Command is agentd nats-callout.
func Command(a *cli.App) *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "nats-callout",
		Short: "Let people who logged in to the console into the NATS server, each as themselves",
		Long: "nats-callout is asked by the NATS server when the console connects for somebody who logged in at the identity provider of\n" +
			"console.oidc. It looks at the provider's word itself, and puts the person into their own account of the configuration that\n" +
			"agentd nats-config wrote, with the rights of an approver in the domains of their groups, for 15 minutes. The server refuses\n" +
			"whoever has no account there.\n\n" +
			"It is a program of its own because its key can let anybody in as anybody: the console must not have it. Connect it as the\n" +
			"user callout of that configuration. Several may run.",
		Example: "  agentd nats-callout --new-key callout.nk\n  agentd nats-config --approver jane --callout AC… > nats.conf\n" +
			"  NATS_URL=nats://callout:…@nats:4222 agentd nats-callout --key callout.nk",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case (f.key == "") == (f.newKey == ""):
				return cli.Usagef("name the key with --key FILE, or make one with --new-key FILE")
			case f.newKey != "":
				return makeKey(a, f.newKey)
			}
			return serve(cmd.Context(), a, f)
		},
	}
	cmd.Flags().StringVar(&f.key, "key", "", "file with the key that signs answers")
	cmd.Flags().StringVar(&f.newKey, "new-key", "", "make a key, write it into this new file, and print its public part for agentd nats-config --callout")
	cmd.Flags().StringVar(&f.account, "account", "AGENTD", "the account of workers and operators, as that of agentd nats-config")
	return cmd
}

func makeKey(a *cli.App, path string) error {
	seed, public, err := callout.NewKey()
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = fmt.Fprintln(file, seed)
	if err = errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = fmt.Fprintln(a.Out, public)
	return err
}

func serve(ctx context.Context, a *cli.App, f flags) error {
	cfg, err := a.WithAgents()
	if err != nil {
		return err
	}
	if cfg.Console.OIDC.Issuer == "" {
		return sdk.Errorf(sdk.CodeConfig, "%s has no console.oidc, so nobody logs in to the console as themselves", cfg.File)
	}
	key, err := callout.ReadKey(f.key)
	if err != nil {
		return err
	}
	log, err := a.Logger(cfg)
	if err != nil {
		return err
	}
	c, err := a.Await(ctx, cfg, log)
	if ctx.Err() != nil && c == nil {
		return nil // it was stopped while it waited for the server
	}
	if err != nil {
		return err
	}
	// It exchanges nothing with the provider, so the client's secret is not needed.
	provider := login.New(cfg.Console.OIDC, "")
	defer provider.Close()
	fmt.Fprintln(a.Out, "ready")
	return c.CloseAfter(callout.Serve(ctx, c.Conn, key, finder(cfg, f.account, provider), log))
}

// finder finds out whom a proof is of, and what they may do.
func finder(cfg *config.Config, account string, provider *login.Provider) callout.Find {
	plan := accounts.Plan{Subjects: setup.Subjects(cfg), Broker: setup.Plan(cfg)}
	return func(ctx context.Context, proof string) (callout.Person, error) {
		who, err := provider.Person(ctx, proof)
		if err != nil {
			return callout.Person{}, err
		}
		if len(who.Domains) == 0 {
			return callout.Person{}, sdk.Errorf(sdk.CodePermissionDenied, "%s is in no group with the role approver", who.Who)
		}
		user := accounts.Approver(plan, accounts.Member{Name: who.Who, Domains: who.Domains})
		return callout.Person{
			Name: who.Who, Account: accounts.AccountOf(account, who.Who), Publish: user.Publish, Subscribe: user.Subscribe,
		}, nil
	}
}
