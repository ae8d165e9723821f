package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"agentd/sdk"
)

// Exit codes, documented in docs/cli.md.
const (
	exitOK       = 0
	exitFailure  = 1 // the command could not do its work
	exitUsage    = 2 // wrong flags, arguments or configuration
	exitRun      = 3 // the run ended with an error event
	exitFindings = 4 // check or doctor found something
)

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
	// config and data are the paths of agentd.yaml and of the embedded server's folder.
	config, data string
	verbose      bool
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

// complain reports an error: as JSON where output is JSON, so that scripts see one form.
func (a *app) complain(err error) {
	if a.output == outputJSON {
		e, ok := errors.AsType[*sdk.Error](err)
		if !ok {
			e = sdk.Errorf(sdk.CodeInternal, "%s", err)
		}
		_ = json.NewEncoder(a.err).Encode(map[string]any{"error": sdk.NewProblem(e)}) // nowhere left to report to
		return
	}
	fmt.Fprintln(a.err, "agentd:", strings.TrimSpace(err.Error()))
}

const (
	outputText = "text"
	outputJSON = "json"
)

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "agentd",
		Short:         "Durable LLM agents on NATS JetStream",
		Long:          "agentd runs LLM agents as durable, event-driven services on NATS JetStream.\nStart with: agentd dev",
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.output != outputText && a.output != outputJSON {
				return &exitError{exitUsage, fmt.Errorf("--output %q: want text or json", a.output)}
			}
			return nil
		},
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	flags := root.PersistentFlags()
	flags.StringVarP(&a.output, "output", "o", outputText, "output format: text or json")
	flags.StringVarP(&a.config, "config", "c", "agentd.yaml", "configuration file")
	flags.StringVar(&a.data, "data", "", "folder of the embedded server (default: from the configuration, else .agentd)")
	flags.BoolVarP(&a.verbose, "verbose", "v", false, "log more")
	root.AddCommand(
		a.devCommand(), a.serveCommand(), a.runCommand(), a.runsCommand(), a.provisionCommand(), a.eventsCommand(),
		a.checkCommand(), a.doctorCommand(), a.mockCommand(), a.versionCommand(),
	)
	return root
}

func (a *app) logger() *slog.Logger {
	level := slog.LevelWarn
	if a.verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: level}))
}

// print writes v as JSON, or calls text.
func (a *app) print(v any, text func(io.Writer) error) error {
	if a.output == outputJSON {
		e := json.NewEncoder(a.out)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	return text(a.out)
}
