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
	yes := false
	cmd := &cobra.Command{
		Use:   "purge RUN --yes",
		Short: "Remove the history of a run that has ended",
		Long: "purge removes the journal and the blobs of a run that has ended, and its document from the index of runs, without waiting for\n" +
			"retention. A tombstone stays that says which event began the run and how it ended. Messages of the run stay on the broker until\n" +
			"their time is over. It needs the rights of an operator; for many runs see agentd bulk purge.",
		Example: "  agentd runs purge order-7 --yes", Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return cli.Usagef("purge removes what the run did for good; say so with --yes")
			}
			return a.WithClient(cmd.Context(), func(c *cli.Client) error { return purge(cmd.Context(), a, c, args[0]) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "remove it without a question")
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
		_, err := fmt.Fprintf(w, "the history of %s is removed; agentd runs show has its tombstone\n", show.Line(run, show.LineMax))
		return err
	})
}
