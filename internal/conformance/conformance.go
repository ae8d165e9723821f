// Package conformance drives a service, written by anybody in any language, through the cases of docs/wire.md, on a server of its
// own.
package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"agentd/internal/contracts"
	"agentd/sdk"
)

// Outcome is what became of a case.
type Outcome string

// The outcomes. Advised is a service that keeps to the wire and could do better; skipped is a case that could not be tried.
const (
	Passed  Outcome = "pass"
	Advised Outcome = "advice"
	Failed  Outcome = "fail"
	Skipped Outcome = "skip"
)

// Result is one case.
type Result struct {
	Case    string  `json:"case"`
	Outcome Outcome `json:"outcome"`
	// Why says what was seen, unless the case passed.
	Why string `json:"why,omitempty"`
	// Rule is what a service has to do.
	Rule string `json:"rule"`
	// Millis is how long the case took.
	Millis int64 `json:"millis"`
}

// Report is what Run found.
type Report struct {
	Service string   `json:"service"`
	Version string   `json:"version"`
	Results []Result `json:"results"`
}

// Count is how many cases have an outcome.
func (r Report) Count(o Outcome) int {
	n := 0
	for _, result := range r.Results {
		if result.Outcome == o {
			n++
		}
	}
	return n
}

// Options are whom Run tries, and with what.
type Options struct {
	Contract sdk.Contract
	// Command is the program and its arguments. It connects to NATS_URL and serves the contract until SIGTERM. It must be the
	// program itself, not a shell around it: it is killed.
	Command []string
	// Environ is added to the environment of the program.
	Environ []string
	// Output is where the program's own output goes.
	Output io.Writer
	// Data of a call that is answered with the same each time; empty is {}. Fail is that of one whose handler reports an error,
	// Slow that of one whose handler takes at least 20 s unless it is told to stop; without them their cases are skipped.
	Data, Fail, Slow json.RawMessage
	// Only are the names of the cases to try; none is all.
	Only []string
	// Patience is how long anything may take that has no time of its own; 0 is DefaultPatience.
	Patience time.Duration
}

// DefaultPatience is how long a service may take for anything.
const DefaultPatience = 15 * time.Second

// Names are those of all cases, in their order.
func Names() []string {
	var names []string
	for _, c := range cases {
		names = append(names, c.name)
	}
	return names
}

// Run tries all cases. The error is *sdk.Error with CodeConfig where the options are wrong; what is wrong with the service is in
// the report.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	plan, err := o.plan()
	if err != nil {
		return Report{}, err
	}
	s := &session{Options: o, plan: plan}
	report := Report{Service: o.Contract.Type, Version: plan.version}
	err = s.open(ctx)
	for _, c := range cases {
		if err != nil {
			break
		}
		if len(o.Only) > 0 && !slices.Contains(o.Only, c.name) {
			continue
		}
		var r Result
		if r, err = s.try(ctx, c); err == nil {
			report.Results = append(report.Results, r)
		}
		if err == nil && r.Outcome == Failed { // what is left of the case is not for others to fail of
			if err = s.close(); err == nil {
				err = s.open(ctx)
			}
		}
	}
	return report, errors.Join(err, s.close())
}

// plan is what options mean.
type plan struct {
	version  string
	compiled *contracts.Version
	// valid is accepted by the contract; invalid is not, and empty where the contract accepts everything.
	valid, invalid json.RawMessage
}

func (o Options) plan() (plan, error) {
	version, err := contracts.Resolve(o.Contract, contracts.Latest)
	if err != nil {
		return plan{}, err
	}
	compiled, err := contracts.CompileVersion(o.Contract, version)
	if err != nil {
		return plan{}, err
	}
	var faults []sdk.Fault
	for _, name := range o.Only {
		if !slices.Contains(Names(), name) {
			faults = append(faults, sdk.Fault{Path: "case", Expected: "a case", Got: name})
		}
	}
	if len(o.Command) == 0 {
		faults = append(faults, sdk.Fault{Path: "command", Expected: "the service's program and its arguments", Got: "nothing"})
	}
	p := plan{version: version, compiled: compiled, valid: o.Data}
	if len(p.valid) == 0 {
		p.valid = json.RawMessage("{}")
	}
	for name, data := range map[string]json.RawMessage{"data": p.valid, "fail": o.Fail, "slow": o.Slow} {
		if len(data) == 0 {
			continue
		}
		for _, f := range compiled.Accepts.Validate(data) {
			faults = append(faults, sdk.Fault{Path: name + ": " + f.Path, Expected: f.Expected, Got: f.Got})
		}
	}
	if len(faults) > 0 {
		slices.SortFunc(faults, func(a, b sdk.Fault) int { return cmp.Compare(a.Path, b.Path) })
		return plan{}, &sdk.Error{Code: sdk.CodeConfig, Message: "the service cannot be tried", Faults: faults}
	}
	p.invalid = refused(compiled, p.valid)
	return p, nil
}
