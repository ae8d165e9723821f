package core

import (
	"encoding/json"
	"errors"
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// LayoutVersion is the greatest V of heads and entries that this code writes and reads. What a version before would get wrong
// is written with a greater V, so that it leaves the run alone; everything else is written as it always was.
const LayoutVersion = 10

// PackedLayout is the V that stores show in clear of entries that they keep packed (package packed), whatever V these have. No entry has
// it itself.
const PackedLayout = 8

// ErrLaterLayout says that a later version of agentd wrote the run: it is left to that version's workers.
var ErrLaterLayout = errors.New("a later version of agentd wrote the run; upgrade this worker")

type (
	// Status is that of a run, as clients see it.
	Status = wire.Status
	// Reason says why a run is done, as clients see it.
	Reason = wire.Reason
)

// The statuses and reasons, by their short names.
const (
	StatusRunning = wire.StatusRunning
	StatusWaiting = wire.StatusWaiting
	StatusDone    = wire.StatusDone

	ReasonCompleted  = wire.ReasonCompleted
	ReasonStopped    = wire.ReasonStopped
	ReasonCancelled  = wire.ReasonCancelled
	ReasonDeadline   = wire.ReasonDeadline
	ReasonQuota      = wire.ReasonQuota
	ReasonError      = wire.ReasonError
	ReasonStalled    = wire.ReasonStalled
	ReasonTerminated = wire.ReasonTerminated
	ReasonUndone     = wire.ReasonUndone
)

// Head is everything about a run that decides what may happen next. It is rewritten in every entry, so it never grows
// with the history: only with the calls of the open round, and those that are carried.
//
// Invariants (checked by Check):
//  1. a driver is named exactly while the run is running;
//  2. a waiting run has a timer, and an open call of a service or person, unless it is parked or paused;
//  3. a done run has no calls, a reason, and no driver;
//  4. calls have distinct ids. They belong to the current round, in the order of the model's reply, with its permission requests and
//     questions after them; or they are carried, of any round so far;
//  5. a permission request names a call of the head, and a held call the request that holds it;
//  6. an open question names the call that waits for it, and that call names the question;
//  7. only a done run is purged, and only a done run has left something for a retry;
//  8. a running run is not parked any more, and a done run is neither parked nor paused;
//  9. a run whose model has nothing more to say for now has an open call.
type Head struct {
	V     int    `json:"v"`
	Run   string `json:"run"`
	Agent string `json:"agent"`
	// Spec is the digest of the agent spec the run started with and keeps.
	Spec   string `json:"spec"`
	Init   Init   `json:"init"`
	Status Status `json:"status"`
	Reason Reason `json:"reason,omitempty"`
	// ReasonCode says more: what was exhausted, which condition held, what the run stopped on, or an error code. It is there
	// before the run is done when Stop is.
	ReasonCode string        `json:"reason_code,omitempty"`
	Lifecycle  sdk.Lifecycle `json:"lifecycle"`
	// Round counts the rounds that were opened, and is part of their call ids.
	Round int    `json:"step"`
	Calls []Call `json:"calls,omitempty"`
	// Opened is the revision of the entry that opened the round, which holds the calls' arguments.
	Opened uint64 `json:"opened,omitempty"`
	// Stop is the id of the call whose result completes the run, stopText, or restText.
	Stop string `json:"stop,omitempty"`

	// Turns counts accepted model calls. Seen counts of messages derive from it.
	Turns int `json:"interactions"`
	// Misread counts the replies among them whose calls could not be understood.
	Misread int       `json:"misread,omitempty"`
	Units   sdk.Units `json:"units"`
	Usage   sdk.Usage `json:"usage"`
	// Calibration is how many tokens the provider counts for a thousand that are estimated; 0 is a thousand.
	Calibration int `json:"calibration,omitempty"`
	// Budget is how many tokens the run may use; 0 is any number. Delegated is what agents that it called have used.
	Budget    int64 `json:"budget,omitempty"`
	Delegated int64 `json:"delegated,omitempty"`
	// Children counts the calls of agents that the run's generation has made, or is about to make, where its agent bounds them.
	Children int `json:"children,omitempty"`
	// Progress is what stop conditions count.
	Progress Progress `json:"progress,omitzero"`
	// Answers counts the replies that were not taken for an answer.
	Answers Answers `json:"answers,omitzero"`
	// Nudge is what the next model call is told after the conversation, as the user's last message, and no later one: it is not part of
	// the conversation. A transition sets it (transition.nudge), as judges of answers and guards of calls do; the next reply clears it.
	Nudge string `json:"nudge,omitempty"`
	// Guarded is what guards of calls count.
	Guarded Guarded `json:"guarded,omitzero"`

	// Deadline of the run and Timer, the due time that is armed (0: none): Unix milliseconds.
	Deadline int64 `json:"deadline"`
	Timer    int64 `json:"timer,omitempty"`

	// Parked is what the run waits for that has something to do, and Paused that an operator wants it to wait; either is nil
	// without the other.
	Parked *Parking `json:"parked,omitempty"`
	Paused *Pause   `json:"paused,omitempty"`
	// Heeded is the last message that was to pause, resume or unpark the run.
	Heeded *Order `json:"heeded,omitempty"`

	Driver *Driver `json:"driver,omitempty"`
	// Fence grows with every driver, so that a former one can be told.
	Fence uint64 `json:"fence"`
	// Cancel is what a running run will end with at its driver's next commit.
	Cancel *Ending `json:"cancel,omitempty"`
	// Grants are what people have allowed and denied for the rest of the run.
	Grants []Grant `json:"grants,omitempty"`
	// Notes are the ids of messages that are not in the conversation yet, of which the first Ahead are urgent, and Heard those of the last
	// ones that came.
	Notes []string `json:"notes,omitempty"`
	Ahead int      `json:"ahead,omitempty"`
	Heard []string `json:"heard,omitempty"`
	// Urgent says that a model call in progress is to be given up for them.
	Urgent bool `json:"urgent,omitempty"`
	// Review says that hooks have not seen the results of the last round yet.
	Review bool `json:"review,omitempty"`
	// Hooks is what hooks keep in the run, in the order in which they first did.
	Hooks []HookState `json:"hooks,omitempty"`
	// Reminders are those that the model was shown, in the order in which it was last.
	Reminders []Reminder `json:"reminders,omitempty"`
	// Tags are those that people look for the run by, as wire.FormatTags has them: at most wire.MaxTags.
	Tags string `json:"tags,omitempty"`
	// Tagged are the ids of the last messages that changed them.
	Tagged []string `json:"tagged,omitempty"`
	// Require are tool patterns that whoever started the run put under permission, beyond the agent's policy.
	Require []string `json:"require,omitempty"`

	// Constraints are those that whoever started the run gave it, beside the agent's; nil is none.
	Constraints *sdk.Constraints `json:"constraints,omitempty"`

	// Retry is what took the run up again after it had ended, a retry or an undo; nil is that nothing has. Left is what a run that
	// ended has left for a retry.
	Retry *RetryEvent `json:"retry,omitempty"`
	Left  *Left       `json:"left,omitempty"`
	// Undo are the calls that the run's generation is there to undo, in that order; nil is that it is there for the run's task.
	Undo []wire.UndoCall `json:"undo,omitempty"`

	// Questions are those of agents that the run has called and waits for.
	Questions []Question `json:"questions,omitempty"`

	// Plan is that of an agent that plans; nil is that none was made.
	Plan *Plan `json:"plan,omitempty"`

	// Informed are the sections of the prompt that context providers have been asked for.
	Informed []Informed `json:"informed,omitempty"`

	// Base is the first entry that is needed to rebuild the history.
	Base uint64 `json:"base"`
	// Purged says that the history is gone: the entry is the run's tombstone, and the only one.
	Purged *Purged `json:"purged,omitempty"`
}

// Purged is what a tombstone keeps of the history in whose place it stands.
type Purged struct {
	// At is when the history was removed, in Unix milliseconds.
	At int64 `json:"at"`
	// Rev and Digest are the revision and the hash of the last entry: what a copy of the history is checked against.
	Rev    uint64 `json:"rev"`
	Digest string `json:"digest"`
}

// Init is the event that started the run, as far as its end needs it.
type Init struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	// Token identifies the init in ids and subjects: wire.InitToken of source and id, or of the call id for a run that was
	// started by a call.
	Token         string `json:"token"`
	AccessControl string `json:"accesscontrol,omitempty"`
	RedirectTo    string `json:"redirectto,omitempty"`
	TraceParent   string `json:"traceparent,omitempty"`
	TraceState    string `json:"tracestate,omitempty"`
	// Reply is where the terminal event goes when the run is the answer to a call: the subject tokens of the call. Nil: the
	// terminal event goes to the done subject.
	Reply *wire.CallAddress `json:"reply,omitempty"`
	// ReplySubject is the CloudEvents subject of that answer, or of the terminal event of a run whose init event asked for one; empty is
	// the run's.
	ReplySubject string          `json:"reply_subject,omitempty"`
	DelegatedBy  *sdk.Delegation `json:"delegated_by,omitempty"`
	// Who is the principal that started the run, or the first of the runs that led to it, as the broker enforced it.
	Who string `json:"who,omitempty"`
	// Caller is the type of the contract of the agent that called this one, where that may be asked; empty is that it may not.
	Caller string `json:"caller,omitempty"`
}

// CallKind says who answers a call.
type CallKind string

// The kinds of calls.
const (
	CallService CallKind = "service" // a contract-based service, or an agent, over the broker
	CallInline  CallKind = "inline"  // a tool inside the worker
	CallTurn    CallKind = "turn"    // a person who is talked to; not a tool call of the model
	// CallPermission is a request for a person's permission for a call of the round; not a tool call of the model.
	CallPermission CallKind = "permission"
	// CallQuestion is what an inline tool of the round asks a person; not a tool call of the model.
	CallQuestion CallKind = "question"
	// CallContext asks a context provider for a section of the prompt; its Tool is the section. Not a tool call of the model.
	CallContext CallKind = "context"
)

// CallStatus is the state of one call: new → running | suspended → resuming → succeeded | failed | cancelled.
type CallStatus string

// The call statuses. A call that is held for a decision is suspended too, and one that asked a question.
const (
	CallNew       CallStatus = "new"       // inline, to be run
	CallRunning   CallStatus = "running"   // inline and at most once: begun by CallBegun
	CallSuspended CallStatus = "suspended" // sent, or held; an answer is awaited
	CallResuming  CallStatus = "resuming"  // allowed after it was held, answered after it asked, or its turn has come: to be ruled on once more
	CallSucceeded CallStatus = "succeeded"
	CallFailed    CallStatus = "failed"
	CallCancelled CallStatus = "cancelled"
)

// Call is one call of the open round, or one that is carried.
type Call struct {
	ID   string   `json:"id"`
	Kind CallKind `json:"kind"`
	// Tool is the name that the model uses, also of a permission request for its call. In the journal it holds what Asker and
	// Section say as well.
	Tool   string     `json:"tool,omitempty"`
	Status CallStatus `json:"status"`
	// Type and Domains are where the call was sent: no domain is the local lane. An answer must come from there.
	Type    string   `json:"type,omitempty"`
	Domains []string `json:"domains,omitempty"`
	// Opened is the revision of the entry that opened the round of a call which is carried; 0 is the open round.
	Opened uint64 `json:"opened,omitempty"`
	// Due is the call's deadline in Unix milliseconds.
	Due int64 `json:"due,omitempty"`
	// Begun names the driver that began an at-most-once tool.
	Begun string `json:"begun,omitempty"`
	// Attempt is the attempt that was sent last, and Sent the revision of the entry that sent it; absent for the first,
	// which the entry that opened the round sent.
	Attempt int    `json:"attempt,omitempty"`
	Sent    uint64 `json:"sent,omitempty"`
	// Refused are the attempts that were answered with an error that may pass.
	Refused []int `json:"refused,omitempty"`
	// RetryAt is when the next attempt is sent, in Unix milliseconds; 0 is never.
	RetryAt int64 `json:"retry_at,omitempty"`
	// Voided is the last attempt that was given up because the run had ended; 0 is none. Repeated is how many attempts were made
	// because the run was retried, and Origin, of a question that was asked again, the revision of the entry that has it.
	Voided   int    `json:"voided,omitempty"`
	Repeated int    `json:"repeated,omitempty"`
	Origin   uint64 `json:"origin,omitempty"`
	// Held is the id of the permission request that must be decided before the call is made.
	Held string `json:"held,omitempty"`
	// Asked is the id of the question that the tool asked last.
	Asked string `json:"asked,omitempty"`
	// Edited is the revision of the entry with the arguments that an approver put in place of the model's; 0 is none.
	Edited uint64 `json:"edited,omitempty"`
	// Queued says that it is made later: when those before it have their results, or when all requests are decided.
	Queued bool `json:"queued,omitempty"`
	// Reserved are the tokens that the agent which is called may use.
	Reserved int64 `json:"reserved,omitempty"`
	// Media is how many images and sounds its result has.
	Media int `json:"media,omitempty"`
	// Of a call that guards look at: Same is equal for calls with the same result, unless something changes; Ended is the kind of its
	// result, and Fault says how it failed.
	Same  string     `json:"same,omitempty"`
	Ended ResultKind `json:"ended,omitempty"`
	Fault string     `json:"fault,omitempty"`
	// Permission is what a permission request asks.
	Permission *PermissionState `json:"gate,omitempty"`
}

// Asker is the id of the call whose tool asks a question; empty for a call that is not a question.
func (c *Call) Asker() string {
	if c.Kind != CallQuestion {
		return ""
	}
	return c.Tool
}

// Section is the section of the prompt that a context provider is asked for; empty for a call that is not for one.
func (c *Call) Section() string {
	if c.Kind != CallContext {
		return ""
	}
	return c.Tool
}

// ofModel reports whether the model asked for the call, and so is shown its result.
func (c *Call) ofModel() bool { return c.Kind == CallService || c.Kind == CallInline }

// runnable reports whether the driver has to deal with the call: an inline tool that nothing keeps from running, or a service
// whose call has to pass hooks.
func (c *Call) runnable() bool {
	return (c.Kind == CallInline || c.awaitsRuling()) && !c.Closed() && !c.Queued && c.Status != CallSuspended
}

// attempt is the number of the attempt that was sent last, from 1.
func (c *Call) attempt() int { return max(c.Attempt, 1) }

// Closed reports whether the call has its one result.
func (c Call) Closed() bool {
	return c.Status == CallSucceeded || c.Status == CallFailed || c.Status == CallCancelled
}

// Driver is the lease on a run: the message whose unacknowledged delivery covers it, and the activation that works.
type Driver struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"seq"`
	// EventID is as in Cause: by its place alone, a message of a stream that was made anew would be taken for the one that is gone with the
	// former stream. Drivers of older versions have none.
	EventID string `json:"id,omitempty"`
	// Owner is unique to one activation. It is empty when the last one handed the run back.
	Owner string `json:"owner"`
	// Takeovers counts the activations that ended without a word since the last progress, and Deaths those of them that drove
	// the run alone: nothing else can have ended them.
	Takeovers int `json:"takeovers,omitempty"`
	Deaths    int `json:"deaths,omitempty"`
	// Alone says that the activation, until it commits, is the only one in its worker's process.
	Alone bool `json:"alone,omitempty"`
	// Since is when the driver last committed, in Unix milliseconds.
	Since int64 `json:"since"`
}

// aloneAfter is how many activations of a run end without a word before who drives it must be alone.
const aloneAfter = 2

// Suspect reports whether the run may be what ended its former drivers: then its driver must be alone, so that it takes no other
// run with it, and so that it is known what ended it.
func (d *Driver) Suspect() bool { return d != nil && d.Takeovers >= aloneAfter }

// Cause identifies the message whose delivery is the driver's lease.
func (d *Driver) Cause() Cause { return Cause{d.Stream, d.Sequence, d.EventID} }

// Covers reports whether the driver's lease is the delivery of cause's message.
func (d *Driver) Covers(c Cause) bool { return d != nil && d.Cause().Is(c) }

// Ending is how a run is to end before its time.
type Ending struct {
	Reason  Reason   `json:"reason"`
	Code    sdk.Code `json:"code"`
	Message string   `json:"message"`
	// Detail is the ReasonCode; empty is the Code.
	Detail string `json:"detail,omitempty"`
}

// HookState is what a hook keeps in a run.
type HookState struct {
	Hook string          `json:"hook"`
	Data json.RawMessage `json:"data"`
}

// Reminder is a message of a hook that the model was shown under a key.
type Reminder struct {
	Key string `json:"key"`
	// Turn is how many model calls had been accepted when it was shown last, and Text a digest of what it said.
	Turn int    `json:"interactions"`
	Text string `json:"text"`
}

// Key is the run's address in subjects and stores.
func (h *Head) Key() wire.RunKey { return wire.NewRunKey(h.Run) }

// Termination says why a run is done: its reason, with a colon and the code if there is one.
func (h *Head) Termination() string {
	if h.ReasonCode == "" {
		return string(h.Reason)
	}
	return string(h.Reason) + ":" + h.ReasonCode
}

// Call is the call of the head with that id; nil is none.
func (h *Head) Call(id string) *Call {
	if i := h.call(id); i >= 0 {
		return &h.Calls[i]
	}
	return nil
}

// call returns the index of the call with that id, or -1.
func (h *Head) call(id string) int { return callIn(h.Calls, id) }

func callIn(calls []Call, id string) int {
	for i := range calls {
		if calls[i].ID == id {
			return i
		}
	}
	return -1
}

// WithService reports whether the call was sent to a service that has not answered.
func (c *Call) WithService() bool {
	return (c.Kind == CallService || c.Kind == CallContext) && !c.Closed() && c.Held == "" && !c.Queued && c.RetryAt == 0
}

// AwaitsService reports whether a service that is no person has a call that it has not answered, or gets one again. Agents are services too.
func (h *Head) AwaitsService() bool {
	return h.open(func(c *Call) bool {
		return c.WithService() && !slices.Contains(c.Domains, sdk.HumanDomain) || c.RetryAt > 0
	})
}

// open reports whether a call satisfies match and has no result yet.
func (h *Head) open(match func(*Call) bool) bool {
	for i := range h.Calls {
		if !h.Calls[i].Closed() && match(&h.Calls[i]) {
			return true
		}
	}
	return false
}

func (h *Head) openAny() bool    { return h.open(func(*Call) bool { return true }) }
func (h *Head) openInline() bool { return h.open((*Call).runnable) }

// stopping reports whether the model is not called next: the run is about to complete, unless a message comes first, or rests.
func (h *Head) stopping() bool { return h.Stop != "" }

// stopCall is the id of the call whose result completes the run; empty when none does.
func (h *Head) stopCall() string {
	if h.Stop == stopText || h.Stop == restText {
		return ""
	}
	return h.Stop
}

// clone copies what Step may change.
func (h *Head) clone() Head {
	c := *h
	c.Calls = cloneCalls(h.Calls)
	c.Grants = append([]Grant(nil), h.Grants...)
	c.Hooks = append([]HookState(nil), h.Hooks...)
	c.Informed = append([]Informed(nil), h.Informed...)
	c.Undo = append([]wire.UndoCall(nil), h.Undo...)
	c.Plan = h.Plan.clone()
	if h.Driver != nil {
		d := *h.Driver
		c.Driver = &d
	}
	if h.Parked != nil {
		p := *h.Parked
		c.Parked = &p
	}
	return c
}

func cloneCalls(calls []Call) []Call {
	c := append([]Call(nil), calls...)
	for i := range c {
		if g := c[i].Permission; g != nil {
			permission := *g
			c[i].Permission = &permission
		}
	}
	return c
}
