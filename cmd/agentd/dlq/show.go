package dlq

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/deadletter"
	"agentd/internal/runner"
	"agentd/internal/show"
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
	shownLetter := *l
	if !secrets {
		shownLetter = l.Redacted()
	}
	d := show.LetterDetail{
		Letter: shown(&shownLetter), Who: l.Address.Who, Status: l.RunStatus(ctx, store), Headers: shownLetter.Headers, Omitted: l.Omitted,
		Advice: deadletter.Advice(l.Reason), Source: l.Event.Source, ParentID: l.Event.ParentID, DataSchema: l.Event.DataSchema, Size: len(l.Data),
	}
	switch data := shownLetter.Data; {
	case json.Valid(data):
		d.Body = data
	case utf8.Valid(data) && len(data) > 0:
		d.Body, _ = json.Marshal(string(data)) // a text always encodes
	default:
		d.Binary = data
	}
	if l.Undecodable != nil && !l.Omitted {
		d.Undecodable = l.Undecodable.Error()
	}
	if err := l.Redrivable(ctx, store); err != nil {
		d.Refusal = show.Problem(err)
	}
	return a.Print(d, func(w io.Writer) error { return d.Write(w, a.Verbose) })
}
