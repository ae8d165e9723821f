package core

import "fmt"

// Move is a change of status that may happen, and when it does.
type Move[S ~string] struct {
	From, To S
	When     string
}

const (
	whenReturned = "the tool returned"
	whenAsks     = "the tool asks a person"
	whenJudged   = "the tool asks a person; or hooks let it pass: sent (a service)"
	whenGivenUp  = "given up, or the run ended"
)

// RunMoves are all changes of a run's status. The zero Status is a run that does not exist.
var RunMoves = []Move[Status]{
	{"", StatusRunning, "the init event"},
	{StatusRunning, StatusWaiting, "all that is open is with others"},
	{StatusWaiting, StatusRunning, "the round is complete, or inline tools may run"},
	{StatusRunning, StatusWaiting, "parked, because something outside is missing, or paused"},
	{StatusWaiting, StatusRunning, "unparked, resumed, or tried again at its time"},
	{StatusRunning, StatusDone, "the run ends"},
	{StatusWaiting, StatusDone, "cancelled, or past a deadline"},
	{StatusDone, StatusRunning, "retried, or calls of it are undone"},
	{StatusDone, StatusWaiting, "retried, and all that is open is with others"},
}

// CallMoves are all changes of a call's status. The zero CallStatus is a call that the model has just asked for.
var CallMoves = []Move[CallStatus]{
	{"", CallNew, "an inline tool, or its turn has not come"},
	{"", CallSuspended, "sent, or held for a decision"},
	{"", CallSucceeded, "a hook set the result"},
	{"", CallFailed, "refused, denied or blocked"},
	{CallNew, CallRunning, "begun (at most once)"},
	{CallNew, CallSuspended, "its turn has come: sent; or the tool asks a person"},
	{CallNew, CallSucceeded, whenReturned},
	{CallNew, CallFailed, "the tool failed"},
	{CallNew, CallCancelled, whenGivenUp},
	{CallRunning, CallSucceeded, whenReturned},
	{CallRunning, CallSuspended, whenAsks},
	{CallRunning, CallFailed, "the tool failed, or was interrupted"},
	{CallRunning, CallCancelled, whenGivenUp},
	{CallSuspended, CallResuming, "allowed, or its question answered: to be ruled on once more"},
	{CallSuspended, CallSucceeded, "answered"},
	{CallSuspended, CallFailed, "answered with an error, timed out or denied"},
	{CallSuspended, CallCancelled, whenGivenUp},
	{CallNew, CallResuming, "its turn has come: to be ruled on once more"},
	{CallResuming, CallRunning, "begun (at most once)"},
	{CallResuming, CallSucceeded, whenReturned},
	{CallResuming, CallSuspended, whenJudged},
	{CallResuming, CallFailed, "the tool failed, or a hook blocked it"},
	{CallResuming, CallCancelled, whenGivenUp},
}

// allowed reports whether a status may change so. It may always stay what it is.
func allowed[S ~string](moves []Move[S], from, to S) bool {
	for _, m := range moves {
		if m.From == from && m.To == to {
			return true
		}
	}
	return from == to
}

// checkCalls notes the first call whose status changed as none may. calls are those of the round, before they leave the head.
func (t *transition) checkCalls(calls []Call) {
	for i := range calls {
		var from CallStatus
		if j := callIn(t.calls, calls[i].ID); j >= 0 {
			from = t.calls[j].Status
		}
		if !allowed(CallMoves, from, calls[i].Status) && t.illegal == nil {
			t.illegal = fmt.Errorf("%w: run %s: call %s cannot go from %q to %q", ErrIllegal, t.Head.Run, calls[i].ID, from, calls[i].Status)
		}
	}
}

// checkMoves returns what changed as it may not.
func (t *transition) checkMoves() error {
	t.checkCalls(t.Head.Calls)
	if from, to := t.was, t.Head.Status; !allowed(RunMoves, from, to) {
		return violation(&t.Head, "a run cannot go from %q to %q", from, to)
	}
	return t.illegal
}
