package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"agentd/sdk/wire"

	"agentd/internal/config"
	"agentd/sdk"
)

// complain reports an error: as JSON where output is JSON, so that scripts see one form.
func (a *app) complain(err error) {
	if a.output == outputJSON {
		_ = json.NewEncoder(a.err).Encode(map[string]any{"error": problemOf(err)}) // nowhere left to report to
		return
	}
	if faults, ok := errors.AsType[config.Faults](err); ok {
		// One line each, beginning with its place, so that editors can jump there.
		fmt.Fprintln(a.err, faults.Error())
		fmt.Fprintf(a.err, "agentd: %s in the configuration\n", count(len(faults), "fault"))
		return
	}
	if exit, ok := err.(*exitError); ok { //nolint:errorlint // only what is on top decides about the form
		err = exit.cause
	}
	if e, ok := err.(*sdk.Error); ok { //nolint:errorlint // likewise
		fmt.Fprintln(a.err, "agentd:", e.Message)
		printFaults(a.err, e.Faults)
		if e.Cause != nil {
			fmt.Fprintln(a.err, " ", e.Cause)
		}
		return
	}
	fmt.Fprintln(a.err, "agentd:", strings.TrimSpace(err.Error()))
}

func printFaults(w io.Writer, faults []sdk.Fault) {
	for _, f := range faults {
		fmt.Fprintln(w, " ", f)
	}
}

// problemOf is the form of a system error. Unlike on the wire it may say everything: it is for who runs the command.
func problemOf(err error) wire.Problem {
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok {
		e = sdk.Errorf(sdk.CodeInternal, "%s", err)
		if exit, ok := errors.AsType[*exitError](err); ok && exit.code == exitUsage {
			e.Code = sdk.CodeConfig
		}
	}
	p := wire.NewProblem(e)
	if e.Cause != nil {
		p.ErrorMessage += ": " + e.Cause.Error()
	}
	return p
}

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
