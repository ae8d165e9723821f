package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/sdk/wire"
)

// shortly is when a call is due that is not to be finished.
const shortly = 3 * time.Second

// lasting is about calls that take long.
var lasting = []testCase{
	{name: "overdue", rule: "A call that is due before it comes is dealt with, and one answer at most is stored.", try: tryOverdue},
	{name: "deadline", rule: "A call is given up when it is due, also when it is delivered again meanwhile.", try: tryDeadline, needs: slow, without: withoutSlow, redelivers: true},
	{name: "voided", rule: "A call that is voided while it is worked on is acknowledged, and its slot is free again.", try: tryVoided, needs: slow, without: withoutSlow},
	{name: "heartbeat", rule: "A delivery is extended while its call is worked on.", try: tryHeartbeat, needs: slow, without: withoutSlow},
}

func slow(o *Options) json.RawMessage { return o.Slow }

const withoutSlow = "it needs --slow: data of a call whose handler takes at least 20 s unless it is told to stop"

// inHand makes a slow call, due after a time, and waits until it is delivered. Whoever calls it replaces the program at the end,
// which may work on for long.
func (s *session) inHand(ctx context.Context, due time.Duration) (*call, error) {
	c, err := s.call(s.Slow)
	if err != nil {
		return nil, err
	}
	c.event.Extensions[wire.ExpiryTime] = time.Now().Add(due).UTC().Format(time.RFC3339Nano)
	if err := s.put(ctx, c); err != nil {
		return nil, err
	}
	return c, s.untilBacklogs(ctx, s.Patience, func(z streams.Zone, b broker.Backlog) bool {
		return z != c.stored[0].zone || b.Pending == 0 && b.Unacked > 0
	})
}

func tryHeartbeat(ctx context.Context, s *session) error {
	c, err := s.inHand(ctx, window)
	if err != nil {
		return err
	}
	defer s.program.kill()
	at, err := s.seen.find(ctx, streams.CallWait, func(m message) bool {
		return m.of(c.stored[0]) == inProgress || m.of(c.stored[0]) == acknowledged
	})
	if err != nil {
		return err
	}
	if at < 0 {
		return failed("nothing is said to the delivery for %s: the call is delivered to somebody else", streams.CallWait)
	}
	if messages, _ := s.seen.all(); messages[at].of(c.stored[0]) == acknowledged {
		return skipped("the call was finished before a delivery had to be extended: --slow is not slow")
	}
	return s.void(ctx, c)
}

func tryVoided(ctx context.Context, s *session) error {
	c, err := s.inHand(ctx, window)
	if err != nil {
		return err
	}
	defer s.program.kill()
	if err := s.void(ctx, c); err != nil {
		return err
	}
	return s.givenUp(ctx, c)
}

// givenUp advises to acknowledge a call that nobody waits for, where that is not done.
func (s *session) givenUp(ctx context.Context, c *call) error {
	err := s.finish(ctx, c)
	if _, late := errors.AsType[*finding](err); late {
		s.advise("it works on for longer than %s at a call that nobody waits for", s.Patience)
		return nil
	}
	return err
}

func tryDeadline(ctx context.Context, s *session) error {
	c, err := s.inHand(ctx, shortly)
	if err != nil {
		return err
	}
	defer s.program.kill()
	if err := s.put(ctx, c); err != nil {
		return err
	}
	if err := s.givenUp(ctx, c); err != nil {
		return err
	}
	answers, err := s.stored(ctx, c)
	if err != nil || len(answers) == 0 {
		return err // an answer after the deadline would change nothing
	}
	answer, err := s.answer(ctx, c)
	if err != nil {
		return err
	}
	if answer.Type != wire.ErrorType(s.Contract.Type) {
		s.advise("it answers a call that was due, and calls come with less time than it takes")
		return nil
	}
	_, err = s.problem(answer)
	return err
}

func tryOverdue(ctx context.Context, s *session) error {
	c, err := s.call(s.valid)
	if err != nil {
		return err
	}
	c.event.Extensions[wire.ExpiryTime] = time.Now().Add(-time.Minute).UTC().Format(time.RFC3339Nano)
	if err := s.put(ctx, c); err != nil {
		return err
	}
	if err := s.finish(ctx, c); err != nil {
		return err
	}
	answers, err := s.stored(ctx, c)
	if err != nil || len(answers) == 0 {
		return err
	}
	_, err = s.answer(ctx, c)
	return err
}
