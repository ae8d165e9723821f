package approvals

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/sdk/client"
)

// An answer that is stored when a person interrupts the command is not said to be taken, nor one that the run took to have failed.
func TestInterrupted_IsOfWhatIsNotKnownYet(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx   context.Context
		state client.OutcomeState
		want  int
	}{
		{ended, client.OutcomeSent, cli.ExitInterrupted},
		{ended, client.OutcomeCounted, cli.ExitOK},
		{t.Context(), client.OutcomeSent, cli.ExitOK},
	} {
		command := func(*cli.App) *cobra.Command {
			return &cobra.Command{Use: "answer", RunE: func(cmd *cobra.Command, _ []string) error {
				return interrupted(cmd.Context(), client.Outcome{State: c.state}, nil)
			}}
		}
		if code := cli.Run(c.ctx, []string{"answer"}, cli.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, command); code != c.want {
			t.Errorf("an answer that is %s ends with %d, want %d", c.state, code, c.want)
		}
	}
}
