package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"agentd/sdk/wire"

	"golang.org/x/term"

	"agentd/internal/contracts"
	"agentd/internal/worker"
	"agentd/sdk"
)

// followed addresses a run that a command follows.
type followed struct {
	subject, agent string
	key            wire.RunKey
	// init is the init token.
	init string
}

// followOptions are the flags of commands that follow a run.
type followOptions struct {
	answers []string
	timeout time.Duration
	quiet   bool
}

// follower shows what a run does and answers what it asks, until it ends.
type follower struct {
	a        *app
	conn     *client
	run      followed
	o        followOptions
	progress *progress
	desk     *answerer
}

func (a *app) follower(conn *client, run followed, o followOptions) *follower {
	p := &progress{w: a.err, full: a.verbose, quiet: map[string]bool{contracts.ToolAskQuestion: true, turn: true}}
	if file, ok := a.err.(*os.File); ok {
		p.terminal = term.IsTerminal(int(file.Fd()))
	}
	if o.quiet {
		p.w = io.Discard
	}
	d := &answerer{
		a: a, conn: conn, progress: p, run: run, answers: o.answers, lines: a.terminal(), answered: map[string]bool{},
	}
	return &follower{a: a, conn: conn, run: run, o: o, progress: p, desk: d}
}

// follow calls begin when everything listens, and prints the run's result.
func (f *follower) follow(ctx context.Context, begin func(context.Context) error) error {
	following, err := worker.Follow(f.conn.Conn, f.run.agent, f.run.subject)
	if err != nil {
		return err
	}
	if err := begin(ctx); err != nil {
		return also(err, following.Close())
	}
	watching, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		// It ends with the run or with this command.
		_ = following.Events(watching, f.progress.mark(f.run.subject), f.progress.show)
	})
	event, err := f.wait(ctx)
	if err == nil {
		f.awaitEnd(ctx, following)
	}
	stop()
	background.Wait()
	if err := also(err, following.Close()); err != nil {
		return f.detached(ctx, err)
	}
	return f.a.printResult(f.run, event)
}

// wait returns the terminal event. Meanwhile the desk answers.
func (f *follower) wait(ctx context.Context) (wire.Event, error) {
	if f.o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.o.timeout)
		defer cancel()
	}
	working, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() {
		err := f.desk.serve(working)
		switch {
		case working.Err() != nil:
		case refused(err):
			f.progress.note("note", "this NATS user may not read what runs ask people: others answer")
		case err != nil:
			f.progress.note(labelError, "questions cannot be answered here: "+err.Error())
		}
	})
	background.Go(func() { f.hintNoWorker(working) })
	event, err := f.conn.WaitDone(ctx, f.run.agent, f.run.key, f.run.init)
	stop()
	background.Wait()
	return event, err
}

// patience is how long a run may be silent before the command looks for the reason.
const patience = 2 * time.Second

// hintNoWorker says so when a run does not begin because nobody serves its agent.
func (f *follower) hintNoWorker(ctx context.Context) {
	select {
	case <-time.After(patience):
	case <-ctx.Done():
		return
	}
	if f.progress.seen(f.run.subject) {
		return
	}
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var status worker.RunStatus
	err := f.conn.Ask(asking, f.conn.Subjects().Get(f.run.agent), worker.Query{Run: f.run.subject}, &status)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
		f.progress.note(labelWaits, "no worker serves "+f.run.agent+" now; the event is stored, and handled when one starts")
	}
}

// mostAwaits is how often the last live events are waited for, 250 ms each.
const mostAwaits = 20

// awaitEnd gives the last live events, which come by another way than the terminal event, a moment to be shown.
func (f *follower) awaitEnd(ctx context.Context, following *worker.Following) {
	if !f.progress.seen(f.run.subject) {
		return // it was refused, or nothing live came at all
	}
	for range mostAwaits {
		select {
		case <-f.progress.ended(f.run.subject):
			return
		case <-time.After(250 * time.Millisecond):
			following.Missed()
		case <-ctx.Done():
			return
		}
	}
}

// detached explains why following ended before the run.
func (f *follower) detached(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(f.a.err, "\ndetached; the run goes on:\n%s\n", f.a.nextCommands(f.run.subject))
		return &exitError{code: exitInterrupted}
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no end after %s; the run goes on:\n%s", f.o.timeout, f.a.nextCommands(f.run.subject))
	}
	return err
}

// nextCommands are what can be done with a run that goes on.
func (a *app) nextCommands(run string) string {
	var b strings.Builder
	for _, verb := range []string{"follow", "show", "cancel"} {
		fmt.Fprintf(&b, "  %s\n", a.command("runs", verb, run))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// command is a command line that reaches the same server as this one.
func (a *app) command(args ...string) string {
	line := program
	if a.configGiven {
		line += " -c " + shellQuote(a.config)
	}
	for _, f := range []struct{ name, value string }{{"--data", a.data}, {"--nats", a.nats}, {"--redis", a.redis}} {
		if f.value != "" {
			line += " " + f.name + " " + shellQuote(f.value)
		}
	}
	for _, arg := range args {
		line += " " + shellQuote(arg)
	}
	return line
}

// runResult is how a run ended.
type runResult struct {
	Run   string          `json:"run"`
	Agent string          `json:"agent"`
	Type  string          `json:"type"`
	Data  json.RawMessage `json:"data"`
	Units sdk.Units       `json:"executionunits"`
}

// printResult prints the data of a terminal event, or fails with its error.
func (a *app) printResult(run followed, event wire.Event) error {
	r := runResult{Run: run.subject, Agent: run.agent, Type: event.Type, Data: event.Data, Units: event.ExecutionUnits}
	problem, failed := problemIn(event.Type, event.Data)
	if failed && a.output == outputText {
		fmt.Fprintf(a.err, "agentd: run %s ended with an error: %s: %s\n", clip(run.subject, shown), problem.Code, problem.ErrorMessage)
		printFaults(a.err, problem.Faults)
		return &exitError{code: exitRun}
	}
	err := a.print(r, func(w io.Writer) error {
		_, err := fmt.Fprintln(w, resultText(event.Data))
		return err
	})
	if err == nil && failed {
		return &exitError{code: exitRun}
	}
	return err
}

// resultText is the data as people read it: the default contract's answer is a text.
func resultText(data json.RawMessage) string {
	var only map[string]string
	if json.Unmarshal(data, &only) == nil && len(only) == 1 && only["response"] != "" {
		return only["response"]
	}
	return indent(data)
}
