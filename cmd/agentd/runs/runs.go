// Package runs is agentd runs.
package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/core"
	"agentd/internal/index"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Command is agentd runs.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show, follow, steer, pause, cancel, tag, retry, undo and purge runs",
	}
	cmd.AddCommand(listCommand(a), showCommand(a), followCommand(a), sendCommand(a), cancelCommand(a),
		pauseCommand(a), resumeCommand(a), unparkCommand(a), tagCommand(a), retryCommand(a), undoCommand(a), purgeCommand(a))
	return cmd
}

func listCommand(a *cli.App) *cobra.Command {
	var f cli.RunFilter
	var limit uint
	statuses := []string{string(core.StatusRunning), string(core.StatusWaiting), string(core.StatusDone), string(show.Refused)}
	cmd := &cobra.Command{
		Use:   "list [FILTER]",
		Short: "List runs, those that changed last first",
		Long: "list asks whoever has the index of runs, such as a console, and otherwise reads the store of runs, so it works without a\n" +
			"worker. Whoever may not read it is shown the runs that they started, by the workers of the configured agents.\n\n" +
			"FILTER is of conditions such as status:waiting waits:permission tag.tenant:acme changed>-1h -reason:completed \"lisbon\";\n" +
			"the flags are short forms of some. Put it in quotes: a shell reads > and \" itself.",
		Example: "  agentd runs list --status waiting\n  agentd runs list --failed --since 24h\n" +
			"  agentd runs list 'tag.tenant:acme waits:permission'\n  agentd runs list -o json | jq -r '.[].run'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.Status != "" && !slices.Contains(statuses, f.Status) {
				return cli.Usagef("--status %q: want %s", f.Status, strings.Join(statuses, ", "))
			}
			filter, err := f.Filter(args)
			if err != nil {
				return err
			}
			refused := f.Status == string(show.Refused)
			if refused && len(filter.Without(index.KeyStatus, index.KeyAgent).Terms) > 0 {
				return cli.Usagef("runs that never began can be listed by --agent only")
			}
			return a.WithClient(cmd.Context(), func(c *cli.Client) error {
				if refused {
					return listRefused(cmd.Context(), a, c, f.Agent, int(limit))
				}
				return list(cmd.Context(), a, c, filter, int(limit))
			})
		},
	}
	cmd.Flags().StringVar(&f.Status, "status", "", "only runs that are running, waiting or done (status:), or that never began (refused)")
	cli.Narrow(cmd.Flags(), "status")
	f.AddFlags(cmd)
	cmd.Flags().UintVar(&limit, "limit", 50, "the most runs to list (0: all)")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func list(ctx context.Context, a *cli.App, c *cli.Client, f index.Filter, limit int) error {
	found, err := c.Newest(ctx, f, limit)
	if err != nil {
		return err
	}
	rows := make([]show.RunRow, len(found.Runs))
	for i := range found.Runs {
		rows[i] = found.Runs[i].Row
	}
	if err := printRows(a, rows, found.More); err != nil {
		return err
	}
	if x := found.Index; x != nil && x.Behind > 0 {
		fmt.Fprintf(a.Err, "agentd: the index of runs is %s behind; runs that changed since %s may be missing\n", show.Count(int(min(x.Behind, math.MaxInt32)), "document"), show.Ago(x.AsOf))
	}
	if found.State.Lacks(c.Config.Reconcile.Interval, c.Now()) {
		fmt.Fprintln(a.Err, "agentd: the index of runs was made when there were runs already; those that agentd reconcile, or a worker's pass, has not taken up yet are missing")
	}
	return nil
}

func listRefused(ctx context.Context, a *cli.App, c *cli.Client, agent string, limit int) error {
	rows, err := c.RefusedRuns(ctx, agent)
	if err != nil {
		return err
	}
	more := limit > 0 && len(rows) > limit
	if more {
		rows = rows[:limit]
	}
	return printRows(a, rows, more)
}

func printRows(a *cli.App, rows []show.RunRow, more bool) error {
	err := a.Print(rows, func(w io.Writer) error { return show.Runs(w, rows, cli.Columns(w)) })
	if more {
		fmt.Fprintln(a.Err, "there are more; see --limit")
	}
	return err
}

func cancelCommand(a *cli.App) *cobra.Command {
	var agent, reason, call string
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End a run before its time, or give up one of its calls",
		Long: "cancel ends a run with the error \"cancelled\" and tells the services of its open calls. It waits for the run's end. With\n" +
			"--call it gives up that call alone: its service is told, the model sees that it was cancelled, and the run goes on.\n" +
			"With --agent it also cancels a run that has not begun: the cancel is stored, and waits two minutes for the run.",
		Example:           "  agentd runs cancel trip-7 --reason \"not any more\"\n  agentd runs cancel trip-7 --call c2-0",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withExpected(cmd.Context(), a, agent, args[0], func(c *cli.Client, status wire.RunStatus) error {
				if call != "" {
					return cancelCall(cmd.Context(), a, c, status, call, reason)
				}
				return cancel(cmd.Context(), a, c, status, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the run's terminal event, or the call's result")
	cmd.Flags().StringVar(&call, "call", "", "the id of the call, or the beginning of it (c2-0)")
	addAgent(cmd, &agent)
	cli.Narrow(cmd.Flags(), "call")
	return cmd
}

// addAgent adds the flag by which commands know the agent of a run that no worker knows.
func addAgent(cmd *cobra.Command, agent *string) {
	cmd.Flags().StringVar(agent, "agent", "", "the run's agent, for a run that may not have begun (default: those of the configuration are asked)")
	cli.Narrow(cmd.Flags(), "agent")
}

func cancelCall(ctx context.Context, a *cli.App, c *cli.Client, s wire.RunStatus, call, reason string) error {
	done, err := c.Speaking(cli.Source).CancelCall(ctx, client.Run{Agent: s.Agent, Name: s.Run}, call, reason)
	text := "cancelled"
	if !done {
		text = "cancel requested; the call had its result before, or a worker has not handled it yet; see: " + a.CommandLine("runs", "show", s.Run)
	}
	return tell(a, err, callCancelled{s.Run, call, done}, text)
}

// callCancelled is a call that somebody wanted cancelled; Cancelled says that it is by now.
type callCancelled struct {
	Run       string `json:"run"`
	Call      string `json:"call"`
	Cancelled bool   `json:"cancelled"`
}

// cancelPatience is how long the command waits for the run's end. A model call in progress is not interrupted.
const cancelPatience = 10 * time.Second

func cancel(ctx context.Context, a *cli.App, c *cli.Client, s wire.RunStatus, reason string) error {
	if s.Status == core.StatusDone {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done already (%s)", s.Run, s.Reason)
	}
	asking, run, who := c.Speaking(cli.Source), client.Run{Agent: s.Agent, Name: s.Run}, s.CancelAs(c.Who())
	if err := asking.As(who).Cancel(ctx, run, reason); err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, cancelPatience)
	defer stop()
	_, err := asking.Wait(waiting, run)
	if waiting.Err() == nil {
		if problem := notCancelled(s.Run, err); problem != nil {
			return problem
		}
		return tell(a, nil, cancelled{s.Run, true}, "cancelled")
	}
	text := "cancel requested; the run ends when a worker has handled it"
	if s.Status == "" {
		text = "cancel requested; the run has not begun, and the cancel waits two minutes for it"
	}
	if ctx.Err() != nil {
		return tell(a, client.ErrStored, cancelled{s.Run, false}, text+lookLater(a))
	}
	why, err := c.Refusal(ctx, wire.ControlCancel, s.Agent, wire.NewRunKey(s.Run), who, "")
	if why != nil {
		return why
	}
	if err != nil && !cli.NotPermitted(err) {
		return err
	}
	return tell(a, nil, cancelled{s.Run, false}, text+lookLater(a))
}

// notCancelled is what keeps a run from having been cancelled for which err was waited: it has ended otherwise, or nothing is known of it.
func notCancelled(run string, err error) error {
	ended, failed := errors.AsType[*client.RunError](err)
	switch {
	case failed && ended.Err.Code == sdk.CodeCancelled:
		return nil
	case failed:
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s ended before it was cancelled (%s): %s", run, ended.Reason, ended.Err.Message)
	case err == nil:
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s ended before it was cancelled (%s)", run, wire.ReasonCompleted)
	}
	return err
}

// cancelled is a run that was cancelled; Ended says that it has ended by now.
type cancelled struct {
	Run   string `json:"run"`
	Ended bool   `json:"ended"`
}

func followCommand(a *cli.App) *cobra.Command {
	var o follow.Options
	var agent string
	cmd := &cobra.Command{
		Use:   "follow RUN",
		Short: "Follow a run to its result, and answer what it asks",
		Long: "follow shows what the run did and does, answers its open and further questions like agentd run, and prints\n" +
			"the result. With --agent it waits for a run that has not begun.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withExpected(cmd.Context(), a, agent, args[0], func(c *cli.Client, status wire.RunStatus) error {
				return followRun(cmd.Context(), a, c, status, o)
			})
		},
	}
	follow.AddFlags(cmd, &o)
	addAgent(cmd, &agent)
	return cmd
}

func followRun(ctx context.Context, a *cli.App, c *cli.Client, s wire.RunStatus, o follow.Options) error {
	if err := follow.Followable(s); err != nil {
		return err
	}
	f := follow.New(a, c, follow.Run{Subject: s.Run, Agent: s.Agent, Key: wire.NewRunKey(s.Run), Init: s.Init}, o)
	return f.Follow(ctx, func(ctx context.Context) error {
		history := c.Speaking(cli.Source).History(ctx, client.Run{Agent: s.Agent, Name: s.Run}, wire.Mark{})
		var milestones []wire.Live
		for l, err := range history {
			if cli.NotBegun(err) {
				break // it is told when a worker comes
			}
			if err != nil {
				return err
			}
			milestones = append(milestones, l)
		}
		quiet := f.Progress.Quiet
		defer func() { f.Progress.Quiet = quiet }()
		f.Progress.Quiet = nil // the desk shows the questions that are open now, not those before
		for _, l := range milestones {
			if l.Revision == milestones[len(milestones)-1].Revision {
				f.Progress.Quiet = quiet
			}
			f.Progress.Show(l)
		}
		return nil
	})
}
