package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/embedded"
	"agentd/internal/retry"
	"agentd/sdk/wire"
)

const (
	// soon is how long a delivery lasts in cases that wait for another one.
	soon = time.Second
	// look is how often something is looked at that nobody tells of.
	look = 20 * time.Millisecond
)

// session is a server with the service's consumer, and the program that serves.
type session struct {
	Options
	plan
	dir     string
	server  *embedded.Server
	conn    *broker.Conn
	seen    *trace
	untail  func() error
	program *program
	// made counts the calls.
	made int
	// advice is what the case that is tried has to say beside passing.
	advice []string
}

// finding is why a case did not pass. Every other error ends the trial of all.
type finding struct {
	outcome Outcome
	why     string
}

func (f *finding) Error() string { return f.why }

func failed(format string, args ...any) error { return &finding{Failed, fmt.Sprintf(format, args...)} }

func skipped(format string, args ...any) error {
	return &finding{Skipped, fmt.Sprintf(format, args...)}
}

func (s *session) advise(format string, args ...any) {
	s.advice = append(s.advice, fmt.Sprintf(format, args...))
}

// open starts the server and makes what the service needs there.
func (s *session) open(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "agentd-conformance-")
	if err != nil {
		return fmt.Errorf("make a folder for the server: %w", err)
	}
	s.dir, s.seen = dir, newTrace()
	if s.server, err = embedded.Start(embedded.Options{Dir: s.dir, Listen: true, Port: -1}); err != nil {
		return err
	}
	s.conn, err = broker.Connect(ctx, broker.ConnectOptions{
		URL: s.server.URL(), Name: "conformance", Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	// Not everything: who listens to the inbox of a program that is gone has the server go on to deliver there.
	s.untail, err = s.conn.TailInOrder([]string{ackPrefix + ">", s.conn.Subjects().All(wire.KindIn)}, s.seen.add)
	if err != nil {
		return err
	}
	return s.redeliverAfter(ctx, broker.AckWait)
}

// close ends the program and the server, and removes what they leave. It may follow a failed open.
func (s *session) close() error {
	if s.program != nil {
		s.program.kill()
	}
	var err error
	defer func() { *s = session{Options: s.Options, plan: s.plan, made: s.made} }()
	if s.untail != nil {
		err = s.untail()
	}
	if s.conn != nil {
		err = errors.Join(err, s.conn.Close())
	}
	if s.server != nil {
		err = errors.Join(err, s.server.Close())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// restartServer ends the server and starts it again at the same address, with what it had.
func (s *session) restartServer(ctx context.Context) error {
	address, err := url.Parse(s.server.URL())
	if err != nil {
		return fmt.Errorf("read the server's address: %w", err)
	}
	port, err := strconv.Atoi(address.Port())
	if err != nil {
		return fmt.Errorf("read the server's port: %w", err)
	}
	if err := s.server.Close(); err != nil {
		return err
	}
	if s.server, err = embedded.Start(embedded.Options{Dir: s.dir, Listen: true, Port: port, PortOnly: true}); err != nil {
		return err
	}
	return s.until(ctx, s.Patience, s.conn.Connected)
}

// redeliverAfter sets how long a delivery lasts that is not extended.
func (s *session) redeliverAfter(ctx context.Context, d time.Duration) error {
	_, err := s.conn.Provision(ctx, broker.Plan{
		AckWait: d, Services: []broker.ServicePlan{{Domain: s.Contract.Domain, Type: s.Contract.Type}},
	})
	return err
}

func (s *session) backlog(ctx context.Context) (broker.Backlog, error) {
	return s.conn.Backlog(ctx, broker.ServiceConsumer(s.Contract.Domain, s.Contract.Type))
}

// errLate is what until returns when its time is over.
var errLate = errors.New("it did not happen in time")

// until looks again and again until something is so.
func (s *session) until(ctx context.Context, patience time.Duration, holds func() bool) error {
	late := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(late) {
			return errLate
		}
		if err := retry.Sleep(ctx, look); err != nil {
			return err
		}
	}
	return nil
}

// untilBacklog looks at the consumer until something is so of it.
func (s *session) untilBacklog(ctx context.Context, patience time.Duration, holds func(broker.Backlog) bool) error {
	var problem error
	err := s.until(ctx, patience, func() bool {
		b, err := s.backlog(ctx)
		problem = err
		return err != nil || holds(b)
	})
	return errors.Join(problem, err)
}

// serve has a program that asks for calls, starting it if there is none.
func (s *session) serve(ctx context.Context) error {
	if s.program == nil || s.program.over() {
		// Until the server has noticed that the one before is gone, it gives calls to it.
		err := s.untilBacklog(ctx, s.Patience, func(b broker.Backlog) bool { return b.Pulls == 0 })
		if err != nil {
			return err
		}
		if s.program, err = start(s.Options, s.server.URL()); err != nil {
			return err
		}
	}
	patience := max(s.Patience, DefaultPatience)
	err := s.untilBacklog(ctx, patience, func(b broker.Backlog) bool { return s.program.over() || b.Pulls > 0 || b.Unacked > 0 })
	switch {
	case s.program.over():
		return failed("the program asks for no calls")
	case errors.Is(err, errLate):
		return failed("the program asks for no calls of the consumer %s within %s; NATS_URL says where",
			broker.ServiceConsumer(s.Contract.Domain, s.Contract.Type).Name, patience)
	}
	return err
}

// try tries one case.
func (s *session) try(ctx context.Context, c testCase) (Result, error) {
	began := time.Now()
	s.advice = nil
	err := s.attempt(ctx, c)
	if s.program != nil && s.program.over() && !s.program.asked {
		err = s.died(err)
	}
	r := Result{Case: c.name, Outcome: Passed, Rule: c.rule, Millis: time.Since(began).Milliseconds()}
	f, found := errors.AsType[*finding](err)
	switch {
	case found:
		r.Outcome, r.Why = f.outcome, f.why
	case err != nil:
		return r, fmt.Errorf("case %s: %w", c.name, err)
	case len(s.advice) > 0:
		r.Outcome, r.Why = Advised, s.advice[0]
		for _, more := range s.advice[1:] {
			r.Why += "; " + more
		}
	}
	return r, ctx.Err()
}

// died says of a case that its program ended by itself.
func (s *session) died(err error) error {
	f, found := errors.AsType[*finding](err)
	switch {
	case err == nil:
		return failed("the program ended: %s", s.program.end())
	case found && f.outcome == Failed:
		return failed("%s; the program ended: %s", f.why, s.program.end())
	}
	return err
}

func (s *session) attempt(ctx context.Context, c testCase) error {
	if c.needs != nil && len(c.needs(&s.Options)) == 0 {
		return skipped("%s", c.without)
	}
	if err := s.serve(ctx); err != nil {
		return err
	}
	if !c.redelivers {
		return c.try(ctx, s)
	}
	if err := s.redeliverAfter(ctx, soon); err != nil {
		return err
	}
	err := c.try(ctx, s)
	return errors.Join(err, s.redeliverAfter(ctx, broker.AckWait))
}
