package runs

import (
	"cmp"
	"context"
	"errors"
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
				return cli.Usagef("name the runs, or say which with --reason, --failed, --since, --agent or --tag")
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
	list, err := newRetryList(a, runs)
	if err != nil {
		return err
	}
	for i := range runs {
		result, err := retryOne(ctx, c, &runs[i], f.dryRun)
		if err == nil || errors.Is(err, client.ErrStored) {
			err = errors.Join(list.add(result), err)
		}
		if err != nil {
			return errors.Join(list.interrupted(err, len(runs)), list.end())
		}
	}
	if err := list.end(); err != nil || list.failed == 0 {
		return err
	}
	return fmt.Errorf("%s not retried", show.Count(list.failed, "run"))
}

// retryList prints what becomes of runs as it does; as JSON at the end.
type retryList struct {
	a       *cli.App
	results []retried
	failed  int
	// next prints the next line.
	next func(result string) error
}

func newRetryList(a *cli.App, runs []find.Run) (*retryList, error) {
	l := &retryList{a: a, results: []retried{}}
	if a.Output == cli.OutputJSON {
		return l, nil
	}
	if len(runs) == 0 {
		_, err := fmt.Fprintln(a.Out, "no run ended like that")
		return l, err
	}
	var t show.Table
	t.Row("RUN", "AGENT", "REASON", "RESULT")
	for i := range runs {
		r := &runs[i]
		why := string(r.Reason)
		if r.Code != "" {
			why += ":" + r.Code
		}
		t.Row(show.Name(r.Run), show.Name(r.Agent), show.Line(why, 28), "")
	}
	var err error
	l.next, err = t.Begin(a.Out, cli.Columns(a.Out))
	return l, err
}

func (l *retryList) add(r retried) error {
	l.results = append(l.results, r)
	if r.State == notRetried {
		l.failed++
	}
	if l.next == nil {
		return nil
	}
	state := r.State
	if r.Problem != "" {
		state += ": " + show.Line(r.Problem, 200)
	}
	return l.next(state)
}

// end prints what is said once of all runs.
func (l *retryList) end() error {
	if slices.ContainsFunc(l.results, func(r retried) bool { return r.State == requested }) {
		fmt.Fprintln(l.a.Err, "agentd: what is requested no worker has handled yet"+lookLater(l.a))
	}
	return l.a.Print(l.results, func(io.Writer) error { return nil })
}

// interrupted is the error of the command that err ended before it had asked all of the runs.
func (l *retryList) interrupted(err error, runs int) error {
	if !errors.Is(err, context.Canceled) {
		return err
	}
	return cli.Interrupted(fmt.Errorf("interrupted after %d of %s", len(l.results), show.Count(runs, "run")))
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
	if errors.Is(err, client.ErrStored) {
		return result, err
	}
	if err != nil && ctx.Err() != nil {
		return result, ctx.Err()
	}
	if err != nil {
		result.State, result.Problem = notRetried, sdk.AsError(err).Message
	}
	return result, nil
}
