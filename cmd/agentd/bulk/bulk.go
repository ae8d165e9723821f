// Package bulk is agentd bulk.
package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/bulk"
	"agentd/internal/index"
	"agentd/internal/show"
	"agentd/sdk"
)

// Command is agentd bulk.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bulk",
		Short: "Do one thing with many runs",
		Long: "bulk does one thing with all runs that a filter selects: it finds them, says how many they are and names some, and begins when\n" +
			"somebody confirms that number. Each run is looked at again before anything is done to it, and is asked once, however often the\n" +
			"command is killed: agentd bulk continue goes on. What became of each run is kept for 90 days. It needs the rights of an operator.",
	}
	for _, v := range []struct {
		verb  bulk.Verb
		short string
	}{
		{bulk.VerbCancel, "Cancel runs"},
		{bulk.VerbPause, "Let runs do nothing more until they are resumed"},
		{bulk.VerbResume, "Let runs go on that were paused"},
		{bulk.VerbRetry, "Take up runs that ended with an error, by a limit or by their deadline"},
		{bulk.VerbMessage, "Send runs a message"},
		{bulk.VerbTag, "Give runs tags, which --text has as key=value,key=value"},
		{bulk.VerbPurge, "Remove the histories of runs that have ended"},
		{bulk.VerbRedrive, "Publish dead letters again where they came from"},
	} {
		cmd.AddCommand(proposeCommand(a, v.verb, v.short))
	}
	cmd.AddCommand(listCommand(a), showCommand(a), continueCommand(a), stopCommand(a))
	return cmd
}

// redriving is the help of redrive, whose filter is of dead letters.
const redriving = "FILTER is of what dead letters have: code:unknown_run, which is the reason, run:, agent:travel.*, and changed>-1h, when they came.\n" +
	"code:* is all of them. What agentd dlq redrive refuses is left where it is. Without --yes it only finds the letters."

func proposeCommand(a *cli.App, verb bulk.Verb, short string) *cobra.Command {
	var f cli.RunFilter
	r := bulk.Request{Verb: verb}
	confirmed := 0
	cmd := &cobra.Command{
		Use:     string(verb) + " FILTER",
		Short:   short,
		Long:    "See agentd runs list --help for FILTER and its short forms. Without --yes it only finds the runs.",
		Example: fmt.Sprintf("  agentd bulk %s 'tag.tenant:acme changed<-1d'\n  agentd bulk continue JOB --yes 12", verb),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if r.Filter, err = f.Filter(args); err != nil {
				return err
			}
			if _, err := index.ParseFilter(r.Filter.String()); err != nil {
				return cli.Usage(err) // of what --status says, or of all flags together
			}
			return withBulk(cmd.Context(), a, func(ctx context.Context, c *cli.Client, b bulk.Bulk) error {
				r.Who = c.Who()
				job, err := b.Propose(ctx, r)
				if errors.Is(err, &sdk.Error{Code: sdk.CodeContractViolation}) {
					return cli.Usage(err) // nothing was looked for
				}
				if err != nil {
					return err
				}
				if confirmed == 0 || job.Runs == 0 {
					return printJob(a, job)
				}
				return carryOut(ctx, a, b, job, confirmed)
			})
		},
	}
	cli.CountVar(cmd.Flags(), &r.Rate, "rate", bulk.DefaultRate, 1, "how many a second")
	cli.CountVar(cmd.Flags(), &confirmed, "yes", 0, 0, "begin at once if this is how many there are")
	if verb == bulk.VerbRedrive {
		cmd.Long, cmd.Example = redriving, "  agentd bulk redrive 'code:unknown_run changed>-1h' --rate 5\n  agentd bulk continue JOB --yes 12"
		return cmd
	}
	cmd.Flags().StringVar(&f.Status, "status", "", "only runs with this status (status:)")
	cli.Narrow(cmd.Flags(), "status")
	f.AddFlags(cmd)
	cmd.Flags().StringVar(&r.Said, "text", "", "the message, the tags, or why")
	return cmd
}

// withBulk calls do with a connection and what carries out jobs.
func withBulk(ctx context.Context, a *cli.App, do func(context.Context, *cli.Client, bulk.Bulk) error) error {
	return a.WithClient(ctx, func(c *cli.Client) error {
		return c.Permitted(ctx, func(ctx context.Context) error {
			store, err := c.OpenStore(ctx)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }() // nothing is lost with it
			b, err := bulk.Open(ctx, c.Conn, store)
			if err != nil {
				return err
			}
			return do(ctx, c, b)
		})
	})
}

// carryOut confirms a job and does what it is for.
func carryOut(ctx context.Context, a *cli.App, b bulk.Bulk, job *bulk.Job, confirmed int) error {
	if job.State != bulk.Running {
		if err := b.Confirm(ctx, job, confirmed); err != nil {
			return err
		}
	}
	err := b.CarryOut(ctx, job, func(j *bulk.Job) {
		fmt.Fprintf(a.Err, "%d of %s: %s\n", counted(j), show.Count(j.Runs, of(j)), counts(j))
	})
	if err != nil {
		return fmt.Errorf("%w\ngo on with: %s", err, a.CommandLine("bulk", "continue", job.ID))
	}
	if err := printJob(a, job); err != nil {
		return err
	}
	if failed := job.Counts[bulk.Failed]; failed > 0 {
		return fmt.Errorf("%s failed; see: %s", show.Count(failed, of(job)), a.CommandLine("bulk", "show", job.ID))
	}
	return nil
}

// of is what a job is about: it has so many of them.
func of(job *bulk.Job) string {
	if job.Verb == bulk.VerbRedrive {
		return "letter"
	}
	return "run"
}

func counted(job *bulk.Job) int {
	n := 0
	for _, of := range job.Counts {
		n += of
	}
	return n
}

func counts(job *bulk.Job) string {
	var texts []string
	for _, outcome := range slices.Sorted(maps.Keys(job.Counts)) {
		texts = append(texts, fmt.Sprintf("%d %s", job.Counts[outcome], outcome))
	}
	return strings.Join(texts, ", ")
}

// printJob prints a job without what became of each run.
func printJob(a *cli.App, job *bulk.Job) error {
	return a.Print(job, func(w io.Writer) error {
		fmt.Fprintf(w, "job     %s\nverb    %s\nfilter  %s\nstate   %s\n%s%d\n", job.ID, job.Verb, show.Line(job.Filter.String(), show.LineMax), job.State, show.Pad(of(job)+"s", 8), job.Runs)
		for _, run := range job.Samples {
			fmt.Fprintf(w, "        %s\n", show.Line(run, show.LineMax))
		}
		if more := job.Runs - len(job.Samples); more > 0 {
			fmt.Fprintf(w, "        and %d more\n", more)
		}
		if job.Problem != "" {
			fmt.Fprintf(w, "why     %s\n", show.Line(job.Problem, show.LineMax))
		}
		if len(job.Counts) > 0 {
			fmt.Fprintf(w, "so far  %s\n", counts(job))
		}
		if job.State == bulk.Proposed && job.Runs > 0 {
			fmt.Fprintf(w, "begin   %s\n", a.CommandLine("bulk", "continue", job.ID, "--yes", strconv.Itoa(job.Runs)))
		}
		return nil
	})
}

func listCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List jobs, the newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withBulk(cmd.Context(), a, func(ctx context.Context, _ *cli.Client, b bulk.Bulk) error {
				jobs, err := b.List(ctx)
				if err != nil {
					return err
				}
				return a.Print(jobs, func(w io.Writer) error { return writeJobs(w, jobs, cli.Columns(w)) })
			})
		},
	}
}

func writeJobs(w io.Writer, jobs []*bulk.Job, columns int) error {
	if len(jobs) == 0 {
		_, err := fmt.Fprintln(w, "no bulk jobs")
		return err
	}
	var t show.Table
	t.Row("JOB", "VERB", "STATE", "MADE", "OF", "FILTER")
	for _, j := range jobs {
		t.Row(j.ID, string(j.Verb), string(j.State), show.Ago(j.Created), show.Count(j.Runs, of(j)), show.Line(j.Filter.String(), show.LineMax))
	}
	return t.Write(w, "", columns)
}

// shown is a job with what became of its runs.
type shown struct {
	*bulk.Job
	Results []bulk.Result `json:"results"`
}

func showCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "show JOB", Short: "Show a job, and what became of each run", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd.Context(), a, args[0], func(ctx context.Context, b bulk.Bulk, job *bulk.Job) error {
				all := shown{job, []bulk.Result{}}
				err := b.Results(ctx, job, func(results []bulk.Result) error {
					all.Results = append(all.Results, results...)
					return nil
				})
				if err != nil {
					return err
				}
				if a.Output == cli.OutputJSON {
					return a.Print(all, nil)
				}
				if err := printJob(a, job); err != nil {
					return err
				}
				for _, r := range all.Results {
					text := show.Pad(string(r.Outcome), 8) + show.Name(r.Run)
					if r.Problem != "" {
						text += ": " + show.Line(r.Problem, show.LineMax)
					}
					fmt.Fprintln(a.Out, text)
				}
				return nil
			})
		},
	}
}

func continueCommand(a *cli.App) *cobra.Command {
	confirmed := 0
	cmd := &cobra.Command{
		Use: "continue JOB [--yes N]", Short: "Begin a job, or go on with one whose program was killed", Args: cobra.ExactArgs(1),
		Long: "continue begins a job that was proposed or stopped, with --yes and how many runs it has, and goes on with one that had begun: what was\n" +
			"done is not done again. A job that another program carries out is left to it; one that was killed is taken to be gone after 30 s.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd.Context(), a, args[0], func(ctx context.Context, b bulk.Bulk, job *bulk.Job) error {
				if confirmed == 0 && job.Runs > 0 && (job.State == bulk.Proposed || job.State == bulk.Stopped) {
					return cli.Usagef("bulk job %s is %s; look at it, and confirm it with its number: %s", job.ID, job.State, a.CommandLine("bulk", "show", job.ID))
				}
				return carryOut(ctx, a, b, job, confirmed)
			})
		},
	}
	cli.CountVar(cmd.Flags(), &confirmed, "yes", 0, 0, "how many runs the job has")
	return cmd
}

func stopCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "stop JOB", Short: "Do nothing to further runs of a job", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd.Context(), a, args[0], func(ctx context.Context, b bulk.Bulk, job *bulk.Job) error {
				if err := b.Stop(ctx, job); err != nil {
					return err
				}
				return printJob(a, job)
			})
		},
	}
}

func withJob(ctx context.Context, a *cli.App, id string, do func(context.Context, bulk.Bulk, *bulk.Job) error) error {
	return withBulk(ctx, a, func(ctx context.Context, _ *cli.Client, b bulk.Bulk) error {
		job, err := b.Get(ctx, id)
		if err != nil {
			return err
		}
		return do(ctx, b, job)
	})
}
