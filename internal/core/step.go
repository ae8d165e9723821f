package core

import (
	"fmt"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// MaxDeaths is how many activations in a row that drove the run alone may die without progress before it fails as poisonous.
const MaxDeaths = 5

// transition is a change in the making.
type transition struct {
	Change
	spec *Spec
	in   Input
	// was and calls are the run's status and its calls as they were; illegal is the first change of a call's status that may
	// not be.
	was     Status
	calls   []Call
	illegal error
}

// Step says what in does to the run with head (the zero Head when it does not exist). It never modifies head, and equal
// arguments give equal changes. Errors: ErrStale, ErrOrphan, ErrFenced, ErrIllegal, or *sdk.Error with CodeRunExists.
func Step(spec *Spec, head Head, in Input) (Change, error) {
	t := &transition{spec: spec, in: in, was: head.Status, calls: head.Calls}
	t.Head = head.clone()
	t.At, t.Kind = in.At, in.Event.kind()
	if err := t.apply(); err != nil {
		return Change{}, err
	}
	t.watchCarried()
	t.Head.V = spec.layout(&t.Head)
	if err := t.checkMoves(); err != nil {
		return Change{}, err
	}
	if err := t.Head.Check(); err != nil {
		return Change{}, err
	}
	return t.Change, nil
}

func (t *transition) apply() error {
	if start, ok := t.in.Event.(Started); ok {
		return t.start(start)
	}
	if t.Head.Status == "" {
		return ErrOrphan
	}
	switch ev := t.in.Event.(type) {
	case Retried:
		return t.retried(ev)
	case UndoAsked:
		return t.undoAsked(ev)
	case Answered:
		return t.answered(ev)
	case Fired:
		return t.fired(ev)
	case CancelAsked:
		return t.cancelAsked(ev)
	case CallCancelAsked:
		return t.callCancelAsked(ev)
	case Steered:
		return t.steered(ev)
	case PauseAsked:
		return t.pauseAsked(ev)
	case ResumeAsked:
		return t.resumeAsked(ev)
	case Unparked:
		return t.unparked(ev)
	case TagAsked:
		return t.tagAsked(ev)
	case TakenOver:
		return t.takenOver()
	}
	return t.driven()
}

// driven applies what only the driver may do.
func (t *transition) driven() error {
	if t.Head.Status != StatusRunning || t.Head.Driver.Owner != t.in.Owner {
		return ErrFenced
	}
	t.Head.Driver.Since = t.in.At
	t.cost(t.in.Spent)
	if _, released := t.in.Event.(Released); released {
		t.Head.Driver.Owner = ""
		return nil
	}
	t.Head.Driver.Takeovers, t.Head.Driver.Deaths, t.Head.Driver.Alone = 0, 0, false
	if t.Head.Cancel != nil {
		return t.interrupted(*t.Head.Cancel)
	}
	if parked, ok := t.in.Event.(Parked); ok {
		return t.parked(parked)
	}
	if p := t.Head.Parked; p != nil && (p.Why == ParkPaused || modelAnswered(t.in.Event)) {
		t.unpark() // its agent is not paused any more, or the model that it waited for has answered
	}
	if err := t.outcome(); err != nil || t.Head.Status != StatusRunning || !t.waitsForTokens() {
		return err
	}
	return t.settle()
}

// outcome applies what the driver has done.
func (t *transition) outcome() error {
	switch ev := t.in.Event.(type) {
	case Replied:
		return t.replied(ev)
	case Compacted:
		return t.compacted(ev)
	case Chosen:
		return t.chosen(ev)
	case Planned:
		return t.planned(ev)
	case Routed:
		return t.routed(ev)
	case Inquired:
		return t.inquired(ev)
	case Began:
		return t.began(ev)
	case Returned:
		return t.returned(ev)
	case Built:
		return t.built(ev)
	case Undoing:
		return t.undoing(ev)
	case Reviewed:
		return t.reviewed(ev)
	case Ended:
		t.keep(ev.Hooks)
		if ev.Degraded != nil {
			return t.complete(ReasonCompleted, CodeDegraded, ev.Degraded)
		}
		return t.finish(ev.Ending)
	}
	return violation(&t.Head, "no input %T", t.in.Event)
}

// modelAnswered reports whether the event is of a model that was asked, or need not be.
func modelAnswered(ev Event) bool {
	switch ev.(type) {
	case Replied, Compacted, Planned, Routed:
		return true
	}
	return false
}

func (t *transition) start(ev Started) error {
	if t.Head.Status != "" {
		if t.Head.Init.Token == ev.Init.Token {
			return ErrStale
		}
		return sdk.Errorf(sdk.CodeRunExists, "run %q was already started by another event", ev.Run)
	}
	h := &t.Head
	h.Run, h.Agent, h.Spec, h.Init = ev.Run, t.spec.Name, t.spec.Digest, ev.Init
	h.Tags, h.Constraints, h.Lifecycle = ev.Tags, ev.Constraints, sdk.LifecycleInit
	h.Deadline = t.in.At + t.spec.RunDeadline
	h.Base, h.Budget = t.in.Rev, t.spec.MaxTokens
	if ev.Budget > 0 && (h.Budget == 0 || ev.Budget < h.Budget) {
		h.Budget = ev.Budget
	}
	t.Input = ev.Data
	t.begins(&ev.Beginning)
	t.take()
	return nil
}

// begins gives the run its context.
func (t *transition) begins(b *Beginning) {
	t.System, t.Messages, t.Tokens = b.System, b.Messages, b.Tokens
	t.Head.Require, t.Head.Cancel = b.Require, b.Fails
	t.keep(b.Hooks)
	t.Checkpoints = append(t.Checkpoints, CheckpointUserMessage)
}

// take makes the asking activation the driver: its message's unacknowledged delivery covers the run from now on.
func (t *transition) take() {
	h := &t.Head
	h.Status = StatusRunning
	h.Fence++
	h.Driver = &Driver{
		Stream: t.in.Cause.Stream, Sequence: t.in.Cause.Sequence, EventID: t.in.Cause.EventID,
		Owner: t.in.Owner, Since: t.in.At, Alone: t.in.Alone,
	}
}

func (t *transition) takenOver() error {
	h := &t.Head
	if h.Status != StatusRunning || !h.Driver.Covers(t.in.Cause) {
		return ErrStale
	}
	return t.takeFrom(h.Driver)
}

// takeFrom takes the run from a driver that died, and ends it when too many died in a row that were alone with it: whatever
// kills them would kill the next. One that takes it from itself did not know that it had it.
func (t *transition) takeFrom(former *Driver) error {
	takeovers, deaths := former.Takeovers, former.Deaths
	if former.Owner != "" && former.Owner != t.in.Owner {
		takeovers++
		if former.Alone {
			deaths++
		}
	}
	if deaths > MaxDeaths {
		return t.finish(Ending{
			Reason: ReasonError, Code: sdk.CodePoison,
			Message: fmt.Sprintf("%d workers in a row stopped while they worked on nothing but this run, the last one while %s",
				deaths, doing(t.spec, &t.Head)),
		})
	}
	t.take()
	t.Head.Driver.Takeovers, t.Head.Driver.Deaths = takeovers, deaths
	return nil
}

func (t *transition) answered(ev Answered) error {
	h := &t.Head
	c := h.Answering(ev.Ref.ID)
	switch {
	case c == nil && ev.Ref.Step > h.Round:
		return ErrOrphan // never asked, or asked by a history that was rolled back
	case c == nil && h.RoundOpen() && ev.Ref.Step == h.Round:
		return ErrOrphan // this round asked something else
	case c == nil || c.Closed():
		return ErrStale
	}
	if ev.Ref.Attempt <= c.Voided && c.Kind != CallPermission {
		return ErrStale // nobody waits for that attempt any more: the run ended, and made the next one when it was retried
	}
	if !h.expects(c, ev) {
		switch {
		case c.Kind == CallPermission && slices.Contains(c.Permission.Heard, t.heard(ev)):
			return ErrStale
		case c.Kind == CallPermission && ev.Ref.Attempt <= c.Voided:
			return sdk.Errorf(sdk.CodeDecisionRefused, "the run ended, and the request was taken back; it is asked again")
		case c.Kind == CallPermission && ev.Ref.Attempt < c.attempt():
			return sdk.Errorf(sdk.CodeDecisionRefused, "the request has gone on to others")
		}
		return ErrOrphan
	}
	result := Result{
		Call: c.ID, Kind: ResultAnswer, Data: ev.Data, Media: ev.Media, Error: ev.Error,
		Event: ev.EventID, Source: ev.Source, Who: ev.Who,
	}
	switch c.Kind {
	case CallTurn:
		return t.turnAnswered(c, ev, result)
	case CallPermission:
		return t.decided(c, ev)
	case CallQuestion:
		t.voidOthers(c, ev.Ref.Attempt)
		t.settleQuestion(c, result)
		return t.settle()
	case CallService, CallContext, CallInline:
	}
	if ev.Error && ev.Retryable {
		if err := t.refused(c, ev.Ref.Attempt); err != nil {
			return err
		}
		if c.RetryAt > 0 {
			return t.settle()
		}
	}
	t.voidOthers(c, ev.Ref.Attempt)
	t.account(c, max(ev.Tokens, 0))
	t.close(c, result)
	return t.settle()
}

func (t *transition) fired(ev Fired) error {
	h := &t.Head
	if h.Status == StatusDone || ev.Due != h.Timer {
		return ErrStale
	}
	h.Timer = 0
	if h.Status == StatusRunning && !t.abandoned() {
		// As long as a run has a timer, something takes it from a driver whose message is gone. It is later than the one that
		// fired, however far clocks differ: another delivery of that one is stale.
		t.arm(ev.Now + t.spec.StaleAfter - max(t.in.At-h.Driver.Since, 0) + 1)
	}
	if ev.Now >= h.Deadline {
		return t.interrupt(DeadlinePassed())
	}
	for i := range h.Calls {
		c := &h.Calls[i]
		if c.Closed() {
			continue
		}
		if c.RetryAt > 0 && c.RetryAt <= ev.Now {
			t.resend(c)
			continue
		}
		if c.Due == 0 || c.Due > ev.Now {
			continue
		}
		switch c.Kind {
		case CallTurn:
			return t.interrupt(Ending{
				Reason: ReasonDeadline, Code: sdk.CodeDeadline, Message: "nobody answered the agent's message in time",
				Detail: "turn",
			})
		case CallPermission:
			t.undecided(c)
		case CallQuestion:
			t.voidOthers(c, 0)
			t.settleQuestion(c, failure(c.ID, ResultTimeout, sdk.Errorf(sdk.CodeDeadline, "nobody answered in time")))
		case CallService, CallContext, CallInline:
			t.timedOut(c)
		}
	}
	t.dueAgain(ev.Now)
	if h.Status == StatusRunning && t.abandoned() {
		return t.takeFrom(h.Driver)
	}
	return t.settle()
}

// DeadlinePassed is how a run ends whose time is over.
func DeadlinePassed() Ending {
	return Ending{ReasonDeadline, sdk.CodeDeadline, "the run's deadline has passed", "run"}
}

func (t *transition) cancelAsked(ev CancelAsked) error {
	h := &t.Head
	if h.Status == StatusDone || h.Cancel != nil {
		return ErrStale
	}
	message := "the run was cancelled"
	if ev.Message != "" {
		message += ": " + clip.Text(ev.Message, maxMessage)
	}
	e := Ending{ReasonCancelled, sdk.CodeCancelled, message, "asked"}
	return t.interrupt(e)
}

// interrupt ends a waiting run at once and a running one at its driver's next commit.
func (t *transition) interrupt(e Ending) error {
	h := &t.Head
	if h.Status == StatusWaiting {
		return t.finish(e)
	}
	if h.Cancel == nil {
		h.Cancel = &e
	}
	if t.abandoned() {
		return t.takeFrom(h.Driver)
	}
	return nil
}

// abandoned reports whether any message of a running run may take it: its driver has handed it back, or is silent.
func (t *transition) abandoned() bool {
	d := t.Head.Driver
	return d.Owner == "" || t.in.At-d.Since > t.spec.StaleAfter
}
