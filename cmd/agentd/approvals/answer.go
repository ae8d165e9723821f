package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/requests"
	"agentd/internal/schema"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/client"
)

func answerCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	var r client.Reply
	var data string
	cmd := &cobra.Command{
		Use:   "answer ID [TEXT]",
		Short: "Answer a question, a turn of a conversation, or another task",
		Long: "answer sends TEXT, or --input that fits the JSON schema of the answer, or the form of a tool that asks. Without either\n" +
			"it asks on the terminal: a number chooses a suggestion, and forms and other tasks are asked field by field. /end ends a\n" +
			"conversation, like --end.",
		Example: "  agentd approvals answer k3f9qa \"Yes, book both\"\n" + `  agentd approvals answer k3f9qa --input '{"answer": "Yes"}'`,
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				r.Text = args[1]
			}
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error {
				return answer(cmd.Context(), a, d, args[0], r, data)
			})
		},
	}
	cmd.Flags().StringVar(&data, "input", "", "the data of the answer: JSON, @FILE, or - for stdin")
	cmd.Flags().StringVar(&r.Type, "type", "", "the event type of the answer, when its contract emits several")
	cmd.Flags().BoolVar(&r.End, "end", false, "end the conversation; TEXT may then be missing")
	return cmd
}

// answered is what an answer became, for scripts.
type answered struct {
	Request string `json:"request"`
	Run     string `json:"run"`
	client.Outcome
}

func answer(ctx context.Context, a *cli.App, d *deskClient, id string, r client.Reply, data string) error {
	detail, err := d.Detail(ctx, id)
	if err != nil {
		return err
	}
	switch {
	case data != "":
		if r.Data, err = readArgument(ctx, a, data); err != nil {
			return err
		}
	case r.Text == "" && !r.End:
		if r, err = obtainReply(ctx, a, d, detail, r); err != nil {
			return err
		}
	}
	outcome, err := d.Answer(ctx, detail.ID, d.approver.Who, r)
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Err, "as %s\n", d.approver)
	if outcome.State == client.OutcomeRefused {
		return sdk.Errorf(sdk.CodeDecisionRefused, "refused: %s", show.Visible(outcome.Refused))
	}
	err = a.Print(answered{detail.ID, detail.Run, outcome}, func(w io.Writer) error {
		text := "answered; the run goes on"
		if outcome.State == client.OutcomeSent {
			text = "sent; it is stored, and no worker has handled it yet"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	})
	return interrupted(ctx, outcome, err)
}

// obtainReply asks the person at the terminal.
func obtainReply(ctx context.Context, a *cli.App, d *deskClient, detail requests.Detail, r client.Reply) (client.Reply, error) {
	if detail.Kind == requests.KindPermission {
		return r, sdk.Errorf(sdk.CodeDecisionRefused, "%s is a permission request; approve or deny it", detail.Short)
	}
	if !interactive(a) {
		return r, cli.Usage(errors.New("give an answer: TEXT, --input or --end"))
	}
	input := prompt(a)
	if detail.Kind == requests.KindTask {
		eventType, schema, err := d.AnswerSchema(detail, r.Type)
		if err != nil {
			return r, err
		}
		show.Block(a.Err, "data, written by the model", show.VisibleJSON(detail.Event.Data))
		r.Type = eventType
		r.Data, err = input.form(ctx, schema)
		return r, err
	}
	if form := detail.Form(); len(form) > 0 {
		show.Block(a.Err, "text, written by a tool", show.VisibleLines(detail.Text))
		var err error
		r.Data, err = input.form(ctx, form)
		return r, err
	}
	show.Block(a.Err, "text, written by the model", show.VisibleLines(detail.Text))
	for n, s := range detail.Suggestions {
		fmt.Fprintf(a.Err, "  %d. %s\n", n+1, show.Visible(s))
	}
	hint := "> "
	if detail.Kind == requests.KindTurn {
		hint = "(" + follow.EndWord + " ends the conversation) > "
	}
	text, err := input.ask(ctx, hint)
	if err != nil {
		return r, err
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(detail.Suggestions) {
		text = detail.Suggestions[n-1]
	}
	if r.Text = text; text == follow.EndWord && detail.Kind == requests.KindTurn {
		r.Text, r.End = "", true
	}
	return r, nil
}

// interactive reports whether a person types.
func interactive(a *cli.App) bool {
	f, ok := a.In.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// prompter asks a person for lines.
type prompter struct {
	in  *cli.Lines
	out io.Writer
}

func prompt(a *cli.App) *prompter { return &prompter{cli.ReadLines(a.In), a.Err} }

// ask returns a line. The error is errNotSent when there is none any more, because the input has ended or the command was interrupted.
func (p *prompter) ask(ctx context.Context, prompt string) (string, error) {
	fmt.Fprint(p.out, prompt)
	line, ok := p.in.Next(ctx)
	if ok {
		return line, nil
	}
	fmt.Fprintln(p.out)
	if ctx.Err() != nil {
		return "", cli.Interrupted(errNotSent)
	}
	return "", errNotSent
}

// property is what a form needs of a property's schema.
type property struct {
	Type        any    `json:"type"`
	Description string `json:"description"`
	Enum        []any  `json:"enum"`
}

// form asks for the properties of an object, the required ones first. Without a schema, or with one of another kind, it
// asks for JSON.
func (p *prompter) form(ctx context.Context, schema json.RawMessage) (json.RawMessage, error) {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
	}
	if len(schema) == 0 || json.Unmarshal(schema, &s) != nil || len(s.Properties) == 0 {
		line, err := p.ask(ctx, "the answer as JSON > ")
		return json.RawMessage(line), err
	}
	object := map[string]json.RawMessage{}
	for _, name := range formOrder(s.Properties, s.Required) {
		value, err := p.field(ctx, name, s.Properties[name], slices.Contains(s.Required, name))
		if err != nil {
			return nil, err
		}
		if value != nil {
			object[name] = value
		}
	}
	return json.Marshal(object)
}

// field asks for one property until what is typed fits its schema. An optional one may be left out.
func (p *prompter) field(ctx context.Context, name string, own json.RawMessage, required bool) (json.RawMessage, error) {
	var s property
	if err := json.Unmarshal(own, &s); err != nil {
		s = property{} // "true", or not a schema at all; the answer as a whole is held to it
	}
	compiled, err := schema.Compile(own)
	if err != nil {
		compiled = nil // it refers to another part of the whole
	}
	kind, _ := s.Type.(string)
	label := show.Visible(name)
	if s.Description != "" {
		label += ": " + show.Visible(s.Description)
	}
	hint := kind
	if len(s.Enum) > 0 {
		choices, err := json.Marshal(s.Enum)
		if err != nil {
			return nil, fmt.Errorf("read choices of %s: %w", name, err)
		}
		hint = "one of " + show.Visible(string(choices))
	}
	if !required {
		hint += ", optional"
	}
	for {
		line, err := p.ask(ctx, fmt.Sprintf("%s (%s) > ", label, strings.TrimPrefix(hint, ", ")))
		switch {
		case err != nil:
			return nil, err
		case line == "" && !required:
			return nil, nil
		case line == "":
			fmt.Fprintln(p.out, "this one is needed")
			continue
		}
		value := json.RawMessage(line)
		if kind == "string" || !json.Valid(value) {
			if value, err = json.Marshal(line); err != nil {
				return nil, fmt.Errorf("encode %s: %w", name, err)
			}
		}
		if compiled == nil {
			return value, nil
		}
		faults := compiled.Validate(value)
		if len(faults) == 0 {
			return value, nil
		}
		for _, fault := range faults {
			fmt.Fprintf(p.out, "want %s, got %s\n", show.Visible(fault.Expected), show.Visible(fault.Got))
		}
	}
}

// formOrder is the order in which a form asks: required properties as the schema lists them, then the others by name.
func formOrder(properties map[string]json.RawMessage, required []string) []string {
	var names, others []string
	for _, name := range required {
		if _, ok := properties[name]; ok {
			names = append(names, name)
		}
	}
	for name := range properties {
		if !slices.Contains(names, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(names, others...)
}
