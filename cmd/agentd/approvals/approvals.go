// Package approvals is agentd approvals: the human desk.
package approvals

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/config"
	"agentd/internal/desk"
	"agentd/internal/setup"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// approvalsFlags are those of all commands of the desk.
type approvalsFlags struct {
	domains []string
	key     string
}

// words are the flags as they were given.
func (f *approvalsFlags) words() []string {
	var words []string
	for _, domain := range f.domains {
		words = append(words, "--domain", domain)
	}
	if f.key != "" {
		words = append(words, "--key", f.key)
	}
	return words
}

// Command is agentd approvals.
func Command(a *cli.App) *cobra.Command {
	var f approvalsFlags
	cmd := &cobra.Command{
		Use:     "approvals",
		Aliases: []string{"approval"},
		Short:   "Decide and answer what runs ask people",
		Long: "approvals is the human desk: permission requests, questions and conversation turns of all runs. An ID is what\n" +
			"the list shows, or any beginning of a request's id that no other one has.\n\n" +
			"What is shown of arguments and texts was written by models. Characters that cannot be seen, or that change how\n" +
			"others are seen, are written out, such as \\u202e.",
		Example: "  agentd approvals list\n  agentd approvals show k3f9qa\n  agentd approvals approve k3f9qa\n  agentd approvals watch",
	}
	cmd.PersistentFlags().StringVar(&f.key, "key", "", "PEM file with the Ed25519 key to sign decisions with (default: approvals.key)")
	for _, of := range []*cobra.Command{
		listCommand(a, &f), showCommand(a, &f), approveCommand(a, &f), denyCommand(a, &f), editCommand(a, &f),
		askCommand(a, &f), giveCommand(a, &f), answerCommand(a, &f), watchCommand(a, &f), serveCommand(a, &f),
	} {
		addDomains(of, &f.domains, "approvals.domains, else human.interaction")
		cmd.AddCommand(of)
	}
	cmd.AddCommand(logCommand(a), grantsCommand(a), revokeCommand(a))
	return cmd
}

// addDomains adds the flag that says which domains a command is about.
func addDomains(cmd *cobra.Command, domains *[]string, otherwise string) {
	cmd.Flags().StringSliceVar(domains, "domain", nil, `domains to look at, "*" for all (default: `+otherwise+")")
	cli.Narrow(cmd.Flags(), "domain")
}

// checkDomains refuses what is no domain.
func checkDomains(domains []string) error {
	for _, domain := range domains {
		if err := wire.CheckDomain(domain); err != nil && domain != "*" {
			return cli.Usage(err)
		}
	}
	return nil
}

// deskClient is an open desk for one command.
type deskClient struct {
	*desk.Desk
	conn     *cli.Client
	approver setup.Principal
	// words are the flags that other commands of the desk need as well.
	words []string
}

// command is the command line of another command of the desk.
func (d *deskClient) command(args ...string) string {
	return d.conn.CommandLine(slices.Concat([]string{"approvals"}, args, d.words)...)
}

// withDesk opens the desk for a command.
func withDesk(ctx context.Context, a *cli.App, f *approvalsFlags, do func(*deskClient) error) error {
	cfg, err := a.Settings()
	if err != nil {
		return err
	}
	o, who, err := deskOptions(a, cfg, f)
	if err != nil {
		return err
	}
	c, err := a.Connect(ctx, cfg)
	if err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, cli.Patience)
	defer cancel()
	o.Conn, o.Logger = c.Conn, a.QuietLogger()
	d, err := desk.Open(opening, o)
	if cli.NotPermitted(err) {
		err = sdk.Errorf(sdk.CodePermissionDenied,
			"this user may not read what people are asked in %s; name the domains that it may with --domain, or connect as an approver of it",
			cmp.Or(strings.Join(o.Domains, ", "), sdk.HumanDomain)).WithCause(err)
	}
	if err != nil {
		return c.CloseAfter(err)
	}
	err = do(&deskClient{Desk: d, conn: c, approver: who, words: f.words()})
	d.Close() // while it can still say so
	return c.CloseAfter(err)
}

// deskOptions are what flags and configuration say of a desk, and who decides at it.
func deskOptions(a *cli.App, cfg *config.Config, f *approvalsFlags) (o desk.Options, who setup.Principal, err error) {
	if err := checkDomains(f.domains); err != nil {
		return o, who, err
	}
	if who, err = setup.FindApprover(cfg, a.As); err != nil {
		return o, who, cli.Usage(err)
	}
	if o.SigningKey, err = setup.SigningKey(cfg, f.key); err != nil {
		return o, who, err
	}
	if o.Domains = f.domains; len(o.Domains) == 0 {
		o.Domains = cfg.Approvals.Domains
	}
	o.Contracts = cfg.Contracts
	return o, who, nil
}

func listCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List what waits for a person, the oldest first",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error {
				items := d.Marked(cmd.Context(), d.List())
				if n := d.Omitted(); n > 0 {
					fmt.Fprintf(a.Err, "%s more are open; decide some of these first\n", show.Count(n, "request"))
				}
				return a.Print(items, func(w io.Writer) error { return show.Requests(w, items, cli.Columns(a.Out)) })
			})
		},
	}
}
