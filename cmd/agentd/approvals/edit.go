package approvals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/desk"
	"agentd/internal/requests"
	"agentd/internal/show"
	"agentd/sdk"
)

type editFlags struct {
	args, reason string
	yes          bool
	calls        []string
}

func editCommand(a *cli.App, f *approvalsFlags) *cobra.Command {
	var e editFlags
	cmd := &cobra.Command{
		Use:   "edit ID",
		Short: "Allow a call with other arguments",
		Long: "edit opens the arguments in $VISUAL or $EDITOR, or takes them from --args, and shows what is different. They are\n" +
			"checked against the tool's schema before they are sent, and again by the run. The model is told of them.",
		Example: "  agentd approvals edit k3f9qa\n" + `  agentd approvals edit k3f9qa --args '{"amount": 40}'`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDesk(cmd.Context(), a, f, func(d *deskClient) error { return edit(cmd.Context(), a, d, args[0], e) })
		},
	}
	callsFlag(cmd, &e.calls)
	cmd.Flags().StringVar(&e.args, "args", "", "the arguments: JSON, @FILE, or - for stdin")
	cmd.Flags().StringVar(&e.reason, "reason", "", "why, for the record and the model")
	cmd.Flags().BoolVarP(&e.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

func edit(ctx context.Context, a *cli.App, d *deskClient, id string, f editFlags) error {
	detail, unrecorded, err := d.View(ctx, id, d.approver.Who)
	if err == nil {
		err = d.mustAsk(detail)
	}
	if err != nil {
		return err
	}
	whole := detail.Request
	if len(whole.Calls) > 0 {
		named, err := onCalls(whole, sdk.PermissionDecision{Args: json.RawMessage("{}")}, f.calls)
		if err != nil {
			return err
		}
		if len(named.Calls) != 1 {
			return cli.Usagef("--call: arguments are edited of one call at a time")
		}
		one, _ := whole.Of(named.Calls[0].Call) // onCalls took it from there
		detail.Request, detail.Tool = &one, one.Tool
	}
	if unrecorded != nil {
		fmt.Fprintf(a.Err, "agentd: that you saw it could not be recorded: %s\n", show.Problem(unrecorded))
	}
	interactive := interactive(a) && f.args != "-"
	if f.args == "" && !interactive {
		return cli.Usage(errors.New("an editor needs a terminal; give the arguments with --args"))
	}
	input := prompt(a)
	draft := []byte(nil)
	for {
		args, err := editedArgs(ctx, a, detail, f.args, draft)
		if err != nil {
			return err
		}
		p, err := desk.CheckEdit(detail.Request, args)
		if err == nil {
			p.Reason = f.reason
			return confirmEdit(ctx, a, d, detail, whole, p, f, interactive && !f.yes, input)
		}
		if f.args != "" {
			return err
		}
		a.Report(err)
		again, err := input.ask(ctx, "edit again? [Y/n] ")
		if err != nil {
			return err
		}
		if isNo(again) {
			return errNotSent
		}
		draft = args
	}
}

// errNotSent ends a command whose person thought better of it.
var errNotSent = errors.New("nothing was sent")

func isNo(text string) bool { return strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), "n") }

func isYes(text string) bool { return strings.HasPrefix(strings.ToLower(strings.TrimSpace(text)), "y") }

// editedArgs are the arguments as given, else as the person leaves them in their editor; draft is what they left before.
func editedArgs(ctx context.Context, a *cli.App, detail requests.Detail, given string, draft []byte) (json.RawMessage, error) {
	if given != "" {
		return readArgument(ctx, a, given)
	}
	if draft == nil {
		draft = []byte(show.Indent(detail.Request.Args) + "\n")
	}
	return editor(ctx, a, draft)
}

// readArgument is JSON as given, of a file or of stdin.
func readArgument(ctx context.Context, a *cli.App, given string) (json.RawMessage, error) {
	if given == "-" {
		data, err := io.ReadAll(a.Input(ctx))
		if err != nil {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		return data, nil
	}
	path, isFile := strings.CutPrefix(given, "@")
	if !isFile {
		return json.RawMessage(given), nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return data, nil
}

// editorCommand are the words of the first editor that is set. Editors are set with flags: "code --wait".
func editorCommand() []string {
	for _, variable := range []string{"VISUAL", "EDITOR"} {
		if words := strings.Fields(os.Getenv(variable)); len(words) > 0 {
			return words
		}
	}
	return []string{"vi"}
}

// editor has the person edit a text. The file is theirs alone, and gone afterwards.
func editor(ctx context.Context, a *cli.App, text []byte) (json.RawMessage, error) {
	dir, err := os.MkdirTemp("", "agentd-edit")
	if err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // it is in a folder for what may be forgotten
	path := filepath.Join(dir, "arguments.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("edit: %w", err)
	}
	words := editorCommand()
	cmd := exec.CommandContext(ctx, words[0], append(words[1:], path)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.In, a.Out, a.Err
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("editor %q: %w; set EDITOR, or give the arguments with --args", strings.Join(words, " "), err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read what was edited: %w", err)
	}
	return data, nil
}

func confirmEdit(
	ctx context.Context, a *cli.App, d *deskClient, detail requests.Detail, whole *sdk.PermissionRequest, p sdk.PermissionDecision,
	f editFlags, ask bool, input *prompter,
) error {
	if string(p.Args) == string(detail.Request.Args) {
		return fmt.Errorf("nothing is different, so %w; to allow the call as it is: %s", errNotSent, d.command("approve", detail.Short))
	}
	fmt.Fprint(a.Err, show.Difference(detail.Tool, detail.Request.Args, p.Args))
	if ask {
		answer, err := input.ask(ctx, "allow "+show.Line(detail.Tool, show.LineMax)+" with these arguments? [y/N] ")
		if err != nil {
			return err
		}
		if !isYes(answer) {
			return errNotSent
		}
	}
	detail.Request = whole
	named, err := onCalls(whole, p, f.calls)
	if err != nil {
		return err
	}
	return decide(ctx, a, d, detail, named)
}
