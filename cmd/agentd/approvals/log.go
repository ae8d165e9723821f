package approvals

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/audit"
	"agentd/internal/audit/live"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk/wire"
)

func logCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use:   "log [RUN]",
		Short: "Show who decided what, when, and what became of it, from the journals of runs",
		Long: "log prints every permission request of a run, or of all runs, with the decisions on it, those that were refused\n" +
			"too, and the execution of its call. With -o json each record has everything: exact arguments, the principal, the\n" +
			"digest of the policy, the contract's version, and the hash of its journal entry. It reads the store of runs.",
		Example: "  agentd approvals log trip-7\n  agentd approvals log -o json | jq 'map(select(.event == \"decided\"))'",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				return a.WithRun(cmd.Context(), args[0], func(c *cli.Client, store runner.Store, last core.Entry) error {
					return printLog(cmd.Context(), a, c, store, []wire.RunKey{last.Head.Key()})
				})
			}
			return logAll(cmd.Context(), a)
		},
	}
}

func logAll(ctx context.Context, a *cli.App) error {
	return a.WithStore(ctx, func(c *cli.Client, store runner.Store) error {
		var keys []wire.RunKey
		err := find.Finder{Conn: c.Conn, Store: store}.Scan(ctx, index.Filter{}, func(r find.Run) error {
			if r.Status == show.Unreadable {
				fmt.Fprintf(a.Err, "agentd: run %s cannot be read, and is left out\n", show.Name(r.Run))
				return nil
			}
			keys = append(keys, wire.NewRunKey(r.Run))
			return nil
		})
		if err != nil {
			return err
		}
		return printLog(ctx, a, c, store, keys)
	})
}

func printLog(ctx context.Context, a *cli.App, c *cli.Client, store runner.Store, keys []wire.RunKey) error {
	records := []audit.LogRecord{}
	var refused live.Refusals
	for _, key := range keys {
		entries, err := runner.New(runner.Options{Store: store}).Journal(ctx, key)
		if err != nil {
			return err
		}
		of, err := audit.LogOf(entries)
		if err != nil {
			return err
		}
		records = append(records, of...)
		refused.Of(entries)
	}
	err := refused.Read(ctx, c.Conn, func(r audit.LogRecord) error {
		records = append(records, r.Of(records))
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(records, func(x, y audit.LogRecord) int { return cmp.Compare(x.At, y.At) })
	return a.Print(records, func(w io.Writer) error { return show.WriteLog(w, records, cli.Columns(w)) })
}
