package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// following is about live events.
var following = []clientCase{
	{name: doFollow, rule: "Every milestone is told once and in order, though live events are lost, doubled and late.", try: tryFollow},
	{name: "pages", rule: "A history of several pages is told whole.", try: tryPages},
	{name: "mark", rule: "Who follows after a mark is told what comes after it.", try: tryMark},
	{name: "purged", rule: "Following a run whose history was removed ends with the error unknown_run.", try: tryPurged},
	{name: "early", rule: "A run that has not begun can be followed.", try: tryEarly},
	{name: "ephemeral", rule: "Ephemeral events, and types and attributes that a client does not know, disturb nothing.", try: tryEphemeral},
	{name: "announce", rule: "Who follows announces it before the history is asked for, when workers ask, and every 15 s at least.", try: tryAnnounce},
	{name: "follow-kill", rule: "A client that is killed while it follows, and goes on after its mark, misses nothing.", try: tryFollowKill},
	{name: "follow-reconnect", rule: "What happens while the connection is lost is told.", try: tryFollowReconnect},
}

// milestone is a live event of a run.
func milestone(run runName, revision uint64, index, count int, kind string) wire.Live {
	return wire.Live{
		Run: run.Name, Agent: desk, Revision: revision, Index: index, Count: count, Turn: 1, Type: kind,
		Time: time.Now().UnixMilli(), Data: json.RawMessage(`{}`),
	}
}

// begin adds the first milestones of a run, which are told to nobody live.
func (s *clientSession) begin(run runName) {
	s.worker.put(run.Name, func(r *wire.RunStatus) { r.Init = run.Init })
	s.worker.happen(milestone(run, 1, 0, 1, wire.MilestoneStarted), 0)
	s.worker.happen(milestone(run, 2, 0, 2, wire.MilestoneReply), 0)
	s.worker.happen(milestone(run, 2, 1, 2, wire.MilestoneUsage), 0)
}

// begun has the program start a run, and begins it.
func (s *clientSession) begun(ctx context.Context) (runName, error) {
	run, err := s.start(ctx, request{})
	if err == nil {
		s.begin(run.runName)
	}
	return run.runName, err
}

// followed is a run that the program has started and follows, with the milestones of its beginning that it has told, up to one.
func (s *clientSession) followed(ctx context.Context, until wire.Mark) (runName, []wire.Mark, error) {
	run, err := s.begun(ctx)
	if err != nil {
		return run, nil, err
	}
	if err := s.follow(ctx, run, nil); err != nil {
		return run, nil, err
	}
	told, err := s.heard(ctx, until)
	return run, told, err
}

// finishRun adds the last milestone of a run, told live.
func (s *clientSession) finishRun(run runName, revision uint64) {
	s.worker.happen(milestone(run, revision, 0, 1, wire.MilestoneFinished), 1)
}

// follow has the program follow a run, and waits until it has announced that.
func (s *clientSession) follow(ctx context.Context, run runName, after *wire.Mark) error {
	from := s.seen.count()
	if err := s.tell(request{Do: doFollow, Run: &run, After: after}); err != nil {
		return err
	}
	return s.announced(ctx, run, from, s.Patience)
}

// announced waits until the program announces that it follows a run.
func (s *clientSession) announced(ctx context.Context, run runName, from int, patience time.Duration) error {
	subject := s.conn.Subjects().Watch(desk, run.key())
	at, err := s.seen.findFrom(ctx, from, patience, func(m message) bool { return m.subject == subject })
	if err == nil && at < 0 {
		return failed("nothing is published on %s within %s: workers tell live events to who says that they read them", subject, patience)
	}
	return err
}

// heard are the milestones that the program tells, up to one.
func (s *clientSession) heard(ctx context.Context, until wire.Mark) ([]wire.Mark, error) {
	var marks []wire.Mark
	for {
		a, err := well(s.next(ctx, doFollow))
		switch {
		case err != nil && len(marks) > 0:
			return marks, about(err, "after milestone %s", text(marks[len(marks)-1]))
		case err != nil:
			return marks, err
		case a.Live == nil:
			return marks, failed("it ends following before the run's end, after %d milestones", len(marks))
		case a.Live.Ephemeral:
			continue
		}
		at := wire.Mark{Revision: a.Live.Revision, Index: a.Live.Index}
		if marks = append(marks, at); at == until {
			return marks, nil
		}
	}
}

func text(m wire.Mark) string { return fmt.Sprintf("(%d, %d)", m.Revision, m.Index) }

// ended is a finding unless the program ends following.
func (s *clientSession) ended(ctx context.Context) error {
	a, err := well(s.next(ctx, doFollow))
	if err == nil && !a.Done {
		return failed("it goes on after the run's end")
	}
	return err
}

// want is a finding unless the program tells exactly these milestones and ends following with the last.
func (s *clientSession) want(ctx context.Context, marks ...wire.Mark) error {
	told, err := s.heard(ctx, marks[len(marks)-1])
	if err != nil {
		return err
	}
	if err := same(told, marks); err != nil {
		return err
	}
	return s.ended(ctx)
}

// same is a finding unless the milestones that were told are these.
func same(told, marks []wire.Mark) error {
	for i, m := range marks {
		switch {
		case i >= len(told) || before(m, told[i]):
			return failed("milestone %s is not told: %s", text(m), list(told))
		case told[i] != m:
			return failed("milestone %s is told again: %s", text(told[i]), list(told))
		}
	}
	return nil
}

func before(a, b wire.Mark) bool {
	return a.Revision < b.Revision || a.Revision == b.Revision && a.Index < b.Index
}

func list(marks []wire.Mark) string {
	texts := make([]string, len(marks))
	for i, m := range marks {
		texts[i] = text(m)
	}
	return strings.Join(texts, " ")
}

func mark(revision uint64, index int) wire.Mark { return wire.Mark{Revision: revision, Index: index} }

func tryFollow(ctx context.Context, s *clientSession) error {
	run, told, err := s.followed(ctx, mark(2, 1))
	if err != nil {
		return err
	}
	again, next := milestone(run, 2, 0, 2, wire.MilestoneReply), milestone(run, 3, 0, 1, wire.MilestoneCall)
	s.conn.Live(again)
	s.worker.happen(next, 2)
	s.conn.Live(again)
	s.worker.happen(milestone(run, 4, 0, 2, wire.MilestoneResult), 0) // lost
	s.worker.happen(milestone(run, 4, 1, 2, wire.MilestoneCheckpoint), 1)
	late, ahead := milestone(run, 5, 0, 1, wire.MilestoneReply), milestone(run, 6, 0, 1, wire.MilestoneUsage)
	s.worker.happen(late, 0)
	s.worker.happen(ahead, 1)
	s.conn.Live(late)
	s.worker.happen(milestone(run, 7, 0, 1, wire.MilestoneCheckpoint), 0) // lost
	s.finishRun(run, 9)                                                   // entries may have no milestones
	rest, err := s.heard(ctx, mark(9, 0))
	if err != nil {
		return err
	}
	if err := same(append(told, rest...), []wire.Mark{
		mark(1, 0), mark(2, 0), mark(2, 1), mark(3, 0), mark(4, 0), mark(4, 1), mark(5, 0), mark(6, 0), mark(7, 0), mark(9, 0),
	}); err != nil {
		return err
	}
	return s.ended(ctx)
}

func tryPages(ctx context.Context, s *clientSession) error {
	run, err := s.begun(ctx)
	if err != nil {
		return err
	}
	s.worker.happen(milestone(run, 3, 0, 1, wire.MilestoneReply), 0)
	s.finishRun(run, 4)
	if err := s.tell(request{Do: doFollow, Run: &run}); err != nil {
		return err
	}
	return s.want(ctx, mark(1, 0), mark(2, 0), mark(2, 1), mark(3, 0), mark(4, 0))
}

func tryMark(ctx context.Context, s *clientSession) error {
	run, err := s.begun(ctx)
	if err != nil {
		return err
	}
	s.finishRun(run, 3)
	after := mark(2, 0)
	if err := s.tell(request{Do: doFollow, Run: &run, After: &after}); err != nil {
		return err
	}
	return s.want(ctx, mark(2, 1), mark(3, 0))
}

func tryPurged(ctx context.Context, s *clientSession) error {
	run, err := s.begun(ctx)
	if err != nil {
		return err
	}
	s.worker.put(run.Name, func(r *wire.RunStatus) {
		r.Status, r.Reason, r.Milestones, r.Purged = wire.StatusDone, wire.ReasonCompleted, nil, time.Now().UnixMilli()
	})
	defer s.worker.forget(run.Name)
	a, err := s.ask(ctx, request{Do: doFollow, Run: &run})
	switch {
	case err != nil:
		return err
	case a.Error == nil:
		return failed("it reports no error, though what the run did can be told to nobody")
	case a.Error.Code != string(sdk.CodeUnknownRun):
		s.advise("the code of the error is %q; %q is what a run that nobody knows is", a.Error.Code, sdk.CodeUnknownRun)
	}
	return nil
}

func tryEarly(ctx context.Context, s *clientSession) error {
	run, err := s.start(ctx, request{})
	if err != nil {
		return err
	}
	missing := s.worker.missing(run.Name)
	if err := s.follow(ctx, run.runName, nil); err != nil {
		return err
	}
	select {
	case <-missing:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.Patience):
		return failed("nothing is asked on %s within %s", s.conn.Subjects().Get(desk), s.Patience)
	}
	s.worker.happen(milestone(run.runName, 1, 0, 1, wire.MilestoneStarted), 1)
	s.worker.happen(milestone(run.runName, 2, 0, 1, wire.MilestoneReply), 1)
	s.finishRun(run.runName, 3)
	return s.want(ctx, mark(1, 0), mark(2, 0), mark(3, 0))
}

// queried waits until the program asks a worker.
func (s *clientSession) queried(ctx context.Context, from int) error {
	subject := s.conn.Subjects().Get(desk)
	at, err := s.seen.findFrom(ctx, from, s.Patience, func(m message) bool { return m.subject == subject })
	if err == nil && at < 0 {
		return failed("nothing is asked on %s within %s", subject, s.Patience)
	}
	return err
}

func tryEphemeral(ctx context.Context, s *clientSession) error {
	run, told, err := s.followed(ctx, mark(2, 1))
	if err != nil {
		return err
	}
	fragment := milestone(run, 2, 0, 0, wire.LiveDelta)
	fragment.Ephemeral, fragment.Data = true, json.RawMessage(`{"text":"Gr"}`)
	for range 3 {
		s.conn.Live(fragment)
	}
	fragment.Type = "conformance.fragment"
	s.conn.Live(fragment)
	s.worker.happen(milestone(run, 3, 0, 1, "conformance.milestone"), 1)
	s.finishRun(run, 4)
	rest, err := s.heard(ctx, mark(4, 0))
	if err != nil {
		return err
	}
	told = append(told, rest...)
	if len(told) == 4 { // a milestone of an unknown type may be passed over
		told = append(told[:3:3], mark(3, 0), told[3])
	}
	if err := same(told, []wire.Mark{mark(1, 0), mark(2, 0), mark(2, 1), mark(3, 0), mark(4, 0)}); err != nil {
		return err
	}
	return s.ended(ctx)
}

func tryAnnounce(ctx context.Context, s *clientSession) error {
	run, err := s.begun(ctx)
	if err != nil {
		return err
	}
	from := s.seen.count()
	if err := s.follow(ctx, run, nil); err != nil {
		return err
	}
	defer s.program.kill()
	if err := s.queried(ctx, from); err != nil {
		return err
	}
	messages, _ := s.seen.all()
	if messages[from].subject == s.conn.Subjects().Get(desk) {
		return failed("it asks for the history before it announces that it follows: what happens in between is told to nobody")
	}
	from = s.seen.count()
	if err := s.conn.AskWatchers(ctx); err != nil {
		return err
	}
	if err := s.announced(ctx, run, from, wire.WatchEvery-time.Second); err != nil {
		return about(err, "asked on %s", s.conn.Subjects().WatchAsk())
	}
	return about(s.announced(ctx, run, s.seen.count(), wire.WatchLasts), "again")
}

func tryFollowKill(ctx context.Context, s *clientSession) error {
	run, _, err := s.followed(ctx, mark(2, 0))
	if err != nil {
		return err
	}
	if err := s.another(""); err != nil {
		return err
	}
	s.worker.happen(milestone(run, 3, 0, 1, wire.MilestoneReply), 1)
	after := mark(2, 0)
	if err := s.follow(ctx, run, &after); err != nil {
		return err
	}
	s.finishRun(run, 4)
	return s.want(ctx, mark(2, 1), mark(3, 0), mark(4, 0))
}

func tryFollowReconnect(ctx context.Context, s *clientSession) error {
	run, _, err := s.followed(ctx, mark(2, 1))
	if err != nil {
		return err
	}
	if err := s.restartServer(ctx, s.Patience); err != nil {
		return err
	}
	s.worker.happen(milestone(run, 3, 0, 1, wire.MilestoneReply), 1)
	s.finishRun(run, 4)
	return s.want(ctx, mark(3, 0), mark(4, 0))
}
