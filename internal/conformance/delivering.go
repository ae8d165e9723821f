package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// many is how many calls come at once.
const many = 32

// delivering is about deliveries: that each is dealt with, and that one that comes again changes nothing.
var delivering = []testCase{
	{name: "acknowledge", rule: "A call is acknowledged after its answer is stored, and nothing else is said to its delivery.", try: tryAcknowledge},
	{name: "duplicate", rule: "A call that is delivered again has one answer.", try: tryDuplicate},
	{name: "attempt", rule: "A further attempt at a call has the same idempotency key: it is answered with the same, as a call of its own.", try: tryAttempt},
	{name: "domain", rule: "The id of a call that goes to several domains may end with one, and its answer names it whole.", try: tryDomain},
	{name: "void", rule: "The void of a call that never came is acknowledged and not answered.", try: tryVoid},
	{name: "many", rule: "All of many calls are answered, each once.", try: tryMany},
	{name: "copies", rule: "Two copies of the service answer each call once, also when it comes twice.", try: tryCopies, redelivers: true},
	{name: "kill", rule: "A service that is killed, and started again, answers what it had not finished.", try: tryKill, redelivers: true},
	{name: "drain", rule: "On SIGTERM a service ends by itself, and no call is lost.", try: tryDrain, redelivers: true},
	{name: "reconnect", rule: "A service goes on when the server was away.", try: tryReconnect},
}

func tryAcknowledge(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	if err := s.put(ctx, c); err != nil {
		return err
	}
	put := c.stored[0]
	if _, err := s.seen.find(ctx, s.Patience, func(m message) bool {
		said := m.of(put)
		return said == acknowledged || said == responded
	}); err != nil {
		return err
	}
	answered := false
	messages, _ := s.seen.all()
	for _, m := range messages {
		said := m.of(put)
		switch {
		case m.subject == c.reply:
			answered = true
		case said == responded:
			return failed("it responds to the delivery with %s: that answers nobody, and acknowledges the call", quoted(m.data))
		case said == givenBack:
			s.advise("it gives the call back (NAK): the agent decides whether to try again")
		case said == acknowledged && !answered:
			return failed("it acknowledges the call before it answers: a call is lost when it dies in between")
		}
	}
	if err := s.finish(ctx, c); err != nil {
		return err
	}
	_, err = s.answer(ctx, c)
	return err
}

func tryDuplicate(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	if _, err := s.ask(ctx, c); err != nil {
		return err
	}
	answer, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	return s.success(answer)
}

func tryAttempt(ctx context.Context, s *session) error {
	return s.tryRenamed(ctx, "-r2")
}

func tryDomain(ctx context.Context, s *session) error {
	domain := "-" + wire.DomainToken(s.Contract.Domain)
	if err := s.tryRenamed(ctx, domain); err != nil {
		return err
	}
	return s.tryRenamed(ctx, "-r12"+domain)
}

// tryRenamed makes a call, and again with an id that ends otherwise, and wants the same answer to both.
func (s *session) tryRenamed(ctx context.Context, suffix string) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	first, err := s.ask(ctx, c)
	if err != nil {
		return err
	}
	again, err := s.callOf(c.event.Subject, s.valid)
	if err != nil {
		return err
	}
	s.name(again, c.event.ID+suffix)
	answer, err := s.ask(ctx, again)
	switch {
	case err != nil:
		return about(err, "%s", again.event.ID)
	case answer.ParentID != "" && answer.ParentID != again.event.ID:
		return failed("the parentid of the answer to %s is %s", again.event.ID, answer.ParentID)
	case string(answer.Data) != string(first.Data):
		return failed("the same idempotency key is answered with %s and then with %s: give each key one effect",
			quoted(first.Data), quoted(answer.Data))
	}
	return s.success(answer)
}

func tryVoid(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	if err := s.void(ctx, c); err != nil {
		return err
	}
	return s.unanswered(ctx, c)
}

// flood publishes many calls, each so many times.
func (s *session) flood(ctx context.Context, times int) ([]*call, error) {
	var calls []*call
	for range many {
		c, err := s.call(s.valid)
		if err != nil {
			return nil, err
		}
		for range times {
			if err := s.put(ctx, c); err != nil {
				return nil, err
			}
		}
		calls = append(calls, c)
	}
	return calls, nil
}

// drained waits until the service has dealt with everything, and looks whether all calls have their answers.
func (s *session) drained(ctx context.Context, calls []*call) error {
	last := map[streams.Zone]uint64{}
	for _, c := range calls {
		for _, put := range c.stored {
			last[put.zone] = max(last[put.zone], put.sequence)
		}
	}
	err := s.untilBacklogs(ctx, s.Patience, func(z streams.Zone, b broker.Backlog) bool {
		return b.Reached >= last[z] && b.Pending == 0 && b.Unacked == 0
	})
	if errors.Is(err, errLate) {
		var unacked, pending int64
		err := s.eachBacklog(ctx, func(_ streams.Zone, b broker.Backlog) { unacked, pending = unacked+b.Unacked, pending+b.Pending })
		if err != nil {
			return err
		}
		return failed("after %s %d deliveries are not acknowledged, and %d wait", s.Patience, unacked, pending)
	}
	if err != nil {
		return err
	}
	for i, c := range calls {
		answer, err := s.answer(ctx, c)
		if err == nil {
			err = s.success(answer)
		}
		if err != nil {
			return about(err, "call %d of %d", i+1, len(calls))
		}
	}
	return nil
}

func tryMany(ctx context.Context, s *session) error {
	calls, err := s.flood(ctx, 1)
	if err != nil {
		return err
	}
	return s.drained(ctx, calls)
}

func tryCopies(ctx context.Context, s *session) error {
	copied, err := s.second(ctx)
	if err != nil {
		return err
	}
	defer copied.kill()
	calls, err := s.flood(ctx, 2)
	if err != nil {
		return err
	}
	if err := s.drained(ctx, calls); err != nil {
		return err
	}
	if copied.over() {
		return failed("the second copy ended: %s", copied.end())
	}
	return nil
}

// second starts another copy of the program, and waits until it asks for calls too, or has ended. One that waits until it is needed does
// neither, which is no defect.
func (s *session) second(ctx context.Context) (*program, error) {
	before := map[streams.Zone]int64{}
	if err := s.eachBacklog(ctx, func(z streams.Zone, b broker.Backlog) { before[z] = b.Pulls }); err != nil {
		return nil, err
	}
	copied, err := start(s.Options, s.server.URL())
	if err != nil {
		return nil, err
	}
	err = s.untilBacklogs(ctx, s.Patience, func(z streams.Zone, b broker.Backlog) bool { return copied.over() || b.Pulls > before[z] })
	if err != nil && !errors.Is(err, errLate) {
		copied.kill()
		return nil, err
	}
	return copied, nil
}

// begun waits for an answer to any of the calls.
func (s *session) begun(ctx context.Context, calls []*call) error {
	at, err := s.seen.find(ctx, s.Patience, func(m message) bool {
		for _, c := range calls {
			if m.subject == c.reply {
				return true
			}
		}
		return false
	})
	if err == nil && at < 0 {
		return failed("none of %d calls is answered within %s", len(calls), s.Patience)
	}
	return err
}

func tryKill(ctx context.Context, s *session) error {
	calls, err := s.flood(ctx, 1)
	if err != nil {
		return err
	}
	if err := s.begun(ctx, calls); err != nil {
		return err
	}
	s.program.kill()
	if err := s.serve(ctx); err != nil {
		return about(err, "started again")
	}
	return s.drained(ctx, calls)
}

func tryDrain(ctx context.Context, s *session) error {
	calls, err := s.flood(ctx, 1)
	if err != nil {
		return err
	}
	if err := s.begun(ctx, calls); err != nil {
		return err
	}
	if err := s.program.terminate(); err != nil {
		return skipped("this system has no SIGTERM: %s", err)
	}
	if err := until(ctx, s.Patience, s.program.over); errors.Is(err, errLate) {
		s.program.kill()
		return failed("it does not end within %s of SIGTERM", s.Patience)
	} else if err != nil {
		return err
	}
	if how := s.program.end(); !strings.HasSuffix(how, "status 0") {
		s.advise("after SIGTERM it ends with %q, which looks like a failure to whoever runs it", how)
	}
	if err := s.serve(ctx); err != nil {
		return about(err, "started again")
	}
	return s.drained(ctx, calls)
}

func tryReconnect(ctx context.Context, s *session) error {
	if err := s.restartServer(ctx, s.Patience); err != nil {
		return fmt.Errorf("restart the server: %w", err)
	}
	answer, err := s.exchange(ctx, s.valid)
	if s.program.over() {
		s.advise("it ends when the server is away (%s): something must start it again", s.program.end())
		if err := s.serve(ctx); err != nil {
			return about(err, "started again")
		}
		answer, err = s.exchange(ctx, s.valid)
	}
	if err != nil {
		return err
	}
	return s.success(answer)
}
