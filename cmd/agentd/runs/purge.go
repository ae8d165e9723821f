package runs

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/reconcile"
	"agentd/internal/show"
	"agentd/sdk/wire"
)

func purgeCommand(a *cli.App) *cobra.Command {
	yes, filter := false, ""
	cmd := &cobra.Command{
		Use:   "purge RUN --yes",
		Short: "Remove the history of a run that has ended, or of many",
		Long: "purge removes the journal and the blobs of a run that has ended, and its document from the index of runs, without waiting for\n" +
			"retention. A tombstone stays that says which event began the run and how it ended. Messages of the run stay on the broker until\n" +
			"their time is over. It needs the rights of an operator.\n\n" +
			"With --filter it is agentd bulk purge: it finds the runs of a customer, or those that somebody started, says how many have\n" +
			"ended, and removes nothing before somebody confirms that number.",
		Example: "  agentd runs purge order-7 --yes\n  agentd runs purge --filter 'tag.customer:4711'\n  agentd runs purge --filter who:anna",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (filter != "") || filter != "" && yes {
				return cli.Usagef("name a run, or say which by --filter, which asks for their number instead of --yes")
			}
			if filter != "" {
				many, _, err := cmd.Root().Find([]string{"bulk", "purge"})
				if err != nil {
					return err
				}
				many.SetContext(cmd.Context())
				return many.RunE(many, []string{filter})
			}
			if !yes {
				return cli.Usagef("purge removes what the run did for good; say so with --yes")
			}
			return a.WithClient(cmd.Context(), func(c *cli.Client) error { return purge(cmd.Context(), a, c, args[0]) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "remove it without a question")
	cmd.Flags().StringVar(&filter, "filter", "", "all runs that this filter selects (agentd runs list --help)")
	cli.Narrow(cmd.Flags(), "filter")
	return cmd
}

// purged is a run whose history is removed.
type purged struct {
	Run    string `json:"run"`
	Purged bool   `json:"purged"`
}

func purge(ctx context.Context, a *cli.App, c *cli.Client, run string) error {
	if _, err := c.Named(ctx, []string{run}); err != nil {
		return err
	}
	err := c.Permitted(ctx, func(ctx context.Context) error {
		store, err := c.OpenStore(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = store.Close() }() // nothing is lost with it
		return reconcile.Purge(ctx, c.Conn, store, wire.NewRunKey(run))
	})
	if err != nil {
		return err
	}
	return a.Print(purged{run, true}, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "the history of %s is removed; what is left: %s\n", show.Line(run, show.LineMax), a.CommandLine("runs", "show", run))
		return err
	})
}
