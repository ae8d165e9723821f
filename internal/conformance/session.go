package conformance

import (
	"context"
	"errors"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/provision"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// soon is how long a delivery lasts in cases that wait for another one.
const soon = time.Second

// session is a server with the service's consumer, and the program that serves.
type session struct {
	host
	Options
	plan
	program *program
	// layout is how calls are divided.
	layout streams.Layout
	// made counts the calls.
	made int
}

// open starts the server and makes what the service needs there.
func (s *session) open(ctx context.Context) error {
	layout, err := streams.NewLayout(max(s.Partitions, 1))
	if err != nil {
		return err
	}
	s.layout = layout
	// Not everything: who listens to the inbox of a program that is gone has the server go on to deliver there.
	if err := s.openHost(ctx, ackPrefix+">", wire.DefaultSubjects().All(wire.KindIn)); err != nil {
		return err
	}
	return s.redeliverAfter(ctx, streams.CallWait)
}

// close ends the program and the server, and removes what they leave. It may follow a failed open.
func (s *session) close() error {
	if s.program != nil {
		s.program.kill()
		s.program = nil
	}
	return s.closeHost()
}

// redeliverAfter sets how long a delivery lasts that is not extended.
func (s *session) redeliverAfter(ctx context.Context, d time.Duration) error {
	_, err := provision.Apply(ctx, s.conn, provision.Plan{
		AckWait: d, Services: []provision.Service{{Domain: s.Contract.Domain, Type: s.Contract.Type}}, Partitions: s.layout.Partitions(),
	})
	return err
}

// eachBacklog looks at the service's consumers: one on each stream that calls are divided into.
func (s *session) eachBacklog(ctx context.Context, look func(streams.Zone, broker.Backlog)) error {
	for _, ref := range s.layout.Consumers(streams.ServiceConsumer(s.Contract.Domain, s.Contract.Type)) {
		b, err := s.conn.Backlog(ctx, ref)
		if err != nil {
			return err
		}
		look(ref.Zone, b)
	}
	return nil
}

// untilBacklogs looks at the consumers until something is so of each of them.
func (s *session) untilBacklogs(ctx context.Context, patience time.Duration, holds func(streams.Zone, broker.Backlog) bool) error {
	var problem error
	err := until(ctx, patience, func() bool {
		all := true
		problem = s.eachBacklog(ctx, func(z streams.Zone, b broker.Backlog) { all = all && holds(z, b) })
		return problem != nil || all
	})
	return errors.Join(problem, err)
}

// serve has a program that asks for calls, starting it if there is none.
func (s *session) serve(ctx context.Context) error {
	if s.program == nil || s.program.over() {
		// Until the server has noticed that the one before is gone, it gives calls to it.
		err := s.untilBacklogs(ctx, s.Patience, func(_ streams.Zone, b broker.Backlog) bool { return b.Pulls == 0 })
		if err != nil {
			return err
		}
		if s.program, err = start(s.Options, s.server.URL()); err != nil {
			return err
		}
	}
	patience := max(s.Patience, DefaultPatience)
	var unread streams.Zone
	err := s.untilBacklogs(ctx, patience, func(z streams.Zone, b broker.Backlog) bool {
		read := s.program.over() || b.Pulls > 0 || b.Unacked > 0
		if !read {
			unread = z
		}
		return read
	})
	switch {
	case s.program.over():
		return failed("the program asks for no calls")
	case errors.Is(err, errLate):
		return failed("the program asks for no calls of the consumer %s of the stream %s within %s; NATS_URL says where",
			streams.ServiceConsumer(s.Contract.Domain, s.Contract.Type).Name, streams.Name(s.conn.Subjects(), unread), patience)
	}
	return err
}

// try tries one case.
func (s *session) try(ctx context.Context, c testCase) (Result, error) {
	began := time.Now()
	s.advice = nil
	err := s.attempt(ctx, c)
	if s.program != nil && s.program.over() && !s.program.asked {
		err = died(err, s.program)
	}
	return s.result(ctx, c.name, c.rule, began, err)
}

// died says of a case that its program ended by itself.
func died(err error, p *program) error {
	f, found := errors.AsType[*finding](err)
	switch {
	case err == nil:
		return failed("the program ended: %s", p.end())
	case found && f.outcome == Failed:
		return failed("%s; the program ended: %s", f.why, p.end())
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
	return errors.Join(err, s.redeliverAfter(ctx, streams.CallWait))
}
