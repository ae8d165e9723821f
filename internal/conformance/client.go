package conformance

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"agentd/internal/broker/provision"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// ClientOptions are which client RunClient tries.
type ClientOptions struct {
	// Command is the program and its arguments. It connects to NATS_URL, as NATS_USER where that is set, reads requests from its
	// input and prints answers (docs/conformance.md). It must be the program itself, not a shell around it: it is killed.
	Command []string
	// Environ is added to the environment of the program.
	Environ []string
	// Output is where the program's errors go.
	Output io.Writer
	// Only are the names of the cases to try; none is all.
	Only []string
	// Patience is how long anything may take that has no time of its own; 0 is DefaultPatience.
	Patience time.Duration
}

// clientCase is one case. Its rule is in docs/conformance.md too.
type clientCase struct {
	name, rule string
	try        func(context.Context, *clientSession) error
}

var clientCases = slices.Concat(starting, waiting, following, asking)

// ClientNames are those of all cases of clients, in their order.
func ClientNames() []string {
	var names []string
	for _, c := range clientCases {
		names = append(names, c.name)
	}
	return names
}

// RunClient tries all cases on a client. The session is the broker and the worker of its agents. The error is *sdk.Error with
// CodeConfig where the options are wrong; what is wrong with the client is in the report.
func RunClient(ctx context.Context, o ClientOptions) (Report, error) {
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	faults := unknownCases(o.Only, ClientNames())
	if len(o.Command) == 0 {
		faults = append(faults, sdk.Fault{Path: "command", Expected: "the client's program and its arguments", Got: "nothing"})
	}
	if len(faults) > 0 {
		return Report{}, &sdk.Error{Code: sdk.CodeConfig, Message: "the client cannot be tried", Faults: faults}
	}
	s := &clientSession{ClientOptions: o}
	var trials []trial
	for _, c := range clientCases {
		trials = append(trials, trial{c.name, func(ctx context.Context) (Result, error) { return s.try(ctx, c) }})
	}
	results, err := tryAll(ctx, s, o.Only, trials)
	return Report{Client: o.Command[0], Results: results}, err
}

// clientSession is a server, the worker that it plays, and the client's program.
type clientSession struct {
	host
	ClientOptions
	worker  *worker
	program *driven
	// made counts the runs that have a name of the session.
	made int
}

func (s *clientSession) open(ctx context.Context) error {
	subjects := wire.DefaultSubjects()
	err := s.openHost(ctx, subjects.All(wire.KindStart), subjects.All(wire.KindIn), subjects.All(wire.KindCtl),
		subjects.All(wire.KindGet), subjects.All(wire.KindWatch))
	if err != nil {
		return err
	}
	if err := s.provision(ctx); err != nil {
		return err
	}
	s.worker, err = work(s.conn)
	return err
}

// provision makes the streams that there are not.
func (s *clientSession) provision(ctx context.Context) error {
	_, err := provision.Apply(ctx, s.conn, provision.Plan{})
	return err
}

// close ends the program and the server, and removes what they leave. It may follow a failed open.
func (s *clientSession) close() error {
	var err error
	if s.program != nil {
		s.program.kill()
		s.program = nil
	}
	if s.worker != nil {
		err = s.worker.stop()
		s.worker = nil
	}
	return errors.Join(err, s.closeHost())
}

// try tries one case.
func (s *clientSession) try(ctx context.Context, c clientCase) (Result, error) {
	began := time.Now()
	s.advice = nil
	err := s.ready()
	if err == nil {
		err = c.try(ctx, s)
	}
	if s.program != nil && s.program.over() && !s.program.asked {
		err = died(err, s.program.program)
	}
	return s.result(ctx, c.name, c.rule, began, err)
}

// ready has a program that takes requests, starting it if there is none.
func (s *clientSession) ready() error {
	if s.program != nil && !s.program.over() {
		return nil
	}
	return s.another("")
}

// another starts the program anew, as a principal unless that is "".
func (s *clientSession) another(principal string) error {
	if s.program != nil {
		s.program.kill()
	}
	environ := []string{"NATS_URL=" + s.server.URL()}
	if principal != "" {
		environ = append(environ, "NATS_USER="+principal, "NATS_PASSWORD=conformance")
	}
	var err error
	s.program, err = drive(s.Command, append(environ, s.Environ...), s.Output)
	return err
}
