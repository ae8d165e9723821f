package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/retry"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
	"agentd/sdk/wire"
)

// EndWord ends a conversation in the place of an answer to a turn.
const EndWord = "/end"

// answerer answers what a run asks people: from answers given beforehand, then from the terminal.
type answerer struct {
	a        *cli.App
	client   *client.Client
	progress *show.Progress
	// aloud tells what somebody here has to do, also where no progress is shown.
	aloud *show.Progress
	run   Run
	// answers are those left.
	answers []string
	// lines are what is typed; nil without a terminal.
	lines *cli.Lines
	// asked has a token when the run may have asked something.
	asked chan struct{}
	// answered are calls that need no answer of this command any more, and unsent the answers that no worker has taken.
	answered map[string]bool
	unsent   map[string]string
}

// hear takes a milestone of the run.
func (d *answerer) hear(l wire.Live) {
	switch l.Type {
	case wire.MilestoneCall, wire.MilestoneAsked, wire.MilestoneTurn, wire.MilestoneSuspended:
		select {
		case d.asked <- struct{}{}:
		default: // it looks soon
		}
	}
}

// looking is how the answerer looks again when no worker answered.
var looking = retry.Pauses{First: 250 * time.Millisecond, Longest: 5 * time.Second}

// serve answers the questions and turns of the run until ctx ends. Whatever the lane: the one who started a run is the one it
// talks to.
func (d *answerer) serve(ctx context.Context) error {
	for {
		err := looking.Do(ctx, retry.Sleep, func() error {
			err := d.answer(ctx)
			if errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}) {
				return err
			}
			return retry.Final(err)
		})
		if err != nil {
			return err
		}
		select {
		case <-d.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// answer answers what is open now.
func (d *answerer) answer(ctx context.Context) error {
	run := client.Run{Agent: d.run.Agent, Name: d.run.Subject}
	calls, err := d.client.Asked(ctx, run)
	if errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}) {
		return nil // it has not begun
	}
	if err != nil {
		return err
	}
	for _, call := range calls {
		if sdk.AsksPermission(call.Type) || d.answered[call.Call] {
			continue
		}
		if err := d.reply(ctx, run, call); err != nil {
			return err
		}
	}
	return nil
}

// reply gets an answer to a call and sends it. One that no worker takes is kept for the next time, and where one is refused another is asked for.
func (d *answerer) reply(ctx context.Context, run client.Run, call client.Call) error {
	for {
		text, again := d.unsent[call.Call]
		if !again {
			var ok bool
			if text, ok = d.obtain(ctx, call); !ok {
				d.answered[call.Call] = true // by others
				return nil
			}
			d.unsent[call.Call] = text
		}
		reply := client.Reply{Text: text}
		if call.Type == sdk.TypeConversationTurn && text == EndWord {
			reply = client.Reply{End: true}
		}
		outcome, err := d.client.Answer(ctx, run, call.Call, reply)
		switch {
		case ctx.Err() != nil || cli.NotPermitted(err):
			return err
		case errors.Is(err, &sdk.Error{Code: sdk.CodeUnavailable}):
			if !again {
				d.progress.Note(show.LabelWaits, "for a worker to take the answer, which is sent again")
			}
			return err
		case err == nil && outcome.State != client.OutcomeRefused, errors.Is(err, &sdk.Error{Code: sdk.CodeUnknownRun}):
			d.answered[call.Call] = true
		}
		delete(d.unsent, call.Call)
		if err != nil {
			d.aloud.Note(show.LabelError, err.Error())
		} else if outcome.State == client.OutcomeRefused {
			d.aloud.Note(show.LabelError, "the run refused the answer: "+outcome.Refused)
		}
		if d.answered[call.Call] {
			return nil
		}
	}
}

// obtain shows the question and gets an answer, if anybody here has one.
func (d *answerer) obtain(ctx context.Context, call client.Call) (answer string, ok bool) {
	var q struct {
		Question    string   `json:"question"`
		Message     string   `json:"message"`
		Suggestions []string `json:"suggestions"`
	}
	if err := json.Unmarshal(call.Asked, &q); err != nil {
		q.Question = string(call.Asked)
	}
	tell := d.aloud
	if len(d.answers) > 0 {
		tell = d.progress
	}
	tell.Ask(q.Question + q.Message) // it has one of them
	for _, s := range q.Suggestions {
		tell.Note("", "- "+s)
	}
	if len(d.answers) > 0 {
		answer, d.answers = d.answers[0], d.answers[1:]
		return answer, true
	}
	if answer, ok := d.prompt(ctx, call.Type); ok || ctx.Err() != nil {
		return answer, ok
	}
	d.aloud.Note(show.LabelWaits, "for somebody to answer; for example: "+d.a.CommandLine("runs", "follow", d.run.Subject, "--answer", "TEXT"))
	return "", false
}

func (d *answerer) prompt(ctx context.Context, callType string) (answer string, ok bool) {
	if d.lines == nil {
		return "", false
	}
	hint := ""
	if callType == sdk.TypeConversationTurn {
		hint = "(" + EndWord + " ends the conversation) "
	}
	for {
		fmt.Fprintf(d.a.Err, "%s> ", hint)
		answer, ok = d.lines.Next(ctx)
		if ctx.Err() != nil {
			fmt.Fprintln(d.a.Err)
			return "", false
		}
		if answer != "" || !ok {
			return answer, ok
		}
		hint = "(a text, please; Ctrl-C leaves it to others) " // nobody means a key that was hit too often
	}
}

// terminal returns the lines that are typed, or nil when nobody can type.
func terminal(a *cli.App) *cli.Lines {
	f, ok := a.In.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	if null, err := os.Stat(os.DevNull); err == nil && os.SameFile(info, null) {
		return nil
	}
	return cli.ReadLines(f)
}
