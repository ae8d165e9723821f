package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"agentd/internal/desk"
	"agentd/sdk"
)

// Exit codes, documented in docs/cli.md.
const (
	exitOK          = 0
	exitFailure     = 1   // the command could not do its work
	exitUsage       = 2   // wrong flags, arguments or configuration
	exitRun         = 3   // the run ended with an error event
	exitFindings    = 4   // check, doctor or reconcile found what is not in order
	exitInterrupted = 130 // interrupted while something was followed, which goes on
)

// program is what the command calls itself.
const program = "agentd"

// streams are where a command reads and writes.
type streams struct {
	in       io.Reader
	out, err io.Writer
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

// app is what all commands share.
type app struct {
	streams
	// output is "text" or "json".
	output string
	// config and data are the paths of agentd.yaml and of the embedded server's folder; configGiven says that the first
	// is not the default.
	config, data string
	configGiven  bool
	nats, redis  string
	verbose      bool
	// begun is set when a command's own code runs.
	begun bool
}

// run executes the command line and returns the exit code.
func run(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailure
	if !a.begun {
		// Cobra refused the command line.
		err = &exitError{exitUsage, refusal(root, args, err)}
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.code
	} else if errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) {
		code = exitUsage
	}
	if text := err.Error(); text != "" {
		a.complain(err)
	}
	return code
}

const (
	outputText = "text"
	outputJSON = "json"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Durable LLM agents on NATS JetStream",
		Long: "agentd runs LLM agents as durable, event-driven services on NATS JetStream.\n\n" +
			"  agentd dev                          start everything on this machine, with the agents of agentd.yaml\n" +
			"  agentd run AGENT --message TEXT     start a run and follow it\n" +
			"  agentd runs list                    see what runs there are\n\n" +
			"Settings come from flags, else the environment (NATS_URL, NATS_CREDS, REDIS_URL, OPENAI_API_KEY,\n" +
			"OPENAI_BASE_URL, AGENTD_…), else agentd.yaml. Without any, commands use the server of a running agentd dev.",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			a.configGiven = cmd.Flags().Changed("config")
			yaml := a.output == outputYAML && cmd.Annotations[outputYAML] != ""
			if a.output != outputText && a.output != outputJSON && !yaml {
				return &exitError{exitUsage, fmt.Errorf("--output %q: want text or json", a.output)}
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	flags := root.PersistentFlags()
	flags.StringVarP(&a.output, "output", "o", outputText, "output format: text or json")
	flags.StringVarP(&a.config, "config", "c", defaultConfig, "configuration file")
	flags.StringVar(&a.data, "data", "", "folder of the embedded server (default: AGENTD_DATA, else .agentd beside the configuration)")
	flags.StringVar(&a.nats, "nats", "", "NATS servers, such as nats://HOST:4222 (default: NATS_URL, else a running agentd dev)")
	flags.StringVar(&a.redis, "redis", "", "Redis that keeps the runs, such as redis://HOST:6379/0 (default: REDIS_URL, else JetStream keeps them)")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log more, and show texts in full")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{outputText, outputJSON}, cobra.ShellCompDirectiveNoFileComp)) // the flag exists
	root.AddCommand(
		a.devCommand(), a.serveCommand(), a.runCommand(), a.runsCommand(), a.approvalsCommand(), a.dlqCommand(), a.auditCommand(), a.reconcileCommand(),
		a.provisionCommand(), a.natsConfigCommand(), a.eventsCommand(), a.checkCommand(), a.contractsCommand(), a.doctorCommand(),
		a.healthcheckCommand(), a.keysCommand(), a.mockCommand(), a.mcpCommand(), a.versionCommand(),
	)
	a.noteBegin(root)
	return root
}

// noteBegin has every command note that its command line was accepted.
func (a *app) noteBegin(cmd *cobra.Command) {
	if do := cmd.RunE; do != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			a.begun = true
			return do(cmd, args)
		}
	}
	for _, child := range cmd.Commands() {
		a.noteBegin(child)
	}
}

// refusal is cobra's error, with what helps: the form of the command where its arguments are too few or too many.
func refusal(root *cobra.Command, args []string, err error) error {
	if cmd, _, findErr := root.Find(args); findErr == nil && strings.Contains(err.Error(), "arg(s)") {
		use, _, _ := strings.Cut(cmd.UseLine(), " [flags]")
		err = fmt.Errorf("want: %s", use)
	}
	return fmt.Errorf("%w\nsee: %s --help", err, commandPath(root, args))
}

// commandPath is the command that args mean, such as "agentd runs show".
func commandPath(root *cobra.Command, args []string) string {
	if cmd, _, err := root.Find(args); err == nil {
		return cmd.CommandPath()
	}
	return root.CommandPath()
}

// print writes v as JSON, or calls text.
func (a *app) print(v any, text func(io.Writer) error) error {
	if a.output == outputJSON {
		return writeJSON(a.out, v, "  ")
	}
	return text(a.out)
}

// writeJSON writes a value as JSON, indented, in which everything can be seen: people read it on terminals too.
func writeJSON(w io.Writer, v any, indent string) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(desk.EscapeJSON(b.Bytes()))
	return err
}
