// Package runs is agentd runs.
package runs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/core"
	"agentd/internal/milestone"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Command is agentd runs.
func Command(a *cli.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List, show, follow, steer and cancel runs",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(listCommand(a), showCommand(a), followCommand(a), sendCommand(a), cancelCommand(a))
	return cmd
}

func listCommand(a *cli.App) *cobra.Command {
	var f cli.RunFilter
	statuses := []string{string(core.StatusRunning), string(core.StatusWaiting), string(core.StatusDone)}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List runs, those that changed last first",
		Long: "list reads the store of runs, so it works without a worker. With the JetStream store it needs the right to read\n" +
			"the stream of journals.",
		Example: "  agentd runs list --status waiting\n  agentd runs list -o json | jq -r '.[].run'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.Status != "" && !slices.Contains(statuses, f.Status) {
				return cli.Usagef("--status %q: want %s", f.Status, strings.Join(statuses, ", "))
			}
			c, err := a.Client(cmd.Context())
			if err != nil {
				return err
			}
			return c.CloseAfter(list(cmd.Context(), a, c, f))
		},
	}
	cmd.Flags().StringVar(&f.Status, "status", "", "only runs that are running, waiting or done")
	cmd.Flags().StringVar(&f.Agent, "agent", "", "only runs of this agent")
	cmd.Flags().IntVar(&f.Limit, "limit", 50, "the most runs to list (0: all)")
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(statuses, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	return cmd
}

func list(ctx context.Context, a *cli.App, c *cli.Client, f cli.RunFilter) error {
	rows, err := c.Runs(ctx, f)
	if err != nil {
		return err
	}
	slices.SortFunc(rows, func(x, y show.RunRow) int {
		return cmp.Or(cmp.Compare(y.Updated, x.Updated), cmp.Compare(x.Run, y.Run))
	})
	omitted := 0
	if f.Limit > 0 && len(rows) > f.Limit {
		omitted = len(rows) - f.Limit
		rows = rows[:f.Limit]
	}
	return a.Print(rows, func(w io.Writer) error {
		if err := show.Runs(w, rows, cli.Columns(w)); err != nil {
			return err
		}
		if omitted > 0 {
			fmt.Fprintf(a.Err, "%s more; see --limit\n", show.Count(omitted, "run"))
		}
		return nil
	})
}

func cancelCommand(a *cli.App) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:               "cancel RUN",
		Short:             "End a run before its time",
		Long:              "cancel ends a run with the error \"cancelled\" and tells the services of its open calls. It waits for the run's end.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithRun(cmd.Context(), args[0], func(c *cli.Client, _ runner.Store, last core.Entry) error {
				return cancel(cmd.Context(), a, c, &last.Head, reason)
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the run's terminal event")
	return cmd
}

// cancelPatience is how long the command waits for the run's end. A model call in progress is not interrupted.
const cancelPatience = 10 * time.Second

func cancel(ctx context.Context, a *cli.App, c *cli.Client, h *core.Head, reason string) error {
	if h.Status == core.StatusDone {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done already (%s)", h.Run, h.Reason)
	}
	data, err := json.Marshal(map[string]string{"reason": reason})
	if err != nil {
		return fmt.Errorf("encode reason: %w", err)
	}
	err = c.Control(ctx, wire.ControlCancel, h.Agent, h.Key(), wire.Event{
		ID: cli.NewID("cancel"), Source: cli.Source, Type: "agentd.run.cancel", Subject: h.Run, Time: time.Now(), Data: data,
	})
	if err != nil {
		return err
	}
	waiting, stop := context.WithTimeout(ctx, cancelPatience)
	defer stop()
	ended := false
	if h.Init.Reply == nil { // else its end goes to whom the agent was called by
		_, err = c.WaitDone(waiting, h.Agent, h.Key(), h.Init.Token)
		if ended = err == nil; err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
	return a.Print(cancelled{h.Run, ended}, func(w io.Writer) error {
		text := "cancelled"
		if !ended {
			text = "cancel requested; the run ends when a worker has handled it"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// cancelled is a run that was cancelled; Ended says that it has ended by now.
type cancelled struct {
	Run   string `json:"run"`
	Ended bool   `json:"ended"`
}

func followCommand(a *cli.App) *cobra.Command {
	var o follow.Options
	cmd := &cobra.Command{
		Use:   "follow RUN",
		Short: "Follow a run to its result, and answer what it asks",
		Long: "follow shows what the run did and does, answers its open and further questions like agentd run, and prints\n" +
			"the result.",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithRun(cmd.Context(), args[0], func(c *cli.Client, store runner.Store, last core.Entry) error {
				return followRun(cmd.Context(), a, c, store, &last.Head, o)
			})
		},
	}
	follow.AddFlags(cmd, &o)
	return cmd
}

func followRun(ctx context.Context, a *cli.App, c *cli.Client, store runner.Store, h *core.Head, o follow.Options) error {
	r := follow.Run{Subject: h.Run, Agent: h.Agent, Key: h.Key(), Init: h.Init.Token}
	if h.Purged != nil {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done (%s), and its history was removed %s", h.Run, h.Reason, show.Ago(h.Purged.At))
	}
	if h.Init.Reply != nil {
		return fmt.Errorf("run %s answers a call of another run, %s; follow that one", h.Run, h.Init.ReplySubject)
	}
	f := follow.New(a, c, r, o)
	return f.Follow(ctx, func(ctx context.Context) error {
		entries, err := runner.New(runner.Options{Store: store}).Journal(ctx, r.Key)
		if err != nil {
			return err
		}
		quiet := f.Progress.Quiet
		defer func() { f.Progress.Quiet = quiet }()
		f.Progress.Quiet = nil // the desk shows the questions that are open now, not those before
		for i := range entries {
			if i == len(entries)-1 {
				f.Progress.Quiet = quiet
			}
			for _, m := range milestone.Of(&entries[i]) {
				f.Progress.Show(m)
			}
			for _, result := range entries[i].Results {
				f.Desk.Answered[result.Call] = true
			}
		}
		return nil
	})
}
