// Package cli is what the commands of agentd share: settings, connection, output, exit codes.
package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"agentd/internal/address"
	"agentd/internal/broker"
	"agentd/internal/show"
	"agentd/sdk"
)

// OutputYAML is what a command with this annotation also takes as --output.
const OutputYAML = "yaml"

// CommandLine is a command line that reaches the same server as this one.
func (a *App) CommandLine(args ...string) string {
	line := program
	if a.ConfigGiven {
		line += " -c " + show.ShellQuote(a.Config)
	}
	for _, f := range []struct{ name, value string }{{"--data", a.Data}, {"--nats", address.Hide(a.NATS)}, {"--redis", address.Hide(a.redis)}, {"--as", a.As}} {
		if f.value != "" {
			line += " " + f.name + " " + show.ShellQuote(f.value)
		}
	}
	for _, arg := range args {
		line += " " + show.ShellQuote(arg)
	}
	return line
}

// Exit codes, documented in docs/cli.md.
const (
	ExitOK          = 0
	ExitFailure     = 1   // the command could not do its work
	ExitUsage       = 2   // wrong flags, arguments or configuration
	ExitRun         = 3   // the run ended with an error event
	ExitFindings    = 4   // check, doctor or reconcile found what is not in order
	ExitInterrupted = 130 // interrupted before its work was done: what was followed goes on, and what was stored before is done
)

// program is what the command calls itself.
const program = "agentd"

// Streams are where a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// exitError is an error with the exit code that it leads to. A nil cause has been reported already.
type exitError struct {
	code  int
	cause error
}

func (e *exitError) Error() string {
	if e.cause == nil {
		return ""
	}
	return e.cause.Error()
}

func (e *exitError) Unwrap() error { return e.cause }

// interrupted is the error of a command whose context has ended, in the words of people.
func interrupted(err error) error {
	if errors.Is(err, context.Canceled) {
		return interruption{err}
	}
	return err // it was something else
}

type interruption struct{ error }

func (e interruption) Error() string {
	return strings.ReplaceAll(e.error.Error(), context.Canceled.Error(), "interrupted")
}

func (e interruption) Unwrap() error { return e.error }

// Interrupted is the error of a command that was interrupted.
func Interrupted(err error) error { return &exitError{ExitInterrupted, err} }

// Usage is an error in how the command was used: wrong flags, arguments or configuration.
func Usage(err error) error { return &exitError{ExitUsage, err} }

// Usagef is Usage with a message of its own.
func Usagef(format string, args ...any) error { return Usage(fmt.Errorf(format, args...)) }

// RunFailed is the error that a run ended with.
func RunFailed(err error) error { return &exitError{ExitRun, err} }

// Exit ends a command whose result has been printed with a code of its own.
func Exit(code int) error { return &exitError{code: code} }

// App is what all commands share.
type App struct {
	Streams
	// Output is "text" or "json", of some commands also "yaml".
	Output string
	// Config and Data are the paths of agentd.yaml and of the embedded server's folder; ConfigGiven says that the first
	// was named.
	Config, Data string
	ConfigGiven  bool
	// NATS and redis are URLs; empty are those of the environment, or of the configuration.
	NATS, redis string
	// As is the principal that was named; empty is found out.
	As string
	// Verbose logs more, and shows texts in full.
	Verbose bool
	// begun is set when a command's own code runs.
	begun bool
}

// Run runs the command line and returns the exit code.
func Run(ctx context.Context, args []string, s Streams, commands ...func(*App) *cobra.Command) int {
	a := &App{Streams: s}
	root := a.root(commands)
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	code := ExitFailure
	if !a.begun {
		// Cobra refused the command line.
		err = Usage(refusal(root, args, err))
	}
	err = a.withRemedy(err)
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	} else if ctx.Err() != nil {
		code, err = ExitInterrupted, interrupted(err)
	} else if errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		code = ExitUsage
	}
	if err.Error() != "" {
		a.Report(err)
	}
	return code
}

// Root is the command that has the others, to be looked at and not to be run.
func Root(commands ...func(*App) *cobra.Command) *cobra.Command { return (&App{}).root(commands) }

// withRemedy says what to do about a server that was not provisioned, which any command can meet.
func (a *App) withRemedy(err error) error {
	if _, known := errors.AsType[*sdk.Error](err); known || !broker.NotProvisioned(err) {
		return err
	}
	return sdk.Errorf(sdk.CodeConfig, "the server does not have a stream that this needs; run: %s", a.CommandLine("provision")).WithCause(err)
}

// The output formats.
const (
	OutputText = "text"
	OutputJSON = "json"
)

func (a *App) root(commands []func(*App) *cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:     program,
		Version: BuildVersion().String(),
		Short:   "Durable LLM agents on NATS JetStream",
		Long: "agentd runs LLM agents as durable, event-driven services on NATS JetStream.\n\n" +
			"  agentd dev                          start everything on this machine, with the agents of agentd.yaml\n" +
			"  agentd run AGENT --message TEXT     start a run and follow it\n" +
			"  agentd runs list                    see what runs there are\n\n" +
			"Settings come from flags, else the environment (NATS_URL, NATS_CREDS, REDIS_URL, OPENAI_API_KEY,\n" +
			"OPENAI_BASE_URL, AGENTD_…), else agentd.yaml. Without any, commands use the server of a running agentd dev.",
		SilenceErrors: true,
		SilenceUsage:  true,
		// refusal suggests a command, of every level and on one line.
		DisableSuggestions: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.ConfigGiven = cmd.Flags().Changed("config")
			yaml := a.Output == OutputYAML && cmd.Annotations[OutputYAML] != ""
			if a.Output != OutputText && a.Output != OutputJSON && !yaml {
				return Usagef("--output %q: want text or json", a.Output)
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usage(err) })
	flags := root.PersistentFlags()
	flags.StringVarP(&a.Output, "output", "o", OutputText, "output format: text or json")
	flags.StringVarP(&a.Config, "config", "c", defaultConfig, "configuration file")
	flags.StringVar(&a.Data, "data", "", "folder of the embedded server (default: AGENTD_DATA, else .agentd beside the configuration)")
	flags.StringVar(&a.NATS, "nats", "", "NATS servers, such as nats://HOST:4222 (default: NATS_URL, else a running agentd dev)")
	flags.StringVar(&a.redis, "redis", "", "Redis that keeps the runs, such as redis://HOST:6379/0 (default: REDIS_URL, else JetStream keeps them)")
	flags.StringVar(&a.As, "as", "", "principal to start runs, answer and decide as (default: the NATS user)")
	flags.BoolVarP(&a.Verbose, "verbose", "v", false, "log more, and show texts in full")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{OutputText, OutputJSON}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	for _, command := range commands {
		root.AddCommand(command(a))
	}
	// Cobra's own commands refuse what they do not know as all others do.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if help, _, err := root.Find([]string{helpCommand}); err == nil {
		help.Args = known(root)
	}
	a.complete(root)
	fill(root)
	return root
}

// complete has every command note that its command line was accepted, and those that only have commands below them print their help.
func (a *App) complete(cmd *cobra.Command) {
	if !cmd.Runnable() && cmd.HasParent() {
		cmd.Args = cobra.NoArgs
		cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if cmd.HasParent() { // cobra itself looks whether there is such a command
		cmd.Args = filledArgs(cmd.Args)
	}
	if do := cmd.RunE; do != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.begun = true
			return do(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		a.complete(child)
	}
}

// Progress shows runs on a stream, which may be a terminal.
func (a *App) Progress(w io.Writer) *show.Progress {
	p := &show.Progress{W: w, Full: a.Verbose, Command: a.CommandLine}
	if Columns(w) > 0 {
		p.Columns = func() int { return Columns(w) }
	}
	return p
}

// Columns is how wide the terminal is that a command writes to; 0 where it writes to none.
func Columns(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// WriteText writes a text that others wrote, and that goes into files and programs as it is. On a terminal everything in it can be seen; tabs
// are blanks there.
func WriteText(w io.Writer, text string) error {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		text = show.VisibleLines(strings.ReplaceAll(text, "\t", "    "))
	}
	_, err := io.WriteString(w, text)
	return err
}

// Print writes v as JSON, or calls text.
func (a *App) Print(v any, text func(io.Writer) error) error {
	if a.Output == OutputJSON {
		return WriteJSON(a.Out, v, "  ")
	}
	return text(a.Out)
}

// WriteJSON writes a value as JSON, indented, in which everything can be seen: people read it on terminals too.
func WriteJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(show.EscapeJSON(b.Bytes()))
	return err
}
