package core

import (
	"encoding/json"
	"errors"
	"fmt"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// How Step refuses an input. The head stays as it was.
var (
	// ErrStale: a duplicate, or too late to matter. Nothing is written; what the run waits for is carried out again.
	ErrStale = errors.New("stale input")
	// ErrOrphan: the input names a run or a call that does not exist. It is dead-lettered.
	ErrOrphan = errors.New("orphan input")
	// ErrFenced: another activation drives the run. Whoever gets this does nothing more, not even settle its message.
	ErrFenced = errors.New("fenced: another activation drives the run")
	// ErrIllegal: an input that cannot follow the state: a bug.
	ErrIllegal = errors.New("illegal input")
)

func violation(h *Head, format string, args ...any) error {
	return fmt.Errorf("%w: run %s: %s", ErrIllegal, h.Run, fmt.Sprintf(format, args...))
}

// Input is something that happened, with when, why and who.
type Input struct {
	// At is the worker's clock in Unix milliseconds.
	At    int64
	Cause Cause
	// Owner is the activation that asks, unique to it.
	Owner string
	// Alone says that it is the only one in its worker's process.
	Alone bool
	// Rev is the revision that the change will have.
	Rev   uint64
	Event Event
	// Spent is what model calls of the run's driver cost that came to nothing: no event has it. Only the driver's inputs have any.
	Spent sdk.ModelReply
}

// Event is what happened: Started, Retried, UndoAsked, Answered, Fired, CancelAsked, CallCancelAsked, Steered, PauseAsked, ResumeAsked,
// TagAsked, Unparked and TakenOver come from outside; Inquired, Chosen, Planned, Routed, Replied, Compacted, Began, Returned, Reviewed,
// Built, Undoing, Parked, Released and Ended from whoever drives the run. Sealed.
type Event interface{ kind() string }

// Started begins a run.
type Started struct {
	Run  string
	Init Init
	Data json.RawMessage
	Beginning
	// Budget is how many tokens whoever started the run leaves it; 0 is any number.
	Budget int64
	// Tags are those of the run, as wire.FormatTags has them.
	Tags string
	// Constraints are those of the run, beside the agent's; nil is none.
	Constraints *sdk.Constraints
}

// Operation is an operator's event: its id and source, and the principal that the broker enforced.
type Operation struct{ ID, Source, Who string }

// Retried takes up a run that has ended, as its next generation.
type Retried struct {
	Operation
	// Beginning is that of a run without a model call, which begins anew; nil for all others.
	Beginning *Beginning
}

// UndoAsked begins a generation of a run that has ended, which undoes these calls: those of UndoStack, in any order.
type UndoAsked struct {
	Operation
	Calls []wire.UndoCall
}

// Undoing makes the call that undoes the next one of Head.Undo, as admitted.
type Undoing struct {
	Admission *Admission
	Hooks     []HookState
	Notes     []Note
}

// Beginning is what a run begins with: the context that was built, and what hooks make of it.
type Beginning struct {
	System   string
	Messages []sdk.Message
	// Tokens is how many tokens the Messages have, by estimate; 0 is unknown.
	Tokens  int
	Require []string
	Hooks   []HookState
	// Fails is how the run ends at once, because what its agent does at the beginning failed; nil goes on. A refusal would not
	// do: another delivery of the event may find that the same does not fail, and the event would have two ends.
	Fails *Ending
}

// Answered is a response on a call's reply subject.
type Answered struct {
	// Ref and Address come from the subject, which the broker enforced.
	Ref     wire.CallRef
	Address wire.CallAddress
	// ParentID is the response's own claim of what it answers; "" is none.
	ParentID string
	Data     json.RawMessage
	Error    bool
	// Media are the images and sounds that were in Data.
	Media []sdk.Media
	// Retryable says of an error that another attempt may succeed.
	Retryable bool
	EventID   string
	Source    string
	Who       string
	// Received is when the broker stored it, in Unix milliseconds.
	Received int64
	// Tokens are those that an agent says it has used.
	Tokens int64
	// Decision is what a permission request was answered with; nil is an error of whoever was asked. Key is the fingerprint
	// of the key that signed it, where that was asked for. Refused says why it cannot count, whatever the terms: its signature
	// is wrong, for example.
	Decision *sdk.PermissionDecision
	Key      string
	Refused  string
	// Rulings are what whoever takes the decision has had the policy rule on, of each request that it is about.
	Rulings []DecisionRulings
}

// DecisionRulings are of what a decision says of one request.
type DecisionRulings struct {
	Request string
	// Edit is the call as the decision wants it made, where that edits the arguments.
	Edit *EditAdmission
	// Now is what the policy says of the call that the decision allows, as it is to be made; nil where that was not asked, or hooks
	// have a say too: then the driver asks before it is made.
	Now *Ruling
}

// rulings are those of a request; the zero DecisionRulings where there are none.
func (ev *Answered) rulings(request string) DecisionRulings {
	for _, p := range ev.Rulings {
		if p.Request == request {
			return p
		}
	}
	return DecisionRulings{Request: request}
}

// Fired is the run's timer. Now is the broker's clock, Due what the timer was armed for.
type Fired struct{ Now, Due int64 }

// CancelAsked asks a run to end.
type CancelAsked struct{ Message string }

// CallCancelAsked asks to give up one call of the model.
type CallCancelAsked struct{ Call, Message string }

// PauseAsked asks a run to do nothing more until ResumeAsked. Received is when the broker stored the message, in Unix milliseconds, as
// with the two that follow.
type PauseAsked struct {
	Reason   string
	Received int64
}

// ResumeAsked takes a pause back.
type ResumeAsked struct{ Received int64 }

// Unparked says that what runs with that Key waited for may be there; without a Key it is meant for this run, whatever it waits
// for.
type Unparked struct {
	Key      string
	Received int64
}

// TagAsked changes tags of a run. ID is the same each time the message comes.
type TagAsked struct {
	ID   string
	Tags []TagChange
}

// TagChange gives a tag a value; nil takes it away.
type TagChange struct {
	Key   string
	Value *string
}

// TakenOver says that the message which covers the run was delivered to another activation.
type TakenOver struct{}

// Replied is a model's reply, with what follows from it: its output when it has no calls (nil when the agent converses), or the
// admission of its calls.
type Replied struct {
	Reply     sdk.ModelReply
	Output    *Output
	Admission *Admission
	// What hooks did: messages to be kept before the reply, what the model was reminded of, notes of suspended calls, what they keep, and how they end the run
	// instead of making the calls.
	Context   []sdk.Message
	Reminded  []Reminder
	Notes     []Note
	Hooks     []HookState
	Terminate *Ending
	// Question is AnswerQuestion of the output, where services are asked about it.
	Question json.RawMessage
	// Objections are what judges have against a text, in their order.
	Objections []Objection
	// Results is State.Shown.
	Results int
	// Estimated is how many tokens the prompt has by the estimate, where the model that was asked has answered; 0 is unknown.
	Estimated int64
	// Final says that the model was asked for its final answer: it is not reminded to call a tool.
	Final bool
}

// Steered is a message that somebody sends into a run. Note.ID is the same each time it comes. Question says that it is one of an agent that
// the run has called.
type Steered struct {
	Note     Note
	Question *Question
}

// Reviewed are the messages that hooks add after a round; notes that wait come into the conversation with them.
type Reviewed struct {
	Messages []sdk.Message
	// Late are the carried calls among what hooks were shown, of State.Untold.
	Late  []string
	Hooks []HookState
}

// Compacted shortens what the model is shown of the history. Reply is what the summary cost.
type Compacted struct {
	Summary Summary
	Reply   sdk.ModelReply
}

// Chosen says which tools the model is offered.
type Chosen struct{ Offered Offered }

// Inquired asks the context providers that are due. Question is ContextQuestion(state).
type Inquired struct{ Question json.RawMessage }

// Output is what the output builder made of a text: data, or the fault that the model is told.
type Output struct {
	Data  json.RawMessage
	Fault string
}

// Released is what a driver says that stops without having died: the next one's takeover does not count.
type Released struct{}

// Parked lets go of a run that cannot go on for now: because of Why, which is for what Key names. For a run that was paused itself, Why
// is ParkPaused, and it has no key.
type Parked struct {
	Why        ParkReason
	Key, Model string
	// Code and Message say how the last try failed.
	Code    sdk.Code
	Message string
	// After is how long the run is to wait at least, in milliseconds.
	After int64
}

// Began marks at-most-once tools as begun, before they run.
type Began struct {
	Calls []string
	Hooks []HookState
}

// Returned are the results of inline tools, and the questions of those that cannot go on without an answer.
type Returned struct {
	Results []Result
	Asks    []Ask
	// Passed are the calls of services that were ruled on once more, and may be made.
	Passed []string
	Hooks  []HookState
}

// Built is the output of a run that stops.
type Built struct{ Output Output }

// Ended ends the run: an error that nothing in the loop can mend, or what Next found to be due.
type Ended struct {
	Ending Ending
	// Degraded is the output that the run completes with instead; nil is none.
	Degraded json.RawMessage
	Hooks    []HookState
}

// The kinds of entries, named after the input that each was made for. KindPurged is that of a tombstone.
const (
	KindStarted         = "started"
	KindRetried         = "retried"
	KindUndoAsked       = "undo_asked"
	KindUndoing         = "undoing"
	KindAnswered        = "answered"
	KindFired           = "fired"
	KindCancelAsked     = "cancel_asked"
	KindCallCancelAsked = "call_cancel_asked"
	KindTakenOver       = "taken_over"
	KindReplied         = "replied"
	KindCompacted       = "compacted"
	KindInquired        = "inquired"
	KindChosen          = "chosen"
	KindPlanned         = "planned"
	KindRouted          = "routed"
	KindReleased        = "released"
	KindParked          = "parked"
	KindUnparked        = "unparked"
	KindPauseAsked      = "pause_asked"
	KindResumeAsked     = "resume_asked"
	KindTagAsked        = "tag_asked"
	KindBegan           = "began"
	KindReturned        = "returned"
	KindBuilt           = "built"
	KindSteered         = "steered"
	KindReviewed        = "reviewed"
	KindEnded           = "ended"
	KindPurged          = "purged"
)

// EntryKinds are all kinds of entries.
func EntryKinds() []string {
	return []string{
		KindStarted, KindRetried, KindUndoAsked, KindUndoing, KindAnswered, KindFired, KindCancelAsked, KindCallCancelAsked, KindTakenOver,
		KindReplied, KindCompacted, KindInquired, KindChosen, KindPlanned, KindRouted, KindReleased, KindParked, KindUnparked, KindPauseAsked,
		KindResumeAsked, KindTagAsked, KindBegan, KindReturned, KindBuilt, KindSteered, KindReviewed, KindEnded, KindPurged,
	}
}

func (Started) kind() string         { return KindStarted }
func (Retried) kind() string         { return KindRetried }
func (UndoAsked) kind() string       { return KindUndoAsked }
func (Undoing) kind() string         { return KindUndoing }
func (Answered) kind() string        { return KindAnswered }
func (Fired) kind() string           { return KindFired }
func (CancelAsked) kind() string     { return KindCancelAsked }
func (CallCancelAsked) kind() string { return KindCallCancelAsked }
func (TakenOver) kind() string       { return KindTakenOver }
func (Replied) kind() string         { return KindReplied }
func (Compacted) kind() string       { return KindCompacted }
func (Inquired) kind() string        { return KindInquired }
func (Chosen) kind() string          { return KindChosen }
func (Planned) kind() string         { return KindPlanned }
func (Routed) kind() string          { return KindRouted }
func (Released) kind() string        { return KindReleased }
func (Parked) kind() string          { return KindParked }
func (Unparked) kind() string        { return KindUnparked }
func (PauseAsked) kind() string      { return KindPauseAsked }
func (TagAsked) kind() string        { return KindTagAsked }
func (ResumeAsked) kind() string     { return KindResumeAsked }
func (Began) kind() string           { return KindBegan }
func (Returned) kind() string        { return KindReturned }
func (Built) kind() string           { return KindBuilt }
func (Steered) kind() string         { return KindSteered }
func (Reviewed) kind() string        { return KindReviewed }
func (Ended) kind() string           { return KindEnded }
