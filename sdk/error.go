package sdk

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is the closed set of kinds of failure. It is at once the wire value of a system error, the reason token of a
// dead letter, a metric label and what retry policy is decided on.
type Code string

// The codes. The comment says who can act on it.
const (
	CodeInvalidEvent      Code = "invalid_event"      // the publisher: the event cannot be decoded
	CodeContractViolation Code = "contract_violation" // the publisher: data breaks the contract; Faults lists how
	CodeContractMissing   Code = "contract_missing"   // the operator: the pinned contract version is gone
	CodeUnknownAgent      Code = "unknown_agent"      // the publisher: no worker serves the agent
	CodeUnknownTool       Code = "unknown_tool"       // the model: no tool of that name
	CodeUnknownRun        Code = "unknown_run"        // the service: the answer names no run or no call of it
	CodeRunExists         Code = "run_exists"         // the publisher: another init already started this subject
	CodeQuotaExhausted    Code = "quota_exhausted"    // the agent's author: more interactions than the limit
	CodeDeadline          Code = "deadline_exceeded"  // whoever set the deadline
	CodeCancelled         Code = "cancelled"          // nobody: it was asked for
	CodeModel             Code = "model_failed"       // the publisher or the agent's author: the model refused the request itself
	CodeRateLimited       Code = "rate_limited"       // nobody: it is retried after RetryAfter
	CodeUnavailable       Code = "unavailable"        // nobody: it is retried
	CodeTool              Code = "tool_failed"        // the model: the tool returned an error
	CodePermissionDenied  Code = "permission_denied"  // the model: a person or the policy said no
	CodePermissionNeeded  Code = "permission_needed"  // the model: a person was asked; it may call again when they allow it
	CodeIdentityRequired  Code = "identity_required"  // the publisher: the broker must enforce who they are
	CodeDecisionRefused   Code = "decision_refused"   // the approver: the decision does not count
	CodeBlocked           Code = "blocked"            // the model: a hook kept the call from being made
	CodeStalled           Code = "stalled"            // the agent's author: the run got nowhere, and a stop condition ended it
	CodeNoAnswer          Code = "no_answer"          // the agent's author: the model gave no answer that counts
	CodeTerminated        Code = "terminated"         // the agent's author: a hook or rule ended the run
	CodeMessageRefused    Code = "message_refused"    // the sender: the run does not take the message
	CodeRetryRefused      Code = "retry_refused"      // the operator: the run cannot be retried
	CodeUndone            Code = "undone"             // nobody: what the run had done was to be undone
	CodeUndoRefused       Code = "undo_refused"       // the operator: nothing of the run can be undone, or not what was named
	CodeCancelRefused     Code = "cancel_refused"     // the operator: what was named cannot be cancelled by itself
	CodeOutcomeUnknown    Code = "outcome_unknown"    // the model: an at-most-once tool was interrupted
	CodeStateLost         Code = "state_lost"         // the publisher: the store lost the run; it may be started again
	CodePoison            Code = "poison_run"         // the operator: the run keeps killing its workers
	CodeCorrupt           Code = "corrupt_journal"    // the operator: the run's journal cannot be read
	CodeConflict          Code = "conflict"           // the operator: two contents claim one event id
	CodeTooLarge          Code = "too_large"          // the publisher: larger than the limit
	CodeConfig            Code = "config"             // the operator or the agent's author: the configuration is wrong, a model's key too
	CodeInternal          Code = "internal"           // the operator: see the worker's log
)

// Error is a failure that crosses a package or the wire. errors.Is compares codes, so errors.Is(err,
// &Error{Code: CodeDeadline}) holds for every deadline failure.
type Error struct {
	Code Code
	// Message is safe to show to a person or a model; it holds no internals.
	Message string
	// Retryable says that the same request may succeed later.
	Retryable bool
	// RetryAfter is how long to wait before; 0 is unknown.
	RetryAfter time.Duration
	// Faults lists every violation of a contract.
	Faults []Fault
	// Cause is logged and never sent.
	Cause error
}

// Errorf returns an Error whose message is safe to show.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithCause returns a copy of e that wraps cause, for the log.
func (e *Error) WithCause(cause error) *Error {
	c := *e
	c.Cause = cause
	return &c
}

// Error is also that of a nil *Error which was taken for an error.
func (e *Error) Error() string {
	if e == nil {
		return "no error"
	}
	var b strings.Builder
	b.WriteString(string(e.Code))
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	}
	for _, f := range e.Faults {
		b.WriteString("; " + f.String())
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

func (e *Error) Unwrap() error {
	if e == nil {
		return nil
	}
	return e.Cause
}

// Is reports whether target is an Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := errors.AsType[*Error](target)
	return ok && e != nil && t != nil && t.Code == e.Code
}

// AsError returns err as an Error. What is not one becomes CodeInternal with a message that leaks nothing.
func AsError(err error) *Error {
	e, ok := errors.AsType[*Error](err)
	if ok && e == nil {
		err = errors.New("a nil *sdk.Error was returned as an error")
	}
	if e != nil {
		return e
	}
	return &Error{Code: CodeInternal, Message: "internal error", Cause: err}
}

// Fault is one violation of a schema.
type Fault struct {
	// Path is a JSON path: "$" is the whole, "$.flights[0].date" a part.
	Path     string `json:"path"`
	Expected string `json:"expected"`
	Got      string `json:"got"`
}

func (f Fault) String() string {
	if f.Got == "" {
		return fmt.Sprintf("%s: expected %s", f.Path, f.Expected)
	}
	return fmt.Sprintf("%s: expected %s, got %s", f.Path, f.Expected, f.Got)
}
