package runs

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk/wire"
)

func showCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: conversation, calls, counters, result and journal",
		Long: "show reads the run's journal from the store, so it works without a worker. --verbose shows texts in full. Whoever may\n" +
			"not read the store is shown what workers tell: the run's state, what it waits for, and its result.",
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := a.WithRun(cmd.Context(), args[0], func(c *cli.Client, store runner.Store, last core.Entry) error {
				return showRun(cmd.Context(), a, c, store, last.Head.Key())
			})
			if !cli.NotPermitted(err) {
				return err
			}
			return withStatus(cmd.Context(), a, args[0], func(_ *cli.Client, s wire.RunStatus) error {
				return printDetails(a, show.DetailsOfStatus(s))
			})
		},
	}
}

func showRun(ctx context.Context, a *cli.App, c *cli.Client, store runner.Store, key wire.RunKey) error {
	reader := runner.New(runner.Options{Store: store})
	entries, err := reader.Journal(ctx, key)
	if err != nil {
		return err
	}
	d, err := show.DetailsOf(entries)
	if err != nil {
		return err
	}
	if d.Undoable, err = reader.Undoable(ctx, entries); err != nil {
		return err
	}
	for i := range d.Waiting {
		call := &d.Waiting[i]
		if !call.ToService {
			continue
		}
		err := c.Permitted(ctx, func(ctx context.Context) (err error) {
			call.Unserved, err = c.Unserved(ctx, call.Domain, call.Type)
			return err
		})
		if err != nil && !cli.NotPermitted(err) { // who may not see whether somebody serves it is told of the call alone
			return err
		}
	}
	return printDetails(a, d)
}

func printDetails(a *cli.App, d show.RunDetails) error {
	return a.Print(d, func(w io.Writer) error { return d.Write(w, cli.Columns(w), a.Verbose, a.CommandLine) })
}
