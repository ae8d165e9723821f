package approvals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/desk/screen"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
)

func watchCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "A live inbox on the terminal: see, decide and answer",
		Long: "watch shows what waits for a person, and what comes. Arrows select; a approves, d denies, e edits, r replies or asks\n" +
			"back, s shows everything, q quits. NO_COLOR is respected. Without a terminal it prints a line for every change, with -o json as\n" +
			"an object, until it is interrupted.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error {
				out, ok := a.Out.(*os.File)
				if !ok || !interactive(a) || !term.IsTerminal(int(out.Fd())) || a.Output == cli.OutputJSON {
					return watchLines(cmd.Context(), a, d)
				}
				w := &watch{a: a, d: d, out: out, screen: screen.New(show.Line(d.approver.String(), show.LineMax))}
				w.screen.Plain = os.Getenv("NO_COLOR") != ""
				return w.run(cmd.Context())
			})
		},
	}
}

// watchLines prints changes until ctx ends, beginning with what is open.
func watchLines(ctx context.Context, a *cli.App, d *deskClient) error {
	after := d.Number()
	for _, i := range d.List() {
		printChange(a, requests.Change{Kind: requests.ChangeAdded, Item: i})
	}
	for {
		changes, ok, err := d.Changes(ctx, after)
		if err != nil {
			return nil //nolint:nilerr // it was interrupted
		}
		if !ok {
			fmt.Fprintln(a.Err, "agentd: there were more changes than can be shown")
			after = d.Number()
		}
		for _, c := range changes {
			printChange(a, c)
			after = c.Number
		}
	}
}

func printChange(a *cli.App, c requests.Change) {
	if a.Output == cli.OutputJSON {
		_ = cli.WriteJSON(a.Out, c, "") // nowhere else to show it
		return
	}
	i := &c.Item
	text := fmt.Sprintf("%s  %s", show.What(i), show.Line(i.Summary, show.LineMax))
	switch {
	case c.Kind == requests.ChangeRemoved:
		text = show.What(i) + "  " + string(c.Reason)
	case c.Kind == requests.ChangeDecided && len(i.Sent) > 0:
		last := i.Sent[len(i.Sent)-1]
		text = fmt.Sprintf("%s  %s %s", show.What(i), last.Decision, show.Line(last.Who+" "+last.Refused, show.LineMax))
	}
	fmt.Fprintf(a.Out, "%s  %-8s %s  %s  %s  %s\n", time.Now().Format(time.TimeOnly), c.Kind, requests.ShortID(i.ID),
		show.Line(i.Agent, 24), show.Line(i.Run, 24), text)
}

// watch is the inbox on a terminal.
type watch struct {
	a      *cli.App
	d      *deskClient
	out    *os.File
	screen *screen.Screen
	// results are what became of actions, keys what is typed; read is told when the next key may be read.
	results chan result
	keys    chan []screen.Key
	read    chan struct{}
}

// result is what became of an action.
type result struct {
	id, status string
	detail     *show.Request
}

// Control sequences of terminals: the alternate screen without wrapping, and how it is left.
const (
	enterScreen = "\x1b[?1049h\x1b[?7l\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?7h\x1b[?1049l"
)

func (w *watch) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.results, w.keys, w.read = make(chan result, 16), make(chan []screen.Key), make(chan struct{}, 1)
	restore, err := w.raw()
	if err != nil {
		return err
	}
	defer func() { restore() }()
	go w.readKeys(ctx)
	w.read <- struct{}{}
	changes := make(chan struct{}, 1)
	go w.watchChanges(ctx, changes)
	clock := time.NewTicker(time.Second) // ages change, and so may the size of the terminal
	defer clock.Stop()
	w.do(ctx, w.screen.Items(w.d.List()))
	for {
		w.draw()
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.d.Failed():
			return err
		case <-clock.C:
		case <-changes:
			w.do(ctx, w.screen.Items(w.d.List()))
		case r := <-w.results:
			w.take(r)
		case keys, ok := <-w.keys:
			if !ok {
				return nil
			}
			for _, k := range keys {
				action := w.screen.Press(k)
				if action.Verb == screen.Quit {
					return nil
				}
				if action.Verb == screen.Edit || action.Verb == screen.Form {
					restore()
					w.aside(ctx, action)
					if restore, err = w.raw(); err != nil {
						return err
					}
					break // what was typed meanwhile was for somebody else
				}
				w.do(ctx, action)
			}
			w.read <- struct{}{}
		}
	}
}

// raw takes the terminal over. restore gives it back, and may be repeated.
func (w *watch) raw() (restore func(), err error) {
	in := int(w.a.In.(*os.File).Fd()) // it is a terminal
	state, err := term.MakeRaw(in)
	if err != nil {
		return func() {}, fmt.Errorf("take over the terminal: %w", err)
	}
	fmt.Fprint(w.out, enterScreen)
	return func() {
		fmt.Fprint(w.out, leaveScreen)
		_ = term.Restore(in, state) // nothing else gives it back
	}, nil
}

// readKeys reads one piece of input each time it is told to: an editor must get what is typed while it runs. A read cannot
// be stopped, so the goroutine ends with the process.
func (w *watch) readKeys(ctx context.Context) {
	defer close(w.keys)
	buffer := make([]byte, 1024)
	for {
		select {
		case <-w.read:
		case <-ctx.Done():
			return
		}
		n, err := w.a.In.Read(buffer)
		if err != nil {
			return
		}
		select {
		case w.keys <- screen.Keys(bytes.Clone(buffer[:n])):
		case <-ctx.Done():
			return
		}
	}
}

func (w *watch) watchChanges(ctx context.Context, changes chan<- struct{}) {
	for after := w.d.Number(); ; after = w.d.Number() {
		if _, _, err := w.d.Changes(ctx, after); err != nil {
			return
		}
		select {
		case changes <- struct{}{}:
		default: // it is known already that something has changed
		}
	}
}

func (w *watch) draw() {
	width, height, err := term.GetSize(int(w.out.Fd()))
	if err != nil {
		width, height = 80, 24
	}
	lines := w.screen.Render(width, height, time.Now())
	fmt.Fprint(w.out, "\x1b[H"+strings.Join(lines, "\x1b[K\r\n")+"\x1b[K\x1b[J")
}

// do carries an action out in the background.
func (w *watch) do(ctx context.Context, action screen.Action) {
	if action.Verb == screen.None {
		return
	}
	go func() {
		r := result{id: action.Item.ID}
		if action.Verb == screen.Load {
			s, err := w.d.show(ctx, action.Item.ID)
			if err != nil {
				return // it is gone, which the next list says
			}
			r.detail = &s
		} else {
			r.status = w.answer(ctx, action)
		}
		select {
		case w.results <- r:
		case <-ctx.Done():
		}
	}()
}

// answer publishes what the person decided or said, and says what became of it.
func (w *watch) answer(ctx context.Context, action screen.Action) string {
	id, who := action.Item.ID, w.d.approver.Who
	var outcome client.Outcome
	var err error
	said := "answered; the run goes on"
	switch action.Verb {
	case screen.Answer:
		r := client.Reply{Text: action.Text}
		if action.Text == follow.EndWord && action.Item.Kind == requests.KindTurn {
			r = client.Reply{End: true}
		}
		outcome, err = w.d.Answer(ctx, id, who, r)
	case screen.Approve, screen.Deny, screen.Ask:
		decision := map[screen.Verb]sdk.Decision{
			screen.Approve: sdk.DecisionAllow, screen.Deny: sdk.DecisionDeny, screen.Ask: sdk.DecisionAsk,
		}[action.Verb]
		outcome, err = w.d.Decide(ctx, id, who, sdk.PermissionDecision{
			Decision: decision, Scope: action.Scope, Reason: action.Text, All: action.Item.Calls > 0,
		})
		said = (&decided{Outcome: outcome, Decision: decision, Scope: action.Scope, mode: action.Item.Mode}).effect()
	default:
		return ""
	}
	name := action.Item.Short + " " + show.What(&action.Item) + ": "
	switch {
	case err != nil:
		return name + problemText(err)
	case outcome.State == client.OutcomeRefused:
		return name + "refused: " + outcome.Refused
	case outcome.State == client.OutcomeSent:
		return name + "sent; no worker has handled it yet"
	}
	return name + said
}

// problemText is an error in one line.
func problemText(err error) string {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		text := e.Message
		for _, f := range e.Faults {
			text += "; " + f.String()
		}
		return text
	}
	return err.Error()
}

func (w *watch) take(r result) {
	if r.detail == nil {
		w.screen.Done(r.id, r.status)
		return
	}
	var asked, all bytes.Buffer
	if err := errors.Join(r.detail.WriteAsked(&asked), r.detail.Write(&all, false)); err != nil {
		return // a buffer takes everything
	}
	lines := func(b bytes.Buffer) []string { return strings.Split(strings.TrimRight(b.String(), "\n"), "\n") }
	w.screen.Detail(&r.detail.Detail, lines(all), len(lines(asked)))
}

// aside does what needs the terminal as it was: an editor, or a form.
func (w *watch) aside(ctx context.Context, action screen.Action) {
	var err error
	if action.Verb == screen.Edit {
		err = edit(ctx, w.a, w.d, action.Item.ID, editFlags{})
	} else {
		err = answer(ctx, w.a, w.d, action.Item.ID, client.Reply{}, "")
	}
	if err != nil {
		w.a.Report(err)
	}
	lines(w.a).ask("\nEnter goes back to the inbox ")
}
