package console

import (
	"testing"

	"agentd/internal/core"
	"agentd/sdk"
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

// What became of a permission request is what was decided, and by whom: neither that nor a call that was not allowed is an error.
func TestSpans_SayWhatWasDecided(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]core.Decision{
		"denied by root":                 {Decision: sdk.DecisionDeny, Who: "root", Event: "e1", Reason: "no proof"},
		"allowed by root":                {Decision: sdk.DecisionAllow, Who: "root", Event: "e1"},
		"allowed":                        {Decision: sdk.DecisionAllow, Event: "e1"},
		"allowed, as decided before":     {Decision: sdk.DecisionAllow, Grant: "c1-2"},
		"asked back by root":             {Decision: sdk.DecisionAsk, Who: "root", Event: "e1", Reason: "Why twice?"},
		"given a result by root":         {Decision: sdk.DecisionResult, Who: "root", Event: "e1"},
		"denied: nobody decided in time": {Decision: sdk.DecisionDeny, Reason: "nobody decided in time"},
	} {
		d.Request, d.Call = "p1", "c1"
		began, ended := core.Entry{Rev: 1, At: 1000}, core.Entry{Rev: 2, At: 2000}
		began.Kind, began.Head.Status = core.KindReplied, core.StatusWaiting
		began.Head.Calls = []core.Call{{ID: "c1", Kind: core.CallService, Tool: "refund"}, {ID: "p1", Kind: core.CallPermission, Tool: "refund"}}
		refused := d
		refused.Refused, refused.Who = "not an approver", "eve"
		ended.Kind, ended.Decisions = core.KindAnswered, []core.Decision{d, refused}
		denied := d.Decision == sdk.DecisionDeny
		ended.Results = []core.Result{{Call: "p1", Kind: core.ResultAnswer, Error: d.Decision != sdk.DecisionAllow}}
		if denied {
			ended.Results = append(ended.Results, core.Result{Call: "c1", Kind: core.ResultDenied, Error: true})
		}
		spans := spansOf([]core.Entry{began, ended}, &ended, 3, 3000)
		if len(spans) != 2 || spans[1].Outcome != want || spans[1].Failed || spans[1].Denied != denied || spans[0].Failed || spans[0].Denied != denied {
			t.Errorf("%q: %+v", want, spans)
		}
	}
}
