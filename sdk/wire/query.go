package wire

import (
	"encoding/json"
	"slices"

	"agentd/sdk"
)

// Status of a run: running ↔ waiting → done.
type Status string

// The statuses. The zero Status is a run that does not exist.
const (
	StatusRunning Status = "running" // a worker drives it
	StatusWaiting Status = "waiting" // suspended: nothing of it is in memory anywhere
	StatusDone    Status = "done"    // absorbing
)

// Reason says why a run is done.
type Reason string

// Retryable reports whether a run that ended for the reason can be retried.
func (r Reason) Retryable() bool { return r == ReasonError || r == ReasonQuota || r == ReasonDeadline }

// The termination reasons.
const (
	ReasonCompleted Reason = "completed" // the model answered
	ReasonStopped   Reason = "stopped"   // a stop-on tool succeeded, or the person ended the conversation
	ReasonCancelled Reason = "cancelled"
	ReasonDeadline  Reason = "deadline"
	ReasonQuota     Reason = "quota"
	ReasonError     Reason = "error"
	// ReasonStalled: a stop condition found that the run gets nowhere.
	ReasonStalled Reason = "stalled"
	// ReasonTerminated: a hook or a rule of the agent ended the run.
	ReasonTerminated Reason = "terminated"
	// ReasonUndone: calls of the run were to be undone after it had ended.
	ReasonUndone Reason = "undone"
)

// Query asks an agent's workers about one run or, without Run, for a page of the agent's runs (docs/wire.md, "Asking about a
// run").
type Query struct {
	// Run is the run's subject.
	Run string `json:"run,omitempty"`
	// After is the last milestone that the client has seen; the zero Mark is before all.
	After Mark `json:"after,omitzero"`
	// List asks for runs instead.
	List *ListQuery `json:"list,omitempty"`
}

// ListQuery asks for runs, in the order of their keys.
type ListQuery struct {
	// Cursor is RunList.Next of the page before; "" is the beginning.
	Cursor string `json:"cursor,omitempty"`
	// Status is that of the runs wanted; "" is any.
	Status Status `json:"status,omitempty"`
}

// RunList answers a ListQuery. A page may be empty although there are further ones.
type RunList struct {
	Runs []RunStatus `json:"runs"`
	// Next is the cursor of the next page, "" at the end.
	Next string `json:"next,omitempty"`
}

// Mark is a milestone's number.
type Mark struct {
	Revision uint64 `json:"rev"`
	Index    int    `json:"i"`
}

// Before reports whether the milestone comes after the mark.
func (m Mark) Before(l Live) bool {
	return l.Revision > m.Revision || (l.Revision == m.Revision && l.Index > m.Index)
}

// RunStatus answers a Query.
type RunStatus struct {
	Run      string    `json:"run"`
	Agent    string    `json:"agent"`
	Status   Status    `json:"status"`
	Reason   Reason    `json:"reason,omitempty"`
	Code     string    `json:"reason_code,omitempty"`
	Revision uint64    `json:"rev"`
	Turns    int       `json:"interactions"`
	Usage    sdk.Usage `json:"usage"`
	Units    sdk.Units `json:"units,omitempty"`
	// Init is the token of the init event, which the subject of the terminal event ends with. Called says that the run answers a
	// call: its end goes to whoever made the call.
	Init   string `json:"init,omitempty"`
	Called bool   `json:"called,omitempty"`
	// Initiator is the principal that started the run, as the broker enforced it; "" is anonymous.
	Initiator string `json:"initiator,omitempty"`
	// Tags are those that the run has.
	Tags map[string]string `json:"tags,omitempty"`
	// Started, Updated and Deadline are in Unix milliseconds. Started is 0 in lists.
	Started  int64 `json:"started,omitempty"`
	Updated  int64 `json:"updated,omitempty"`
	Deadline int64 `json:"deadline,omitempty"`
	// Waiting are the calls that the run waits for.
	Waiting []WaitingCall `json:"waiting,omitempty"`
	// Parked is what the run waits for before it can go on, and Paused that an operator wants it to wait.
	Parked     *Parking `json:"parked,omitempty"`
	Paused     *Pause   `json:"paused,omitempty"`
	Milestones []Live   `json:"milestones,omitempty"`
	// Heard are the MessageIDs of the last messages that came into the run.
	Heard []string `json:"heard,omitempty"`
	// More says that there are further milestones, to be asked for with the mark of the last one.
	More     bool      `json:"more,omitempty"`
	Terminal *Terminal `json:"terminal,omitempty"`
	// Undoable are the calls that can be undone, of a run that is done: the newest first. They are left out of lists.
	Undoable []UndoCall `json:"undoable,omitempty"`
	// Purged is when the run's history was removed, in Unix milliseconds: then it has neither milestones nor a terminal.
	Purged int64 `json:"purged,omitempty"`
}

// CancelAs is the principal under which somebody cancels the run: its initiator under their own name, and whoever may cancel
// the runs of others under none.
func (s RunStatus) CancelAs(principal string) string {
	if principal == s.Initiator {
		return principal
	}
	return ""
}

// ParkReason says what keeps a run that has something to do from being driven.
type ParkReason string

// The reasons. Budget and slot are kept for what bounds runs of several agents together.
const (
	ParkModel  ParkReason = "model"  // its model cannot be asked
	ParkRate   ParkReason = "rate"   // its model's provider wants it to slow down
	ParkPaused ParkReason = "paused" // an operator paused it, or its agent
	ParkBudget ParkReason = "budget"
	ParkSlot   ParkReason = "slot"
)

// KeyAgentPaused is the key of runs that wait until their agent is resumed. Keys of models have a "_".
const KeyAgentPaused = "paused"

// Parking is what a run waits for that has something to do.
type Parking struct {
	Why ParkReason `json:"why"`
	// Key names what is missing: runs with the same key wait for the same thing. Model is its name for people.
	Key   string `json:"key"`
	Model string `json:"model,omitempty"`
	// Code and Message say how the last try failed.
	Code    sdk.Code `json:"code,omitempty"`
	Message string   `json:"message,omitempty"`
	// Until is when the run is tried again, and Since when it first had to wait: Unix milliseconds. Until is 0 once its time has
	// come, or somebody has unparked the run.
	Until int64 `json:"until,omitempty"`
	Since int64 `json:"since"`
	// Tries is how often in a row it came to nothing.
	Tries int `json:"tries"`
}

// Pause is an operator's wish that a run does nothing more until it is resumed.
type Pause struct {
	// At is when it was heard, in Unix milliseconds, and Reason what was said of it.
	At     int64  `json:"at"`
	Reason string `json:"reason,omitempty"`
}

// CheckRetry says why the run cannot be retried, as far as its status tells, or nil.
func (s RunStatus) CheckRetry() *sdk.Error {
	refused := func(format string, args ...any) *sdk.Error { return sdk.Errorf(sdk.CodeRetryRefused, format, args...) }
	switch {
	case s.Status != StatusDone:
		return refused("run %s has not ended: it is %s", s.Run, s.Status)
	case s.Called:
		return refused("run %s answers a call of another run; retry the caller", s.Run)
	case !s.Reason.Retryable():
		return refused("run %s ended with %s; only runs that ended with %s, %s or %s can be retried",
			s.Run, s.Reason, ReasonError, ReasonQuota, ReasonDeadline)
	case s.Purged > 0, s.Code == string(sdk.CodeStateLost):
		return refused("the history of run %s is gone; start another run", s.Run)
	}
	return nil
}

// Undoes are the calls that are undone when those are named, by their ids or places (CallPlace): without names as many as can be at once,
// the newest first. The error is sdk.CodeUndoRefused.
func (s RunStatus) Undoes(named []string) ([]UndoCall, error) {
	if len(s.Undoable) == 0 {
		return nil, sdk.Errorf(sdk.CodeUndoRefused, "run %s, which is %s, has no call that can be undone", s.Run, s.Status)
	}
	if len(named) == 0 {
		return s.Undoable[:min(len(s.Undoable), MaxUndo)], nil
	}
	if len(named) > MaxUndo {
		return nil, sdk.Errorf(sdk.CodeUndoRefused, "%d calls are to be undone; at most %d are at once", len(named), MaxUndo)
	}
	var calls []UndoCall
	for _, name := range named {
		i := slices.IndexFunc(s.Undoable, func(u UndoCall) bool { return u.Call == name || CallPlace(u.Call) == name })
		if i < 0 {
			return nil, sdk.Errorf(sdk.CodeUndoRefused, "run %s has no call %q that can be undone", s.Run, name)
		}
		calls = append(calls, s.Undoable[i])
	}
	return calls, nil
}

// WaitingCall is a call without an answer yet.
type WaitingCall struct {
	Call string `json:"call"`
	// Tool is that of the model's call; of a permission request, that of the call that needs permission.
	Tool string `json:"tool,omitempty"`
	Type string `json:"type"`
	// Domain is where the call was sent first; "" is the local lane. Event is the id of the event that asks now.
	Domain string `json:"domain,omitempty"`
	Event  string `json:"event,omitempty"`
	// Schema is the event's dataschema.
	Schema string `json:"schema,omitempty"`
	// Due is when it is given up, in Unix milliseconds; 0 is never.
	Due int64 `json:"due,omitempty"`
	// Unserved says that nobody seems to take such calls now, so that it waits. It is left out of lists.
	Unserved bool `json:"unserved,omitempty"`
	// Asked is the data of what people are asked: a permission request, a question or a turn. It is left out of lists.
	Asked json.RawMessage `json:"asked,omitempty"`
}

// Terminal is the outcome of a run: the terminal event's type, dataschema and data.
type Terminal struct {
	Type   string          `json:"type"`
	Schema string          `json:"schema"`
	Data   json.RawMessage `json:"data"`
}

// Types of control messages (docs/wire.md, "Control messages").
const (
	TypeCancel     = "agentd.run.cancel"
	TypeCancelCall = "agentd.call.cancel"
	TypePause      = "agentd.run.pause"
	TypeResume     = "agentd.run.resume"
	TypeUnpark     = "agentd.run.unpark"
	TypeMessage    = "agentd.run.message"
	TypeRetry      = "agentd.run.retry"
	TypeUndo       = "agentd.run.undo"
	TypeTag        = "agentd.run.tag"
)

// MaxMessage is the most bytes of a message that is sent into a run.
const MaxMessage = 64 << 10

// Decided is the data of MilestoneDecided: a decision, and what is still waited for before its call is made.
type Decided struct {
	Decision DecisionRecord `json:"decision"`
	// Args are the arguments that the call is made with instead of the model's, where whoever decided has edited them.
	Args json.RawMessage `json:"args,omitempty"`
	// Allowed and Quorum are set while the request needs further approvals: how many there are, and how many it needs.
	Allowed int `json:"allowed,omitempty"`
	Quorum  int `json:"quorum,omitempty"`
	// Queued says that the call is allowed and waits for its turn in the round, Undecided how many requests of the round are
	// open then.
	Queued    bool `json:"queued,omitempty"`
	Undecided int  `json:"undecided,omitempty"`
	// Rest are the calls of the same request that are not decided yet; More says that the next milestone tells what the same decision
	// says of another call.
	Rest int  `json:"rest,omitempty"`
	More bool `json:"more,omitempty"`
}

// Asked is the id of the event that asked for the decision, without the attempt; empty for a call that a grant covered.
func (d *DecisionRecord) Asked() string {
	if d.Batch != "" {
		return d.Batch
	}
	return d.Request
}

// DecisionRecord is one entry of a permission request's audit: a decision that counted, one that was refused, a grant that was
// used, or that somebody was shown the request.
type DecisionRecord struct {
	// Request is the request's id; empty for a call that a grant covered. Batch is the id of the event that asked for this call and others.
	Request  string         `json:"request,omitempty"`
	Batch    string         `json:"batch,omitempty"`
	Call     string         `json:"call"`
	Decision sdk.Decision   `json:"decision,omitempty"`
	Scope    sdk.GrantScope `json:"scope,omitempty"`
	ArgsHash string         `json:"args_sha256,omitempty"`
	Reason   string         `json:"reason,omitempty"`
	// Event, Source and Who tell who decided: event id and source as claimed, and the principal that the broker enforced.
	Event  string `json:"event,omitempty"`
	Source string `json:"source,omitempty"`
	Who    string `json:"who,omitempty"`
	// Key is the fingerprint of the key that signed it, where decisions must be signed.
	Key string `json:"key,omitempty"`
	// Refused says why it does not count.
	Refused string `json:"refused,omitempty"`
	// Grant is the request, or the record, whose grant covers the call; Rule the rule of the policy.
	Grant string `json:"grant,omitempty"`
	Rule  string `json:"rule,omitempty"`
}
