package runs

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// hold is what an operator asks of a run that is not to go on, or is to.
type hold struct {
	verb wire.ControlVerb
	ask  func(context.Context, *client.Client, client.Run) (heeded bool, err error)
	// needless says why it need not be asked; empty is that it must.
	needless func(wire.RunStatus) string
	// done is what is said when the run heeds it.
	done string
}

func pauseCommand(a *cli.App) *cobra.Command {
	var reason string
	cmd := holdCommand(a, "pause RUN", "Let a run do nothing more until it is resumed",
		"pause keeps a run from making model calls and calls of tools. What is under way is finished: a reply of the model is kept, and\n"+
			"its calls wait. Answers, decisions and messages are absorbed, the run's deadline goes on, and it can be cancelled.",
		hold{
			verb: wire.ControlPause, done: "paused",
			ask: func(ctx context.Context, c *client.Client, run client.Run) (bool, error) {
				return c.Pause(ctx, run, reason)
			},
			needless: func(s wire.RunStatus) string {
				if s.Paused != nil {
					return "paused already"
				}
				return ""
			},
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for agentd runs show")
	return cmd
}

func resumeCommand(a *cli.App) *cobra.Command {
	return holdCommand(a, "resume RUN", "Let a run go on that was paused",
		"resume takes a pause back. A run that waits for its model, too, waits on.",
		hold{
			verb: wire.ControlResume, done: "resumed",
			ask: func(ctx context.Context, c *client.Client, run client.Run) (bool, error) { return c.Resume(ctx, run) },
			needless: func(s wire.RunStatus) string {
				if s.Paused == nil {
					return "not paused"
				}
				return ""
			},
		})
}

func unparkCommand(a *cli.App) *cobra.Command {
	return holdCommand(a, "unpark RUN", "Try a run again at once that waits for its model",
		"unpark has a run ask its model at once, whatever the provider said. When the model answers, all runs go on that wait for it.",
		hold{
			verb: wire.ControlUnpark, done: "tried again",
			ask: func(ctx context.Context, c *client.Client, run client.Run) (bool, error) { return c.Unpark(ctx, run) },
			needless: func(s wire.RunStatus) string {
				if s.Parked == nil {
					return "not parked"
				}
				return ""
			},
		})
}

func tagCommand(a *cli.App) *cobra.Command {
	return &cobra.Command{
		Use: "tag RUN KEY=VALUE… KEY-…", Short: "Change by which tags a run is found", Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.CompleteRuns,
		Long:    "tag gives a run tags, in place of those with the same keys; KEY- takes one away. A run that is done keeps what it has.",
		Example: "  agentd runs tag order-7 ticket=4711 urgent-",
		RunE: func(cmd *cobra.Command, args []string) error {
			tags, err := tagsIn(args[1:])
			if err != nil {
				return err
			}
			return withStatus(cmd.Context(), a, args[0], func(c *cli.Client, status wire.RunStatus) error {
				return hold{
					verb: wire.ControlTag, done: "tagged", needless: func(wire.RunStatus) string { return "" },
					ask: func(ctx context.Context, c *client.Client, run client.Run) (bool, error) {
						return c.Tag(ctx, run, tags)
					},
				}.carryOut(cmd.Context(), a, c, status)
			})
		},
	}
}

// tagsIn reads what tags are to be: KEY=VALUE, or KEY- for one that is to go.
func tagsIn(args []string) (map[string]*string, error) {
	tags, given := map[string]*string{}, map[string]string{}
	for _, arg := range args {
		key, value, is := strings.Cut(arg, "=")
		gone, goes := strings.CutSuffix(arg, "-")
		switch {
		case is:
			tags[key], given[key] = &value, value
		case goes:
			tags[gone] = nil
			if err := wire.CheckTagKey(gone); err != nil {
				return nil, cli.Usage(err)
			}
		default:
			return nil, cli.Usagef("%q: want KEY=VALUE, or KEY- to take a tag away", arg)
		}
	}
	if err := wire.CheckTags(given); err != nil {
		return nil, cli.Usage(err)
	}
	return tags, nil
}

func holdCommand(a *cli.App, use, short, long string, h hold) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStatus(cmd.Context(), a, args[0], func(c *cli.Client, status wire.RunStatus) error {
				return h.carryOut(cmd.Context(), a, c, status)
			})
		},
	}
}

// held is a run that was asked to wait or to go on; Heard says that it has heeded it by now.
type held struct {
	Run   string           `json:"run"`
	Verb  wire.ControlVerb `json:"verb"`
	Heard bool             `json:"heard"`
}

func (h hold) carryOut(ctx context.Context, a *cli.App, c *cli.Client, s wire.RunStatus) error {
	if s.Status == wire.StatusDone {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done already (%s)", s.Run, s.Reason)
	}
	if why := h.needless(s); why != "" {
		return sdk.Errorf(sdk.CodeConflict, "run %s is %s", s.Run, why)
	}
	heard, err := h.ask(ctx, c.Speaking(cli.Source), client.Run{Agent: s.Agent, Name: s.Run})
	text := h.done
	if !heard {
		text = string(h.verb) + " requested; a worker has not handled it yet" + lookLater(a)
	}
	return tell(a, err, held{s.Run, h.verb, heard}, text)
}
