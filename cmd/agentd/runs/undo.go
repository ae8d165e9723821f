package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

func undoCommand(a *cli.App) *cobra.Command {
	var calls []string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "undo RUN",
		Short: "Undo what a run did that has ended",
		Long: "undo makes the calls which undo those that the run made, the newest first, where its agent says how (tools.undo). What needs\n" +
			"permission asks for it. A call that is undone, or may be, is not undone again. It needs the rights of an operator, and a worker.",
		Example: "  agentd runs undo trip-7\n  agentd runs undo trip-7 --call c2-0 --call c1-0\n  agentd runs undo trip-7 --dry-run",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStatus(cmd.Context(), a, args[0], func(c *cli.Client, s wire.RunStatus) error {
				if dryRun {
					return wouldUndo(a, s, calls)
				}
				return undo(cmd.Context(), a, c, s, calls)
			})
		},
	}
	cmd.Flags().StringArrayVar(&calls, "call", nil, "the id of a call, or the beginning of it (c2-0), in place of all; may be repeated")
	cli.Narrow(cmd.Flags(), "call")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say which calls would be undone")
	return cmd
}

func wouldUndo(a *cli.App, s wire.RunStatus, named []string) error {
	calls, err := s.Undoes(named)
	if err != nil {
		return err
	}
	return printUndone(a, undone{s.Run, "would be undone", calls})
}

// undone is what became of the calls of a run that were to be undone.
type undone struct {
	Run string `json:"run"`
	// State is "undone", "requested" when no worker has taken the run up yet, "going on", or "would be undone".
	State string          `json:"state"`
	Calls []wire.UndoCall `json:"calls"`
}

func undo(ctx context.Context, a *cli.App, c *cli.Client, s wire.RunStatus, named []string) error {
	calls, err := s.Undoes(named)
	if err != nil {
		return err
	}
	asking := c.Speaking(cli.Source)
	generation, taken, err := asking.Undo(ctx, client.Run{Agent: s.Agent, Name: s.Run}, named...)
	switch {
	case errors.Is(err, client.ErrStored):
		return notYet(a, undone{s.Run, requested, calls}, cli.ExitInterrupted)
	case err != nil:
		return err
	case !taken:
		return notYet(a, undone{s.Run, requested, calls}, cli.ExitFailure)
	}
	waiting, stop := context.WithTimeout(ctx, cancelPatience)
	defer stop()
	_, err = c.WaitDone(waiting, s.Agent, wire.NewRunKey(s.Run), generation.Init)
	switch {
	case ctx.Err() != nil:
		return notYet(a, undone{s.Run, goingOn, calls}, cli.ExitInterrupted)
	case errors.Is(err, context.DeadlineExceeded):
		return notYet(a, undone{s.Run, goingOn, calls}, cli.ExitFailure)
	case err != nil:
		return err
	}
	ended, err := asking.Status(ctx, client.Run{Agent: s.Agent, Name: s.Run})
	if err != nil {
		return err
	}
	var problem wire.Problem
	if ended.Terminal == nil || json.Unmarshal(ended.Terminal.Data, &problem) != nil || len(problem.Undone) == 0 {
		return sdk.Errorf(sdk.CodeInternal, "the end of run %s does not say what was undone; see: %s", s.Run, a.CommandLine("runs", "show", s.Run))
	}
	if err := printUndone(a, undone{s.Run, string(wire.ReasonUndone), problem.Undone}); err != nil {
		return err
	}
	for _, u := range problem.Undone {
		if u.Outcome != wire.UndoDone {
			return errors.New(problem.ErrorMessage)
		}
	}
	return nil
}

const goingOn = "going on"

// notYet prints what has not been undone yet, and ends the command with a code: whoever goes on where it succeeds relies on it.
func notYet(a *cli.App, u undone, code int) error {
	if err := printUndone(a, u); err != nil {
		return err
	}
	return cli.Exit(code)
}

func printUndone(a *cli.App, u undone) error {
	return a.Print(u, func(w io.Writer) error {
		text := u.State
		switch u.State {
		case requested:
			text = "requested; a worker takes the run up when one can" + lookLater(a)
		case goingOn:
			text = "going on; see " + a.CommandLine("runs", "follow", u.Run)
		}
		if _, err := fmt.Fprintln(w, text); err != nil {
			return err
		}
		return show.UndoCalls(w, u.Calls)
	})
}
