package cli

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"agentd/internal/config"
	"agentd/internal/show"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Report reports an error: as JSON where output is JSON, so that scripts see one form.
func (a *App) Report(err error) {
	if a.Output == OutputJSON {
		p := problemOf(err)
		p.ErrorMessage = a.Reaching(p.ErrorMessage)
		_ = WriteJSON(a.Err, map[string]any{"error": p}, "") // nowhere left to report to
		return
	}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			a.Report(one)
		}
		return
	}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		// One line each, beginning with its place, so that editors can jump there.
		fmt.Fprintln(a.Err, show.VisibleLines(faults.Error()))
		in := strings.Join(faults.Files(), ", ")
		fmt.Fprintf(a.Err, "agentd: %s in %s\n", show.Count(len(faults), "fault"), show.Line(in, show.LineMax))
		return
	}
	if exit, ok := err.(*exitError); ok { //nolint:errorlint // only what is on top decides about the form
		if exit.cause != nil { // else it was reported
			a.Report(exit.cause)
		}
		return
	}
	if e, ok := err.(*sdk.Error); ok { //nolint:errorlint // likewise
		fmt.Fprintln(a.Err, "agentd:", show.VisibleLines(a.Reaching(e.Message)))
		PrintFaults(a.Err, e.Faults)
		if e.Cause != nil {
			fmt.Fprintln(a.Err, " ", strings.ReplaceAll(show.VisibleLines(a.Reaching(e.Cause.Error())), "\n", "\n  "))
		}
		return
	}
	if text := strings.TrimSpace(err.Error()); text != "" {
		fmt.Fprintln(a.Err, "agentd:", show.VisibleLines(a.Reaching(text)))
	}
}

// remedy is the command that a text tells somebody to run. Who wrote it does not know with which settings.
var remedy = regexp.MustCompile(`: agentd (?:agents|approvals|audit|bench|bulk|contracts|dlq|doctor|provision|reconcile|runs|serve)\b`)

// Reaching has the commands that a text tells somebody to run, as "run: agentd provision" does, reach the same server as this one. What is said of a
// command line that was not accepted is about its help.
func (a *App) Reaching(text string) string {
	if !a.begun {
		return text
	}
	return remedy.ReplaceAllStringFunc(text, func(told string) string {
		return ": " + a.CommandLine() + strings.TrimPrefix(told, ": "+program)
	})
}

// PrintFaults prints a line for each fault.
func PrintFaults(w io.Writer, faults []sdk.Fault) {
	for _, f := range faults {
		fmt.Fprintln(w, " ", show.Visible(f.String()))
	}
}

// problemOf is the form of a system error. Unlike on the wire it may say everything: it is for who runs the command.
func problemOf(err error) wire.Problem {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		e = sdk.Errorf(sdk.CodeInternal, "%s", err)
		if exit, ok := errors.AsType[*exitError](err); ok && exit.code == ExitUsage {
			e.Code = sdk.CodeConfig
		}
	}
	p := wire.NewProblem(e)
	if e.Cause != nil {
		p.ErrorMessage += ": " + e.Cause.Error()
	}
	return p
}

// NotPermitted reports whether the NATS server does not let the user do what was tried.
func NotPermitted(err error) bool { return errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) }
