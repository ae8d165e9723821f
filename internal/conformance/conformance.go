// Package conformance drives a service or a client, written by anybody in any language, through the cases of docs/wire.md, on a
// server of its own.
package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"agentd/internal/broker/streams"
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
	// Rule is what a service, or a client, has to do.
	Rule string `json:"rule"`
	// Millis is how long the case took.
	Millis int64 `json:"millis"`
}

// Report is what Run found of a service and RunClient of a client.
type Report struct {
	// Service is the type of the contract, and Version that which was called.
	Service string `json:"service,omitempty"`
	Version string `json:"version,omitempty"`
	// Client is the client's program.
	Client  string   `json:"client,omitempty"`
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
	// Slow that of one whose handler takes at least 20 s unless it is told to stop, Unsendable that of one whose handler returns what cannot
	// be sent; without them their cases are skipped.
	Data, Fail, Slow, Unsendable json.RawMessage
	// Only are the names of the cases to try; none is all.
	Only []string
	// Partitions is how many streams calls are divided into; 0 is 1.
	Partitions int
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
	var trials []trial
	for _, c := range cases {
		trials = append(trials, trial{c.name, func(ctx context.Context) (Result, error) { return s.try(ctx, c) }})
	}
	results, err := tryAll(ctx, s, o.Only, trials)
	return Report{Service: o.Contract.Type, Version: plan.version, Results: results}, err
}

// trial is a case by its name.
type trial struct {
	name string
	try  func(context.Context) (Result, error)
}

// surroundings are what cases are tried in.
type surroundings interface {
	open(ctx context.Context) error
	close() error
}

// tryAll tries those of the cases that are wanted, all when only is empty. It opens the surroundings before and closes them afterwards.
func tryAll(ctx context.Context, with surroundings, only []string, trials []trial) (results []Result, err error) {
	err = with.open(ctx)
	for _, t := range trials {
		if err != nil {
			break
		}
		if len(only) > 0 && !slices.Contains(only, t.name) {
			continue
		}
		var r Result
		if r, err = t.try(ctx); err == nil {
			results = append(results, r)
		}
		if err == nil && r.Outcome == Failed { // what is left of the case is not for others to fail of
			if err = with.close(); err == nil {
				err = with.open(ctx)
			}
		}
	}
	return results, errors.Join(err, with.close())
}

// unknownCases are the faults of names that no case has.
func unknownCases(only, known []string) (faults []sdk.Fault) {
	for _, name := range only {
		if !slices.Contains(known, name) {
			faults = append(faults, sdk.Fault{Path: "case", Expected: "a case", Got: name})
		}
	}
	return faults
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
	faults := unknownCases(o.Only, Names())
	if len(o.Command) == 0 {
		faults = append(faults, sdk.Fault{Path: "command", Expected: "the service's program and its arguments", Got: "nothing"})
	}
	if _, err := streams.NewLayout(max(o.Partitions, 1)); err != nil {
		faults = append(faults, sdk.Fault{Path: "partitions", Expected: "a power of two up to 256", Got: strconv.Itoa(o.Partitions)})
	}
	p := plan{version: version, compiled: compiled, valid: o.Data}
	if len(p.valid) == 0 {
		p.valid = json.RawMessage("{}")
	}
	for name, data := range map[string]json.RawMessage{"data": p.valid, "fail": o.Fail, "slow": o.Slow, "unsendable": o.Unsendable} {
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
