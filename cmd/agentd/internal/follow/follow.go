// Package follow shows what a run does and answers what it asks, until it ends.
package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/retry"
	"agentd/internal/show"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// Run addresses a run that a command follows.
type Run struct {
	Subject, Agent string
	Key            wire.RunKey
	// Init is the init token; empty is that of a run that may not have begun.
	Init string
}

// Options are the flags of commands that follow a run.
type Options struct {
	answers []string
	timeout time.Duration
	quiet   bool
}

// follower shows what a run does and answers what it asks, until it ends.
type follower struct {
	a        *cli.App
	conn     *cli.Client
	run      Run
	o        Options
	Progress *show.Progress
	desk     *answerer
}

// New is a follower of a run.
func New(a *cli.App, conn *cli.Client, run Run, o Options) *follower {
	p := a.Progress(a.Err)
	p.Quiet = map[string]bool{toolbox.AskQuestion: true, show.Turn: true}
	aloud := p
	if o.quiet {
		aloud = a.Progress(a.Err)
		p.W = io.Discard
	}
	d := &answerer{
		a: a, client: conn.Speaking(cli.Source), progress: p, aloud: aloud, run: run, answers: o.answers,
		lines: terminal(a), asked: make(chan struct{}, 1), answered: map[string]bool{}, unsent: map[string]string{},
	}
	return &follower{a: a, conn: conn, run: run, o: o, Progress: p, desk: d}
}

// Follow calls begin when everything listens, and prints the run's result.
func (f *follower) Follow(ctx context.Context, begin func(context.Context) error) error {
	following, err := f.conn.Speaking(cli.Source).Listen(client.Run{Agent: f.run.Agent, Name: f.run.Subject})
	if err != nil {
		return err
	}
	defer f.conn.OnContact(
		func() {
			f.Progress.Note(show.LabelWaits, "the connection to NATS is lost; the run goes on when the server is back")
		},
		func() { f.Progress.Note("note", "the connection to NATS is back") },
	)()
	bounded, cancel := f.bounded(ctx)
	defer cancel()
	if err := begin(bounded); err != nil {
		return f.detached(ctx, bounded, errors.Join(err, following.Close()))
	}
	watching, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		// It ends with the run or with this command.
		revision, index := f.Progress.Mark(f.run.Subject)
		_ = following.Events(watching, wire.Mark{Revision: revision, Index: index}, func(l wire.Live) {
			f.Progress.Show(l)
			f.desk.hear(l)
		})
	})
	event, err := f.wait(bounded)
	if err == nil {
		f.awaitEnd(ctx, following)
	}
	stop()
	background.Wait()
	if err := errors.Join(err, following.Close()); err != nil {
		return f.detached(ctx, bounded, err)
	}
	return f.printResult(event)
}

// bounded is ctx for as long as the run is followed at most.
func (f *follower) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.o.timeout > 0 {
		return context.WithTimeout(ctx, f.o.timeout)
	}
	return context.WithCancel(ctx)
}

// wait returns the terminal event. Meanwhile the desk answers.
func (f *follower) wait(ctx context.Context) (wire.Event, error) {
	working, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		err := f.desk.serve(working)
		switch {
		case working.Err() != nil:
		case cli.NotPermitted(err):
			f.Progress.Note("note", "this NATS user may not answer what runs ask: others do")
		case err != nil:
			f.Progress.Note(show.LabelError, "questions cannot be answered here: "+err.Error())
		}
	})
	background.Go(func() { f.hint(working) })
	event, err := f.end(ctx)
	stop()
	background.Wait()
	return event, err
}

// end waits for the terminal event, also of a run that has yet to begin, or never does.
func (f *follower) end(ctx context.Context) (event wire.Event, err error) {
	init := f.run.Init
	if init == "" {
		f.Progress.Note(show.LabelWaits, "for the run to begin, if somebody has started it")
	}
	for pauses := begins.Start(); init == ""; {
		status, err := f.status(ctx)
		if err == nil {
			if err := Followable(status); err != nil {
				return wire.Event{}, err
			}
			init = status.Init
			continue
		}
		if !cli.NotBegun(err) {
			return wire.Event{}, err
		}
		last, ended, err := f.conn.Ended(ctx, f.run.Agent, f.run.Key)
		if err == nil {
			init, err = f.anew(ctx, last)
		}
		if init != "" {
			continue
		}
		if ended || err != nil {
			return last, err
		}
		if err := retry.Sleep(ctx, pauses.Next()); err != nil {
			return wire.Event{}, fmt.Errorf("wait for run %s to begin: %w", f.run.Subject, err)
		}
	}
	return f.conn.WaitDone(ctx, f.run.Agent, f.run.Key, init)
}

// anew is the token of the init event that waits after one of the same name was refused, as last says; empty is that there is none.
func (f *follower) anew(ctx context.Context, last wire.Event) (init string, err error) {
	if cli.Refused(f.run.Agent, last) == nil {
		return "", nil
	}
	return f.conn.Waiting(ctx, f.run.Agent, f.run.Subject)
}

// begins is how soon it is looked again whether a run has begun.
var begins = retry.Pauses{First: 100 * time.Millisecond, Longest: time.Second}

// Followable is the error about a run whose end is not to be seen; nil is of one that can be followed.
func Followable(s wire.RunStatus) error {
	if s.Purged > 0 {
		return sdk.Errorf(sdk.CodeUnknownRun, "run %s is done (%s), and its history was removed %s", s.Run, s.Reason, show.Ago(s.Purged))
	}
	if s.Called {
		return fmt.Errorf("run %s answers a call of another run, whose end is its own; follow that one", s.Run)
	}
	return nil
}

// status asks workers how far the run is.
func (f *follower) status(ctx context.Context) (wire.RunStatus, error) {
	return f.conn.Speaking(cli.Source).Status(ctx, client.Run{Agent: f.run.Agent, Name: f.run.Subject})
}

// hint says, whenever a run has been silent for cli.Patience, why it has not begun, or that nobody serves what it calls.
func (f *follower) hint(ctx context.Context) {
	said := map[string]bool{}
	asked := wire.Mark{Index: -2} // no run is there
	for retry.Sleep(ctx, cli.Patience) == nil {
		var at wire.Mark
		at.Revision, at.Index = f.Progress.Mark(f.run.Subject)
		if at == asked {
			continue // nothing happened since
		}
		asked = at
		asking, cancel := context.WithTimeout(ctx, 2*cli.Patience)
		status, err := f.status(asking)
		if at.Revision == 0 && cli.NotBegun(err) {
			f.Progress.Note(show.LabelWaits, f.conn.Unbegun(asking, f.run.Agent, err))
		}
		cancel()
		for _, c := range status.Waiting {
			if c.Unserved && !said[c.Call] {
				said[c.Call] = true
				f.Progress.Note(show.LabelWaits, show.Unserved(c.Type, c.Due))
			}
		}
	}
}

// mostAwaits is how often the last live events are waited for, 250 ms each.
const mostAwaits = 20

// awaitEnd gives the last live events, which come by another way than the terminal event, a moment to be shown.
func (f *follower) awaitEnd(ctx context.Context, following *client.Following) {
	if !f.Progress.Seen(f.run.Subject) {
		return // it was refused, or nothing live came at all
	}
	for range mostAwaits {
		select {
		case <-f.Progress.Ended(f.run.Subject):
			return
		case <-time.After(250 * time.Millisecond):
			following.Missed()
		case <-ctx.Done():
			return
		}
	}
}

// detached explains why following ended before the run; bounded is ctx for as long as it might take.
func (f *follower) detached(ctx, bounded context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(f.a.Err, "\ndetached; %s\n", f.next(context.WithoutCancel(ctx)))
		return cli.Exit(cli.ExitInterrupted)
	case bounded.Err() != nil:
		return fmt.Errorf("no end after %s; %s", f.o.timeout, f.next(ctx))
	}
	return err
}

// next is how a run is that is not followed any more, and the commands by which one goes on with it.
func (f *follower) next(ctx context.Context) string {
	text, verbs, flags := "the run goes on:", []string{"follow", "show", "cancel"}, []string{}
	if !f.begun(ctx) {
		text, verbs, flags = "the run has not begun:", []string{"follow", "cancel"}, []string{"--agent", f.run.Agent}
	}
	for _, verb := range verbs {
		text += "\n  " + f.a.CommandLine(append([]string{"runs", verb, f.run.Subject}, flags...)...)
	}
	return text
}

// begun reports whether the run has begun, as far as anybody says.
func (f *follower) begun(ctx context.Context) bool {
	if f.Progress.Seen(f.run.Subject) {
		return true
	}
	ctx, stop := context.WithTimeout(ctx, cli.Patience)
	defer stop()
	_, err := f.status(ctx)
	return !cli.NotBegun(err)
}

// runResult is how a run ended.
type runResult struct {
	Run   string          `json:"run"`
	Agent string          `json:"agent"`
	Type  string          `json:"type"`
	Data  json.RawMessage `json:"data"`
	Units json.Number     `json:"executionunits"`
}

// printResult prints the data of a terminal event, or fails with its error.
func (f *follower) printResult(event wire.Event) error {
	a, run := f.a, f.run
	r := runResult{Run: run.Subject, Agent: run.Agent, Type: event.Type, Data: event.Data, Units: show.Units(event.ExecutionUnits)}
	problem, failed := wire.ProblemIn(event.Type, event.Data)
	if problem.Code == sdk.CodeUnknownAgent {
		problem.ErrorMessage += f.conn.Meant(run.Agent)
	}
	if failed && a.Output == cli.OutputText {
		fmt.Fprintf(a.Err, "agentd: run %s ended with an error: %s: %s\n", show.Line(run.Subject, show.LineMax), problem.Code, show.VisibleLines(problem.ErrorMessage))
		cli.PrintFaults(a.Err, problem.Faults)
		return cli.Exit(cli.ExitRun)
	}
	err := a.Print(r, func(w io.Writer) error { return cli.WriteText(w, resultText(event.Data)+"\n") })
	if err == nil && failed {
		return cli.Exit(cli.ExitRun)
	}
	return err
}

// resultText is the data as people read it: the default contract's answer is a text.
func resultText(data json.RawMessage) string {
	var only map[string]string
	if json.Unmarshal(data, &only) == nil && len(only) == 1 && only["response"] != "" {
		return only["response"]
	}
	return show.Indent(data)
}

// AddFlags adds the flags of commands that follow a run.
func AddFlags(cmd *cobra.Command, o *Options) {
	flags := cmd.Flags()
	flags.StringArrayVar(&o.answers, "answer", nil, "answer to the next question of the run (repeatable)")
	cli.DurationVar(flags, &o.timeout, "timeout", 0, "stop following after this long, such as 30s (0: never)")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "show no progress, but for questions that nobody has answered")
}
