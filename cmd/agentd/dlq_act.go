package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"agentd/internal/broker"
	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/sdk"
)

func (a *app) dlqRedriveCommand() *cobra.Command {
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
			return a.withLetters(cmd.Context(), func(c *client, store runner.Store) error {
				return a.eachLetter(cmd.Context(), c, f, args, func(l *letter) (string, error) {
					return redrive(cmd.Context(), c, store, l)
				})
			})
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) dlqDropCommand() *cobra.Command {
	var f letterFlags
	var yes bool
	cmd := &cobra.Command{
		Use:     "drop [SEQUENCE...] --yes",
		Short:   "Delete dead letters for good",
		Example: "  agentd dlq drop 12 15 --yes\n  agentd dlq drop --reason invalid_event --yes",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return &exitError{exitUsage, errors.New("drop deletes messages for good; say so with --yes")}
			}
			return a.withLetters(cmd.Context(), func(c *client, _ runner.Store) error {
				return a.eachLetter(cmd.Context(), c, f, args, func(l *letter) (string, error) {
					return "dropped", c.SettleLetter(cmd.Context(), l.raw, "dropped")
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

// eachLetter does something with every dead letter that is named or selected. One that fails does not keep the others.
func (a *app) eachLetter(ctx context.Context, c *client, f letterFlags, args []string, do func(*letter) (string, error)) error {
	if (len(args) > 0) == f.given() {
		return &exitError{exitUsage, errors.New("name dead letters by sequence, or select them with --reason, --run, --agent or --since")}
	}
	named, err := sequences(args)
	if err != nil {
		return err
	}
	filter, err := f.filter()
	if err != nil {
		return err
	}
	all, refused := []handled{}, 0
	note := func(sequence uint64, done string, err error) {
		h := handled{Sequence: sequence, Done: done}
		if err != nil {
			h.Done, h.Problem = "", messageOf(err)
			refused++
		}
		all = append(all, h)
		switch {
		case a.output == outputJSON:
		case err != nil:
			fmt.Fprintf(a.err, "%d  refused: %s\n", h.Sequence, h.Problem)
		default:
			fmt.Fprintf(a.out, "%d  %s\n", h.Sequence, h.Done)
		}
	}
	for _, sequence := range named {
		l, err := c.letter(ctx, sequence)
		done := ""
		if err == nil {
			done, err = do(l)
		}
		note(sequence, done, err)
	}
	if len(named) == 0 {
		err = c.Letters(ctx, filter, func(b broker.Letter) (bool, error) {
			if !f.matches(letterOf(c.Subjects(), b)) {
				return true, nil
			}
			l, err := c.letter(ctx, b.Sequence) // with its body, if that was omitted
			done := ""
			if err == nil {
				done, err = do(l)
			}
			note(b.Sequence, done, err)
			return ctx.Err() == nil, ctx.Err()
		})
	}
	return a.reportHandled(all, refused, explainDLQ(err))
}

func (a *app) reportHandled(all []handled, refused int, err error) error {
	printing := a.print(all, func(w io.Writer) error {
		if len(all) == 0 && err == nil {
			fmt.Fprintln(w, "no dead letters")
		}
		return nil
	})
	switch {
	case err != nil || printing != nil:
		return also(err, printing)
	case refused > 0:
		return &exitError{code: exitFailure}
	}
	return nil
}

// redrive publishes a dead letter's message again, and then removes the letter: who is interrupted in between does it
// once more, which is harmless.
func redrive(ctx context.Context, c *client, store runner.Store, l *letter) (string, error) {
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
func redrivable(ctx context.Context, store runner.Store, l *letter) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeInvalidEvent, format, args...) }
	switch {
	case l.raw.Omitted:
		return refuse("its body was too large to be kept, and is no longer in %s", l.Stream)
	case l.Reason == sdk.CodeConflict:
		return refuse("another event has its place on %s", l.Subject)
	}
	switch l.address.Kind {
	case sdk.KindStart, sdk.KindIn, sdk.KindCtl:
	case sdk.KindOut, sdk.KindVoid:
		return refuse("only workers publish calls; who made this one is told by its timeout, or tries again by itself")
	case sdk.KindFire:
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
		if l.address.Kind == sdk.KindStart {
			return nil
		}
		return refuse("there is no run %s", l.Run)
	}
	if err != nil && !errors.Is(err, runner.ErrCorrupt) {
		return explainStore(err)
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
func (l *letter) useful(h *core.Head) error {
	refuse := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeInvalidEvent, format, args...) }
	started := l.address.Kind == sdk.KindStart
	switch {
	case started && h.Init.Token != l.init():
		return refuse("another init event started run %s; send this one anew with another subject", h.Run)
	case h.Status == core.StatusDone && started:
		return refuse("run %s has ended (%s), and its terminal event stands; send the init event anew with another subject", h.Run, h.Reason)
	case h.Status == core.StatusDone:
		return refuse("run %s has ended (%s)", h.Run, h.Reason)
	case h.Status == core.StatusRunning && h.Driver.Covers(core.Cause{Stream: l.Stream, Sequence: l.Origin}):
		return refuse("run %s stopped while it was driven under this message, which a copy cannot continue; end it with: agentd runs cancel %s",
			h.Run, shellQuote(h.Run))
	case started:
		return refuse("run %s was started by this event, and is %s", h.Run, h.Status)
	case l.address.Kind != sdk.KindIn:
		return nil
	}
	ref, _ := sdk.ParseCallRef(l.address.Call.Call) // what is no call is not open
	for _, call := range h.Calls {
		if call.ID == ref.ID && !call.Closed() {
			return nil
		}
	}
	return refuse("run %s does not wait for call %s", h.Run, l.address.Call.Call)
}

// runStatus says how the letter's run is, as far as that can be read.
func runStatus(ctx context.Context, store runner.Store, l *letter) string {
	last, err := store.Head(ctx, l.key)
	if errors.Is(err, runner.ErrNotFound) {
		return "unknown"
	}
	if err == nil {
		var entry core.Entry
		if entry, err = core.DecodeEntry(last.Data); err == nil {
			return statusText(entry.Head.Status, entry.Head.Reason)
		}
	}
	return string(unreadable)
}
