package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/core"
	"agentd/internal/retry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// hold is what an operator asks of a run that is not to go on, or is to.
type hold struct {
	verb      wire.ControlVerb
	eventType string
	data      map[string]string
	// needless says why it need not be asked; empty is that it must.
	needless func(wire.RunStatus) string
	// heard reports whether the run, as it is now, has heeded it; nil is when it has changed at all. done is what is said then.
	heard func(wire.RunStatus) bool
	done  string
}

func pauseCommand(a *cli.App) *cobra.Command {
	var reason string
	cmd := holdCommand(a, "pause RUN", "Let a run do nothing more until it is resumed",
		"pause keeps a run from making model calls and calls of tools. What is under way is finished: a reply of the model is kept, and\n"+
			"its calls wait. Answers, decisions and messages are absorbed, the run's deadline goes on, and it can be cancelled.",
		func() hold {
			return hold{
				verb: wire.ControlPause, eventType: wire.TypePause, data: map[string]string{"reason": reason},
				needless: func(s wire.RunStatus) string {
					if s.Paused != nil {
						return "paused already"
					}
					return ""
				},
				heard: func(s wire.RunStatus) bool { return s.Paused != nil }, done: "paused",
			}
		})
	cmd.Flags().StringVar(&reason, "reason", "", "why, for agentd runs show")
	return cmd
}

func resumeCommand(a *cli.App) *cobra.Command {
	return holdCommand(a, "resume RUN", "Let a run go on that was paused",
		"resume takes a pause back. A run that waits for its model, too, waits on.",
		func() hold {
			return hold{
				verb: wire.ControlResume, eventType: wire.TypeResume,
				needless: func(s wire.RunStatus) string {
					if s.Paused == nil {
						return "not paused"
					}
					return ""
				},
				heard: func(s wire.RunStatus) bool { return s.Paused == nil }, done: "resumed",
			}
		})
}

func unparkCommand(a *cli.App) *cobra.Command {
	return holdCommand(a, "unpark RUN", "Try a run again at once that waits for its model",
		"unpark has a run ask its model at once, whatever the provider said. When the model answers, all runs go on that wait for it.",
		func() hold {
			return hold{
				verb: wire.ControlUnpark, eventType: wire.TypeUnpark,
				needless: func(s wire.RunStatus) string {
					if s.Parked == nil {
						return "not parked"
					}
					return ""
				},
				done: "tried again",
			}
		})
}

func holdCommand(a *cli.App, use, short, long string, hold func() hold) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: long, Args: cobra.ExactArgs(1), ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withStatus(cmd.Context(), a, args[0], func(c *cli.Client, status wire.RunStatus) error {
				return ask(cmd.Context(), a, c, status, hold())
			})
		},
	}
}

// holdPatience is how long a command waits until the run has heard it.
const holdPatience = 10 * time.Second

// held is a run that was asked to wait or to go on; Heard says that it has heeded it by now.
type held struct {
	Run   string           `json:"run"`
	Verb  wire.ControlVerb `json:"verb"`
	Heard bool             `json:"heard"`
}

func ask(ctx context.Context, a *cli.App, c *cli.Client, s wire.RunStatus, h hold) error {
	if s.Status == core.StatusDone {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done already (%s)", s.Run, s.Reason)
	}
	if why := h.needless(s); why != "" {
		return sdk.Errorf(sdk.CodeConflict, "run %s is %s", s.Run, why)
	}
	if h.data == nil {
		h.data = map[string]string{}
	}
	data, err := json.Marshal(h.data)
	if err != nil {
		return fmt.Errorf("encode what the run is asked: %w", err)
	}
	err = c.Control(ctx, h.verb, s.Agent, wire.NewRunKey(s.Run), "", wire.Event{
		ID: cli.NewID(string(h.verb)), Source: cli.Source, Type: h.eventType, Subject: s.Run, Time: time.Now(), Data: data,
	})
	if err != nil {
		return err
	}
	result := held{Run: s.Run, Verb: h.verb}
	if result.Heard, err = heeded(ctx, c, s, h); err != nil {
		return err
	}
	return a.Print(result, func(w io.Writer) error {
		text := h.done
		if !result.Heard {
			text = string(h.verb) + " requested; a worker has not handled it yet"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	})
}

// heeded waits a moment until the run has heard what it was asked.
func heeded(ctx context.Context, c *cli.Client, before wire.RunStatus, h hold) (bool, error) {
	waiting, stop := context.WithTimeout(ctx, holdPatience)
	defer stop()
	for {
		now, err := find(waiting, c, before.Agent, before.Run)
		switch {
		case err == nil && (h.heard == nil && now.Revision > before.Revision || h.heard != nil && h.heard(now)):
			return true, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case retry.Sleep(waiting, 50*time.Millisecond) != nil:
			return false, nil
		}
	}
}
