package sdk

import "encoding/json"

// Contract says what a service or an agent accepts and emits, by semantic version. It travels as JSON in this form
// (docs/wire.md, "Contracts").
type Contract struct {
	// URI names the contract for ever. "#/airline/book" is short for "agentd:/airline/book"; events carry the form that is written
	// here, and CloudEvents libraries refuse the short one.
	URI string `json:"uri" yaml:"uri"`
	// Type is the event type of a call, such as "airline.book_reservation".
	Type        string `json:"type" yaml:"type"`
	Domain      string `json:"domain,omitempty" yaml:"domain"`
	Description string `json:"description,omitempty" yaml:"description"`
	// Labels say what calls may do, for permission policies.
	Labels ToolLabels `json:"labels,omitzero" yaml:"labels"`
	// Versions are keyed by semantic version without a "v".
	Versions map[string]ContractVersion `json:"versions" yaml:"versions"`
}

// ContractVersion is one immutable version of a contract.
type ContractVersion struct {
	// Accepts is the JSON Schema of a call's data.
	Accepts json.RawMessage `json:"accepts" yaml:"accepts"`
	// Emits are the JSON Schemas of the answers, by event type. sys.<type>.error is always possible and not listed.
	Emits map[string]json.RawMessage `json:"emits" yaml:"emits"`
}

// SchemaRef is the dataschema of an event: "<uri>/<version>".
func SchemaRef(uri, version string) string { return uri + "/" + version }

// ParentSubjectField is the property of an agent's or orchestrator's input that names the caller's run. It is
// stripped from what models see and put in on invocation.
const ParentSubjectField = "parentSubject$$"

// Event types of what a run asks people. They are several, so that who may answer turns need not be allowed to decide.
const (
	TypePermissionRequest = "agentd.permission.request"
	// TypePlanReview asks people, with a PermissionRequest, whether a plan may be carried out. What they answer is as with any other.
	TypePlanReview        = "agentd.plan.review"
	TypePermissionDecided = "agentd.permission.decided"
	// TypePermissionViewed tells that somebody was shown a permission request; it decides nothing.
	TypePermissionViewed     = "agentd.permission.viewed"
	TypeQuestion             = "agentd.question.ask"
	TypeQuestionAnswered     = "agentd.question.answered"
	TypeParentQuestion       = "agentd.parent.ask"
	TypeParentAnswered       = "agentd.parent.answered"
	TypeConversationTurn     = "agentd.conversation.turn"
	TypeConversationAnswered = "agentd.conversation.answered"
)

// AsksPermission reports whether events of the type ask people to decide: on a call, or on a plan.
func AsksPermission(eventType string) bool {
	return eventType == TypePermissionRequest || eventType == TypePlanReview
}

// HumanDomain is the domain that exists by default.
const HumanDomain = "human.interaction"
