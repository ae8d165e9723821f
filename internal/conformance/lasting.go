package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
	{name: "room", rule: "An answer for which there is no room is stored when there is.", try: tryRoom, redelivers: true},
	{name: "room-voided", rule: "One that nobody waits for any more keeps no slot until then.", try: tryRoomVoided, redelivers: true},
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

// withoutRoom makes a call whose answer the stream of answers has no room for, and does something when the service has tried to store it. Then
// there is room again.
func (s *session) withoutRoom(ctx context.Context, then func(*call) error) error {
	before, err := s.call(s.valid)
	if err != nil {
		return err
	}
	if _, err := s.ask(ctx, before); err != nil { // a stream without messages has room for one, whatever its limit
		return err
	}
	c, err := s.callOf(before.event.Subject, s.valid)
	if err != nil {
		return err
	}
	s.name(c, before.event.ID+"-r2")
	stream := streams.Name(s.conn.Subjects(), s.layout.OfRun(streams.In, c.at.Run))
	if err := s.limit(ctx, stream, func(has int64) int64 { return has }); err != nil {
		return err
	}
	if err = s.put(ctx, c); err == nil {
		err = s.begun(ctx, []*call{c})
	}
	if err == nil {
		err = then(c)
	}
	return errors.Join(err, s.limit(ctx, stream, func(int64) int64 { return -1 }))
}

// limit sets how many messages a stream may have, by how many it has.
func (s *session) limit(ctx context.Context, name string, most func(has int64) int64) error {
	stream, err := s.conn.JetStream().Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look at stream %s: %w", name, err)
	}
	info := stream.CachedInfo()
	info.Config.MaxMsgs = most(int64(info.State.Msgs))
	if _, err := s.conn.JetStream().UpdateStream(ctx, info.Config); err != nil {
		return fmt.Errorf("limit stream %s: %w", name, err)
	}
	return nil
}

func tryRoom(ctx context.Context, s *session) error {
	var kept *call
	if err := s.withoutRoom(ctx, func(c *call) error {
		kept = c
		return nil
	}); err != nil {
		return err
	}
	if err := s.finish(ctx, kept); err != nil {
		return err
	}
	answer, err := s.answer(ctx, kept)
	if err != nil {
		return err
	}
	return s.success(answer)
}

func tryRoomVoided(ctx context.Context, s *session) error {
	return s.withoutRoom(ctx, func(c *call) error {
		err := s.void(ctx, c)
		if f, late := errors.AsType[*finding](err); late { // one slot is all that it has
			s.advise("it keeps to an answer that nobody waits for: %s", f.why)
			return nil
		}
		if err != nil {
			return err
		}
		return s.givenUp(ctx, c)
	})
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
