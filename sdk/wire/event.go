package wire

import (
	"encoding/json"
	"time"

	"agentd/sdk"
)

// SpecVersion is the CloudEvents version of every event.
const SpecVersion = "1.0"

// ContentTypeJSON is the datacontenttype of every event that agentd sends.
const ContentTypeJSON = "application/json"

// Event is a CloudEvents 1.0 event with agentd's extension attributes (docs/wire.md, "Envelope"). An empty string means
// that the attribute is absent; on the wire it is written as null.
type Event struct {
	ID     string
	Source string
	// Type names what Data is: a contract's type, one of its emitted types, or sys.<type>.error.
	Type string
	// Subject names the run, in the words of whoever started it.
	Subject         string
	Time            time.Time
	DataContentType string
	// DataSchema is "<contract uri>/<semantic version>".
	DataSchema string
	// Data is a JSON object.
	Data json.RawMessage

	// To is the type of the contract that is meant to handle the event.
	To string
	// AccessControl is opaque to agentd: it is carried, never interpreted.
	AccessControl string
	// RedirectTo is where an answer goes. Workers never publish to it: it is written for services.
	RedirectTo string
	// ParentID is the id of the event that this one answers.
	ParentID string
	// ExecutionUnits is the cost so far.
	ExecutionUnits sdk.Units
	// Domain is the routing lane, such as "human.interaction"; empty is the local lane.
	Domain string
	// Agent is the name of the agent that asked.
	Agent       string
	TraceParent string
	TraceState  string

	// Extensions are all other attributes, by lower-case name. Values are string, bool, json.Number or nil.
	Extensions map[string]any
}

// ExpiryTime is the extension attribute with the time when a call is due, RFC 3339 (CloudEvents' "Expiry Time" extension):
// nobody waits for an answer after it.
const ExpiryTime = "expirytime"

// Initiator is the extension attribute of calls with the principal that started the run, or the first of the runs that led
// to it, as the broker enforced it. It counts only in events that workers publish.
const Initiator = "initiator"

// TokenBudget is the extension attribute of calls, and of init events, with the tokens that the run may use at most, as a
// decimal number. A run takes the smaller of it and its own limit.
const TokenBudget = "tokenbudget"

// CallerType is the extension attribute of calls with the type of the contract of the agent that calls, where it answers questions
// of the agent that it calls. It counts only in events that workers publish.
const CallerType = "callertype"

// CallerQuestionSchema is the dataschema of a question of an agent to the run that has called it.
const CallerQuestionSchema = "agentd:/agentd/parent/ask/1.0.0"

// RunConstraints is the extension attribute of init events with constraints of the run beside those of its agent: sdk.Constraints as
// JSON, without FileConstraints.Writers.
const RunConstraints = "constraints"

// TokensUsed is the extension attribute of an agent's answer with the tokens that its run, and those it called, have used.
const TokensUsed = "tokensused"

// TerminationReason is the extension attribute of terminal events that says why the run ended: the reason and, after a
// colon, a code, such as "quota:tokens" (docs/lifecycle.md).
const TerminationReason = "terminationreason"

// RetryOf is the extension attribute of the terminal event of a run that was retried: the id of its first terminal event.
const RetryOf = "retryof"

// RequirePermission is the extension attribute of init events with tool patterns, separated by commas, that the run puts
// under permission beyond its agent's policy.
const RequirePermission = "requirepermission"

// ErrorType is the type of the system error event of a contract's type.
func ErrorType(contractType string) string { return "sys." + contractType + ".error" }

// VoidType is the event type of a call's void: nobody who takes events by their type mistakes it for the call.
func VoidType(callType string) string { return "sys." + callType + ".void" }
