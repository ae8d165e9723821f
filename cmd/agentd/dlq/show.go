package dlq

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/deadletter"
	"agentd/internal/runner"
)

func showCommand(a *cli.App) *cobra.Command {
	var secrets bool
	cmd := &cobra.Command{
		Use:   "show SEQUENCE",
		Short: "Show a dead letter: why, the message as it was, and what to do about it",
		Long: "show changes nothing. What looks like a secret, by its name or form, is left out, unless --secrets is given.\n" +
			"--verbose shows the body in full. Sequences are those of: agentd dlq list",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			sequence, err := sequences(args)
			if err != nil {
				return err
			}
			return a.WithStore(cmd.Context(), func(c *cli.Client, store runner.Store) error {
				l, err := deadletter.Get(cmd.Context(), c.Conn, sequence[0])
				if err != nil {
					return err
				}
				return showLetter(cmd.Context(), a, store, l, secrets)
			})
		},
	}
	cmd.Flags().BoolVar(&secrets, "secrets", false, "show the message as it is, with its secrets")
	return cmd
}

// sequences reads the sequences of dead letters.
func sequences(args []string) ([]uint64, error) {
	list := make([]uint64, len(args))
	for i, arg := range args {
		n, err := strconv.ParseUint(arg, 10, 64)
		if err != nil || n == 0 {
			return nil, cli.Usagef("%q is not a sequence of a dead letter; see: agentd dlq list", arg)
		}
		list[i] = n
	}
	return list, nil
}

func showLetter(ctx context.Context, a *cli.App, store runner.Store, l *deadletter.Letter, secrets bool) error {
	d := l.Describe(ctx, store, secrets)
	return a.Print(d, func(w io.Writer) error { return d.Write(w, a.Verbose, a.CommandLine) })
}
