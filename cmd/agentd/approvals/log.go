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
	var domains []string
	cmd := &cobra.Command{
		Use:   "log [RUN]",
		Short: "Show who decided what, when, and what became of it, from the journals of runs",
		Long: "log prints every permission request of a run, or of all runs, with the decisions on it, those that were refused\n" +
			"too, and the execution of its call. With -o json each record has everything: exact arguments, the principal, the\n" +
			"digest of the policy, the contract's version, and the hash of its journal entry. It reads the store of runs.",
		Example: "  agentd approvals log trip-7\n  agentd approvals log -o json | jq 'map(select(.event == \"decided\"))'",
		Args:    cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDomains(domains); err != nil {
				return err
			}
			if len(args) == 1 {
				return a.WithRun(cmd.Context(), args[0], func(c *cli.Client, store runner.Store, last core.Entry) error {
					return printLog(cmd.Context(), a, c, store, []wire.RunKey{last.Head.Key()}, domains)
				})
			}
			return logAll(cmd.Context(), a, domains)
		},
	}
	addDomains(cmd, &domains, "all")
	return cmd
}

func logAll(ctx context.Context, a *cli.App, domains []string) error {
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
		return printLog(ctx, a, c, store, keys, domains)
	})
}

func printLog(ctx context.Context, a *cli.App, c *cli.Client, store runner.Store, keys []wire.RunKey, domains []string) error {
	records, asked := []audit.LogRecord{}, askedIn{}
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
		asked.add(entries)
	}
	err := refused.Read(ctx, c.Conn, func(r audit.LogRecord) error {
		records = append(records, r.Of(records))
		return nil
	})
	if err != nil {
		return err
	}
	if len(domains) > 0 && !slices.Contains(domains, "*") {
		records = asked.records(records, domains)
	}
	slices.SortStableFunc(records, func(x, y audit.LogRecord) int { return cmp.Compare(x.At, y.At) })
	return a.Print(records, func(w io.Writer) error { return show.WriteLog(w, records, cli.Columns(w)) })
}

// askedIn are the domains in which requests were asked, by run and id: further ones where nobody decided in time.
type askedIn map[[2]string][]string

func (in askedIn) add(entries []core.Entry) {
	for i := range entries {
		for _, part := range entries[i].Parts() {
			for _, f := range part.Effects {
				key := [2]string{part.Head.Run, f.Call}
				in[key] = append(in[key], f.Domains...)
			}
		}
	}
}

// records are those about requests that were asked in one of the domains.
func (in askedIn) records(all []audit.LogRecord, domains []string) []audit.LogRecord {
	calls := map[[2]string]bool{} // that such requests were about
	asked := func(r audit.LogRecord) bool {
		return slices.ContainsFunc(in[[2]string{r.Run, r.Request}], func(domain string) bool { return slices.Contains(domains, domain) })
	}
	for _, r := range all {
		if r.Event == audit.LogRequested && asked(r) {
			calls[[2]string{r.Run, r.Call}] = true
		}
	}
	return slices.DeleteFunc(all, func(r audit.LogRecord) bool { return !asked(r) && !calls[[2]string{r.Run, r.Call}] })
}
