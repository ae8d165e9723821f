package runs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/index/find"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// retryFilter says which of the runs that have ended are retried.
type retryFilter struct {
	cli.RunFilter
	runs   []string
	dryRun bool
}

func retryCommand(a *cli.App) *cobra.Command {
	var f retryFilter
	cmd := &cobra.Command{
		Use:   "retry [RUN...]",
		Short: "Take up runs that ended with an error, by a limit or by their deadline",
		Long: "retry lets runs go on from where they ended, under the same name and with a new deadline. What has a result is not\n" +
			"called again; calls that were given up are made again under the same key. It needs the rights of an operator, and a worker.\n" +
			"Without names it takes all runs that the flags ask for.",
		Example: "  agentd runs retry order-7\n  agentd runs retry --reason model_failed --since 1h --dry-run",
		RunE: func(cmd *cobra.Command, args []string) error {
			f.runs = args
			if (len(args) > 0) == f.Given() {
				return cli.Usagef("name the runs, or say which with --reason, --since or --agent")
			}
			return a.WithClient(cmd.Context(), func(c *cli.Client) error { return retryRuns(cmd.Context(), a, c, &f) })
		},
		ValidArgsFunction: a.CompleteRuns,
	}
	f.AddFlags(cmd)
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only say which runs would be retried")
	return cmd
}

// retried is what became of the retry of a run.
type retried struct {
	Run    string      `json:"run"`
	Agent  string      `json:"agent"`
	Reason core.Reason `json:"reason"`
	Code   string      `json:"reason_code,omitempty"`
	// State is "retried", "requested" when no worker has taken the run up yet, nor refused to, "would be retried", or "not retried" with the
	// Problem.
	State   string `json:"state"`
	Problem string `json:"problem,omitempty"`
}

const (
	notRetried = "not retried"
	requested  = "requested"
)

func retryRuns(ctx context.Context, a *cli.App, c *cli.Client, f *retryFilter) error {
	runs, err := ended(ctx, c, f)
	if err != nil {
		return err
	}
	results, failed := []retried{}, 0
	for i := range runs {
		result, err := retryOne(ctx, c, &runs[i], f.dryRun)
		if err != nil {
			return err
		}
		if result.State == notRetried {
			failed++
		}
		results = append(results, result)
	}
	if err := a.Print(results, func(w io.Writer) error { return writeRetried(w, results, cli.Columns(w)) }); err != nil || failed == 0 {
		return err
	}
	return fmt.Errorf("%s not retried", show.Count(failed, "run"))
}

// ended are the runs that the filter asks for, those that ended first first. A run that is named is among them whatever it is.
func ended(ctx context.Context, c *cli.Client, f *retryFilter) (runs []find.Run, err error) {
	if len(f.runs) > 0 {
		runs, err = c.Named(ctx, f.runs)
	} else {
		var filter index.Filter
		if filter, err = f.Filter([]string{"status:done"}); err != nil {
			return nil, err
		}
		var found find.Found
		found, err = c.Newest(ctx, filter, 0)
		runs = slices.DeleteFunc(found.Runs, func(r find.Run) bool { return !r.Reason.Retryable() })
	}
	slices.SortFunc(runs, func(x, y find.Run) int {
		return cmp.Or(cmp.Compare(x.Changed, y.Changed), cmp.Compare(x.Run, y.Run))
	})
	return runs, err
}

func retryOne(ctx context.Context, c *cli.Client, r *find.Run, dryRun bool) (retried, error) {
	result := retried{Run: r.Run, Agent: r.Agent, Reason: r.Reason, Code: r.Code, State: "would be retried"}
	asking, run := c.Speaking(cli.Source), client.Run{Agent: r.Agent, Name: r.Run}
	var err error
	if dryRun {
		var status wire.RunStatus
		if status, err = asking.Status(ctx, run); err == nil {
			if refusal := status.CheckRetry(); refusal != nil {
				err = refusal
			}
		}
	} else {
		var taken bool
		if _, taken, err = asking.Retry(ctx, run); taken {
			result.State = "retried"
		} else {
			result.State = requested
		}
	}
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	if err != nil {
		result.State, result.Problem = notRetried, sdk.AsError(err).Message
	}
	return result, nil
}

func writeRetried(w io.Writer, results []retried, columns int) error {
	if len(results) == 0 {
		_, err := fmt.Fprintln(w, "no run ended like that")
		return err
	}
	var t show.Table
	t.Row("RUN", "AGENT", "REASON", "RESULT")
	for _, r := range results {
		why := string(r.Reason)
		if r.Code != "" {
			why += ":" + r.Code
		}
		state := r.State
		if state == requested {
			state += lookLater
		}
		if r.Problem != "" {
			state += ": " + show.Line(r.Problem, 200)
		}
		t.Row(show.Name(r.Run), show.Name(r.Agent), show.Line(why, 28), state)
	}
	return t.Write(w, "", columns)
}
