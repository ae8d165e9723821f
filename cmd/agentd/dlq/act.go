package dlq

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func redriveCommand(a *cli.App) *cobra.Command {
	var f letterFlags
	cmd := &cobra.Command{
		Use:   "redrive [SEQUENCE...]",
		Short: "Publish dead letters again where they came from",
		Long: "redrive publishes a message again on the subject that it came from, with the header agentd-redrives, which counts,\n" +
			"and removes the dead letter. A message that cannot come to more than before is refused, and stays: one that is no\n" +
			"event, whose run has ended, or that only workers publish. The others are redriven all the same; the exit code is 1.\n\n" +
			"An answer is published only if nothing but dead letters came on its subject since.",
		Example: "  agentd dlq redrive 12 15\n  agentd dlq redrive --reason unknown_run --since 1h",
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen, err := f.choose(args)
			if err != nil {
				return err
			}
			return a.WithStore(cmd.Context(), func(c *cli.Client, store runner.Store) error {
				return eachLetter(cmd.Context(), a, c, chosen, func(l *Letter) (string, error) {
					return redrive(cmd.Context(), c, store, l)
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
			c, err := a.Client(cmd.Context())
			if err != nil {
				return err
			}
			return c.CloseAfter(eachLetter(cmd.Context(), a, c, chosen, func(l *Letter) (string, error) {
				return "dropped", c.SettleLetter(cmd.Context(), l.raw, "dropped")
			}))
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
func eachLetter(ctx context.Context, a *cli.App, c *cli.Client, chosen choice, do func(*Letter) (string, error)) error {
	all := []handled{}
	handle := func(sequence uint64) {
		l, err := letter(ctx, c, sequence) // anew, with its body if that was omitted
		h := handled{Sequence: sequence}
		if err == nil {
			h.Done, err = do(l)
		}
		if err != nil {
			h.Done, h.Problem = "", messageOf(err)
		}
		all = append(all, h)
		showHandled(a, h)
	}
	for _, sequence := range chosen.named {
		handle(sequence)
	}
	var err error
	if len(chosen.named) == 0 {
		err = c.Letters(ctx, chosen.filter, func(b broker.Letter) (bool, error) {
			if chosen.flags.matches(letterOf(c.Subjects(), b)) {
				handle(b.Sequence)
			}
			return ctx.Err() == nil, ctx.Err()
		})
	}
	return reportHandled(a, all, cli.ExplainDLQ(err))
}

// showHandled prints what became of one dead letter, when it did.
func showHandled(a *cli.App, h handled) {
	switch {
	case a.Output == cli.OutputJSON:
	case h.Problem != "":
		fmt.Fprintf(a.Err, "%d  refused: %s\n", h.Sequence, h.Problem)
	default:
		fmt.Fprintf(a.Out, "%d  %s\n", h.Sequence, h.Done)
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
		return cli.Join(err, printing)
	}
	for _, h := range all {
		if h.Problem != "" {
			return cli.Exit(cli.ExitFailure)
		}
	}
	return nil
}

// redrive publishes a dead letter's message again, and then removes the letter: who is interrupted in between does it
// once more, which is harmless.
func redrive(ctx context.Context, c *cli.Client, store runner.Store, l *Letter) (string, error) {
	if err := redrivable(ctx, store, l); err != nil {
		return "", err
	}
	stream, sequence, err := c.Republish(ctx, l.raw)
	if err != nil {
		return "", err
	}
	done := fmt.Sprintf("redriven on %s, as message %d of %s", l.Subject, sequence, stream)
	return done, c.SettleLetter(ctx, l.raw, done)
}

// redrivable returns nil when publishing the message again may come to more than the first time, else why not.
func redrivable(ctx context.Context, store runner.Store, l *Letter) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeInvalidEvent, format, args...) }
	switch {
	case l.raw.Omitted:
		return refuse("its body was too large to be kept, and is no longer in %s", l.Stream)
	case l.Reason == sdk.CodeConflict:
		return refuse("another event has its place on %s", l.Subject)
	}
	switch l.address.Kind {
	case wire.KindStart, wire.KindIn, wire.KindCtl:
	case wire.KindOut, wire.KindVoid:
		return refuse("only workers publish calls; who made this one is told by its timeout, or tries again by itself")
	case wire.KindFire:
		return refuse("only timers are published there, by the broker")
	case "":
		return refuse("%q is none of this wire's subjects", l.Subject)
	default:
		return refuse("only workers publish %s messages", l.address.Kind)
	}
	if l.undecodable != nil {
		return refuse("it still is no event: %s; who published it must send it anew", messageOf(l.undecodable))
	}
	last, err := store.Head(ctx, l.key)
	if errors.Is(err, runner.ErrNotFound) {
		if l.address.Kind == wire.KindStart {
			return nil
		}
		return refuse("there is no run %s", l.Run)
	}
	if err != nil && !errors.Is(err, runner.ErrCorrupt) {
		return cli.ExplainStore(err)
	}
	var entry core.Entry
	if err == nil {
		entry, err = core.DecodeEntry(last.Data)
	}
	if err == nil && l.Reason == sdk.CodeCorrupt {
		_, err = runner.New(runner.Options{Store: store}).Journal(ctx, l.key)
	}
	if err != nil {
		return refuse("the journal of run %s still cannot be read: %s", l.Run, err)
	}
	return l.useful(&entry.Head)
}

// useful returns nil when the run with that head can make something of the message, else why not.
func (l *Letter) useful(h *core.Head) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeInvalidEvent, format, args...) }
	started := l.address.Kind == wire.KindStart
	switch {
	case started && h.Init.Token != l.init():
		return refuse("another init event started run %s; send this one anew with another subject", h.Run)
	case h.Status == core.StatusDone && started:
		return refuse("run %s has ended (%s), and its terminal event stands; send the init event anew with another subject", h.Run, h.Reason)
	case h.Status == core.StatusDone:
		return refuse("run %s has ended (%s)", h.Run, h.Reason)
	case h.Status == core.StatusRunning && h.Driver.Covers(core.Cause{Stream: l.Stream, Sequence: l.Origin}):
		return refuse("run %s stopped while it was driven under this message, which a copy cannot continue; end it with: agentd runs cancel %s",
			h.Run, show.ShellQuote(h.Run))
	case started:
		return refuse("run %s was started by this event, and is %s", h.Run, h.Status)
	case l.address.Kind != wire.KindIn:
		return nil
	}
	ref, _ := wire.ParseCallRef(l.address.Call.Call) // what is no call is not open
	for _, call := range h.Calls {
		if call.ID == ref.ID && !call.Closed() {
			return nil
		}
	}
	return refuse("run %s does not wait for call %s", h.Run, l.address.Call.Call)
}

// runStatus says how the letter's run is, as far as that can be read.
func runStatus(ctx context.Context, store runner.Store, l *Letter) string {
	last, err := store.Head(ctx, l.key)
	if errors.Is(err, runner.ErrNotFound) {
		return "unknown"
	}
	if err == nil {
		var entry core.Entry
		if entry, err = core.DecodeEntry(last.Data); err == nil {
			return show.StatusText(entry.Head.Status, entry.Head.Reason, "")
		}
	}
	return string(show.Unreadable)
}
