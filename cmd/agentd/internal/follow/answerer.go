package follow

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker"
	"agentd/internal/contracts"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// EndWord ends a conversation in the place of an answer to a turn.
const EndWord = "/end"

// answerer answers what a run asks people: from answers given beforehand, then from the terminal.
type answerer struct {
	a        *cli.App
	conn     *cli.Client
	progress *show.Progress
	run      Run
	// answers are those left.
	answers []string
	// lines are what is typed; nil without a terminal.
	lines <-chan string
	// answered are calls that need no answer any more.
	Answered map[string]bool
}

// serve answers the questions and turns of the run until ctx ends.
func (d *answerer) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	calls := make(chan broker.Delivery)
	kinds := []string{sdk.TypeQuestion, sdk.TypeConversationTurn}
	ended := make(chan error, len(kinds))
	for _, kind := range kinds {
		// Whatever the lane: the one who started a run is the one it talks to. One filter each: permissions can say which
		// filter somebody may read, but not which several.
		filter := d.conn.Subjects().Call(wire.CallAddress{
			Domain: "*", Type: wire.NameToken(kind), Agent: wire.NameToken(d.run.Agent), Run: d.run.Key, Call: "*",
		})
		go func() {
			ended <- d.conn.Watch(ctx, broker.ZoneOut, []string{filter}, true, func(delivery broker.Delivery) bool {
				select {
				case calls <- delivery:
				case <-ctx.Done():
				}
				return ctx.Err() == nil
			})
		}()
	}
	for {
		select {
		case delivery := <-calls:
			if err := d.handle(ctx, delivery); err != nil && ctx.Err() == nil {
				d.progress.Note(show.LabelError, err.Error())
			}
		case err := <-ended:
			return err
		}
	}
}

func (d *answerer) handle(ctx context.Context, delivery broker.Delivery) error {
	event, err := wire.DecodeEvent(delivery.Headers(), delivery.Data())
	if err != nil {
		return fmt.Errorf("read a question: %w", err)
	}
	ref, ok := wire.ParseCallRef(event.ID)
	if !ok || d.Answered[ref.ID] {
		return nil
	}
	d.Answered[ref.ID] = true // the same question may come in several lanes
	text, ok := d.obtain(ctx, event)
	if !ok {
		return nil
	}
	answer, err := answerEvent(event, text)
	if err != nil {
		return err
	}
	return d.conn.Answer(ctx, delivery.Subject(), answer)
}

// obtain shows the question and gets an answer, if anybody here has one.
func (d *answerer) obtain(ctx context.Context, call wire.Event) (answer string, ok bool) {
	var q struct {
		Question    string   `json:"question"`
		Message     string   `json:"message"`
		Suggestions []string `json:"suggestions"`
	}
	if err := json.Unmarshal(call.Data, &q); err != nil {
		q.Question = string(call.Data)
	}
	d.progress.Ask(q.Question + q.Message) // it has one of them
	for _, s := range q.Suggestions {
		d.progress.Note("", "- "+s)
	}
	if len(d.answers) > 0 {
		answer, d.answers = d.answers[0], d.answers[1:]
		return answer, true
	}
	if answer, ok := d.prompt(ctx, call.Type); ok || ctx.Err() != nil {
		return answer, ok
	}
	d.progress.Note(show.LabelWaits, "for somebody to answer; for example: "+d.a.CommandLine("runs", "follow", d.run.Subject, "--answer", "TEXT"))
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
		select {
		case line, ok := <-d.lines:
			if answer = strings.TrimSpace(line); answer != "" || !ok {
				return answer, ok
			}
			hint = "(a text, please; Ctrl-C leaves it to others) " // nobody means a key that was hit too often
		case <-ctx.Done():
			fmt.Fprintln(d.a.Err)
			return "", false
		}
	}
}

// answerEvent is the answer to a question or a turn.
func answerEvent(call wire.Event, text string) (wire.Event, error) {
	eventType, contract := contracts.TypeQuestionAnswered, contracts.Question()
	var data any = map[string]string{"answer": text}
	if call.Type == sdk.TypeConversationTurn {
		eventType, contract = contracts.TypeConversationAnswered, contracts.Conversation()
		data = map[string]any{"message": text, "end": false}
		if text == EndWord {
			data = map[string]any{"message": "", "end": true}
		}
	}
	encoded, err := json.Marshal(data)
	if err != nil {
		return wire.Event{}, fmt.Errorf("encode answer: %w", err)
	}
	return wire.Event{
		ID: call.ID + "-answer", Source: cli.Source, Type: eventType, Subject: call.Subject, Time: time.Now(),
		DataSchema: sdk.SchemaRef(contract.URI, contracts.BuiltinVersion), Data: encoded, To: call.RedirectTo,
		ParentID: call.ID, AccessControl: call.AccessControl, TraceParent: call.TraceParent, TraceState: call.TraceState,
	}, nil
}

// terminal returns the lines that are typed, or nil when nobody can type. The reading goroutine ends with the input or
// the process: a read from a terminal cannot be stopped.
func terminal(a *cli.App) <-chan string {
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
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(f); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return lines
}
