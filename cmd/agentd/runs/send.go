package runs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/core"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

func sendCommand(a *cli.App) *cobra.Command {
	var agent string
	var urgent bool
	cmd := &cobra.Command{
		Use:   "send RUN TEXT",
		Short: "Send a message into a run",
		Long: "send tells the model something while it works or waits. What becomes of the message is up to the agent (steering):\n" +
			"it waits for the next model call, interrupts what is in progress, or is refused.\n" +
			"send asks the workers of the configured agents for the run, and waits until the run has the message. For a run of\n" +
			"another agent, or without a worker, it needs the right to read the store of runs.",
		Example:           "  agentd runs send order-7 'Take the train instead.'",
		Args:              cobra.ExactArgs(2),
		ValidArgsFunction: a.CompleteRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.WithClient(cmd.Context(), func(c *cli.Client) error { return send(cmd.Context(), a, c, agent, urgent, args[0], args[1]) })
		},
	}
	cmd.Flags().StringVar(&agent, "agent", "", "the run's agent (default: those of the configuration are asked)")
	cmd.Flags().BoolVar(&urgent, "urgent", false, "the model reads it before the messages that wait and are not urgent")
	cli.Narrow(cmd.Flags(), "agent")
	return cmd
}

func send(ctx context.Context, a *cli.App, c *cli.Client, agent string, urgent bool, run, text string) error {
	status, known, err := locate(ctx, c, agent, run)
	if err != nil {
		return err
	}
	if !known {
		return c.NotThere(run)
	}
	if err := refusesMessage(c, status); err != nil {
		return err
	}
	speaking := c.Speaking(cli.Source)
	say := speaking.Send
	if urgent {
		say = speaking.SendUrgent
	}
	heard, err := say(ctx, client.Run{Agent: status.Agent, Name: run}, text)
	answer := "the run has the message"
	if !heard {
		answer = "sent; the run gets the message when a worker has handled it" + lookLater(a)
	}
	return tell(a, err, sent{run, heard}, answer)
}

// tell prints what became of a request, also of one that is stored and was not waited for, which a person interrupted. err is that of the request.
func tell(a *cli.App, err error, became any, text string) error {
	if err != nil && !errors.Is(err, client.ErrStored) {
		return err
	}
	printing := a.Print(became, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, text)
		return err
	})
	if printing == nil && err != nil {
		return cli.Exit(cli.ExitInterrupted)
	}
	return printing
}

// lookLater is where it says what became of a request that no worker has handled yet, and may refuse.
func lookLater(a *cli.App) string { return " (if it is refused: " + a.CommandLine("dlq", "list") + ")" }

// sent is a message to a run; Heard says that the run has it.
type sent struct {
	Run   string `json:"run"`
	Heard bool   `json:"heard"`
}

// refusesMessage says what is known of a run that would not take the message, before it is sent.
func refusesMessage(c *cli.Client, s wire.RunStatus) error {
	if s.Status == core.StatusDone {
		return sdk.Errorf(sdk.CodeMessageRefused, "run %s is done (%s)", s.Run, s.Reason)
	}
	for i := range c.Config.Agents {
		if spec := &c.Config.Agents[i]; spec.Name == s.Agent && spec.Steering == sdk.SteeringReject {
			return sdk.Errorf(sdk.CodeMessageRefused, "agent %s takes no messages while it works (steering: reject)", s.Agent)
		}
	}
	return nil
}
