package console

import (
	"testing"

	"agentd/internal/core"
)

// What was sent again, taken over after a worker died, or taken up after its end stands in the timeline, where and when it was.
func TestSpans_MarkRetriesAndTakeovers(t *testing.T) {
	t.Parallel()
	entry := func(rev uint64, kind string, at int64, calls ...core.Call) core.Entry {
		e := core.Entry{Rev: rev, At: at}
		e.Kind, e.Head.Status, e.Head.Round, e.Head.Calls = kind, core.StatusWaiting, 1, calls
		return e
	}
	call := core.Call{ID: "c1-0", Kind: core.CallService, Tool: "pay"}
	again := call
	again.Attempt, again.Sent = 2, 4
	entries := []core.Entry{
		entry(1, core.KindStarted, 1000),
		entry(2, core.KindTakenOver, 2000), // its driver said that it goes
		entry(3, core.KindReplied, 3000, call),
		entry(4, core.KindFired, 4000, again),
		entry(5, core.KindFired, 5000, again),
		entry(6, core.KindTakenOver, 6000, again),
		entry(7, core.KindRetried, 7000, again),
	}
	entries[5].Head.Driver = &core.Driver{Takeovers: 1}
	entries[1].Head.Driver = &core.Driver{}
	last := entries[len(entries)-1]
	spans := spansOf(entries, &last, 8, 9000)
	if len(spans) != 3 || spans[0].Name != "pay" || len(spans[0].Tries) != 1 || spans[0].Tries[0] != 4000 {
		t.Fatalf("%+v", spans)
	}
	for i, want := range []span{1: {Kind: markTakeover, Begin: 6000, Revision: 6}, 2: {Kind: markRetry, Begin: 7000, Revision: 7}} {
		if s := spans[i]; i > 0 && (s.Kind != want.Kind || s.Begin != want.Begin || s.End != want.Begin || s.Revision != want.Revision || !s.Mark() || s.Open) {
			t.Errorf("%+v, want %+v", s, want)
		}
	}
	draw(spans)
	if s := spans[0]; len(s.At) != 1 || s.At[0] <= s.X || s.At[0] >= s.X+s.Width {
		t.Errorf("the second attempt is drawn at %v of a bar from %d to %d", s.At, s.X, s.X+s.Width)
	}
}
