package dlq

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/deadletter"
	"agentd/internal/runner"
	"agentd/internal/show"
)

func redriveCommand(a *cli.App) *cobra.Command {
	var f letterFlags
	cmd := &cobra.Command{
		Use:   "redrive [SEQUENCE...]",
		Short: "Publish dead letters again where they came from",
		Long: "redrive publishes a message again on the subject that it came from, with the header agentd-redrives, which counts,\n" +
			"and removes the dead letter. A message that cannot come to more than before is refused, and stays: one that is not an\n" +
			"event, whose run has ended, or that only workers publish. The others are redriven all the same; the exit code is 1.\n\n" +
			"An answer is published only if nothing but dead letters came on its subject since.",
		Example: "  agentd dlq redrive 12 15\n  agentd dlq redrive --reason unknown_run --since 1h",
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := f.choose(args)
			if err != nil {
				return err
			}
			return a.WithStore(cmd.Context(), func(c *cli.Client, store runner.Store) error {
				return eachLetter(cmd.Context(), a, c, chosen, func(l *deadletter.Letter) (string, error) {
					return l.Redrive(cmd.Context(), c.Conn, store)
				})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func dropCommand(a *cli.App) *cobra.Command {
	var f letterFlags
	var yes bool
	cmd := &cobra.Command{
		Use:     "drop [SEQUENCE...] --yes",
		Short:   "Delete dead letters for good",
		Example: "  agentd dlq drop 12 15 --yes\n  agentd dlq drop --reason invalid_event --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return cli.Usage(errors.New("drop deletes messages for good; say so with --yes"))
			}
			chosen, err := f.choose(args)
			if err != nil {
				return err
			}
			return a.WithClient(cmd.Context(), func(c *cli.Client) error {
				return eachLetter(cmd.Context(), a, c, chosen, func(l *deadletter.Letter) (string, error) {
					return "dropped", c.SettleLetter(cmd.Context(), l.Letter, "dropped")
				})
			})
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&yes, "yes", false, "delete without a question")
	return cmd
}

// handled is what became of one dead letter.
type handled struct {
	Sequence uint64 `json:"seq"`
	// Done says what was done; empty when it was refused, for which Problem says why.
	Done    string `json:"done,omitempty"`
	Problem string `json:"problem,omitempty"`
}

// choice is which dead letters a command is for: those named, or those that the flags select.
type choice struct {
	named  []uint64
	flags  letterFlags
	filter broker.LetterFilter
}

func (f letterFlags) choose(args []string) (choice, error) {
	if (len(args) > 0) == f.given() {
		return choice{}, cli.Usage(errors.New("name dead letters by sequence, or select them with --reason, --run, --agent or --since"))
	}
	named, err := sequences(args)
	if err != nil {
		return choice{}, err
	}
	filter, err := f.filter()
	return choice{named, f, filter}, err
}

// eachLetter does something with every chosen dead letter. One that fails does not keep the others.
func eachLetter(ctx context.Context, a *cli.App, c *cli.Client, chosen choice, do func(*deadletter.Letter) (string, error)) error {
	all := []handled{}
	handle := func(sequence uint64) {
		l, err := deadletter.Get(ctx, c.Conn, sequence) // anew, with its body if that was omitted
		h := handled{Sequence: sequence}
		if err == nil {
			h.Done, err = do(l)
		}
		if err != nil && ctx.Err() != nil {
			return // interrupted, and not refused
		}
		if err != nil {
			h.Done, h.Problem = "", show.Problem(err)
		}
		all = append(all, h)
		showHandled(a, h)
	}
	for _, sequence := range chosen.named {
		if ctx.Err() == nil {
			handle(sequence)
		}
	}
	err := ctx.Err()
	if len(chosen.named) == 0 {
		err = c.Letters(ctx, chosen.filter, func(b broker.Letter) (bool, error) {
			if chosen.flags.matches(deadletter.Of(c.Subjects(), b)) {
				handle(b.Sequence)
			}
			return ctx.Err() == nil, ctx.Err()
		})
	}
	return reportHandled(a, all, err)
}

// showHandled prints what became of one dead letter, when it did.
func showHandled(a *cli.App, h handled) {
	switch {
	case a.Output == cli.OutputJSON:
	case h.Problem != "":
		fmt.Fprintf(a.Err, "%d  refused: %s\n", h.Sequence, show.VisibleLines(h.Problem))
	default:
		fmt.Fprintf(a.Out, "%d  %s\n", h.Sequence, show.VisibleLines(h.Done))
	}
}

func reportHandled(a *cli.App, all []handled, err error) error {
	printing := a.Print(all, func(w io.Writer) error {
		if len(all) == 0 && err == nil {
			fmt.Fprintln(w, "no dead letters")
		}
		return nil
	})
	if err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	for _, h := range all {
		if h.Problem != "" {
			return cli.Exit(cli.ExitFailure)
		}
	}
	return nil
}
