// Package requests are what runs ask people, as values: permission requests, questions, turns of conversations and tasks.
package requests

import (
	"encoding/json"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Kind says what is asked.
type Kind string

// The kinds.
const (
	KindPermission Kind = "permission" // may this call be made?
	KindQuestion   Kind = "question"   // the model asks a person
	KindTurn       Kind = "turn"       // a conversation: what does the person say?
	KindTask       Kind = "task"       // a call of another contract that people answer
)

// KindOf is the kind of an event type; a task for one of a contract that is not agentd's.
func KindOf(eventType string) Kind {
	if kind, ok := kinds[eventType]; ok {
		return kind
	}
	return KindTask
}

var kinds = map[string]Kind{
	sdk.TypePermissionRequest: KindPermission, sdk.TypePlanReview: KindPermission, sdk.TypeQuestion: KindQuestion, sdk.TypeConversationTurn: KindTurn,
}

// Item is something that waits for a person. Times are in Unix milliseconds. Its texts are what agents and models wrote:
// show them through package show.
type Item struct {
	// ID is the id of the call's event, Short the shortest beginning of it that no other open item has, without the part
	// that says little.
	ID     string `json:"id"`
	Short  string `json:"short"`
	Kind   Kind   `json:"kind"`
	Domain string `json:"domain"`
	Type   string `json:"type"`
	Agent  string `json:"agent"`
	Run    string `json:"run"`
	Asked  int64  `json:"asked"`
	// Expires is when nobody waits for an answer any more; 0 is unknown.
	Expires int64 `json:"expires,omitempty"`
	// Tool, Mode, Risk, Stage and Quorum are those of a permission request; Calls is how many calls it asks for together, 0 where it asks
	// for one. Tool then names the tools of all.
	Tool   string             `json:"tool,omitempty"`
	Calls  int                `json:"calls,omitempty"`
	Mode   sdk.PermissionMode `json:"mode,omitempty"`
	Risk   string             `json:"risk,omitempty"`
	Stage  int                `json:"stage,omitempty"`
	Quorum int                `json:"quorum,omitempty"`
	// RemindMillis is how often whoever is asked is reminded (0: never), Reminded how often they were.
	RemindMillis int64 `json:"remind_ms,omitempty"`
	Reminded     int   `json:"reminded,omitempty"`
	// Summary is the beginning of the arguments or of the text.
	Summary string `json:"summary"`
	// Sent are the answers that were published so far, the last ones of many. Whether they counted is the run's to say.
	Sent []Sent `json:"sent,omitempty"`

	// Lost says that the journal of the run is lost, so that nobody waits for an answer. It is known of what was asked about only.
	Lost bool `json:"lost,omitempty"`

	// Subject is where the call was delivered, Sequence where it is stored, Hash the part of ID that no other item has.
	Subject  string `json:"-"`
	Sequence uint64 `json:"-"`
	Hash     string `json:"-"`
}

// Sent is an answer that somebody published.
type Sent struct {
	Event string `json:"event"`
	// Who is the principal that the broker enforced; empty is anonymous.
	Who      string       `json:"who,omitempty"`
	At       int64        `json:"at"`
	Decision sdk.Decision `json:"decision,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	// Refused says why the answer could not be used at all.
	Refused string `json:"refused,omitempty"`

	// Sequence is where the answer is stored.
	Sequence uint64 `json:"-"`
}

// RemindersAt is how many reminders were due until a time in Unix milliseconds. It follows from the request alone, so that all
// desks agree.
func (i *Item) RemindersAt(now int64) int {
	if i.RemindMillis == 0 {
		return 0
	}
	return int(max(now-i.Asked, 0) / i.RemindMillis)
}

// NextReminder is when whoever is asked is to be reminded next, in Unix milliseconds; 0 is never.
func (i *Item) NextReminder() int64 {
	next := i.Asked + int64(i.Reminded+1)*i.RemindMillis
	if i.RemindMillis == 0 || i.Expires > 0 && next >= i.Expires {
		return 0
	}
	return next
}

// Detail is everything about an item.
type Detail struct {
	Item
	// Event is the call.
	Event wire.Event `json:"event"`
	// Request is set for a permission request.
	Request *sdk.PermissionRequest `json:"request,omitempty"`
	// Text and Suggestions are of a question or a turn.
	Text        string   `json:"text,omitempty"`
	Suggestions []string `json:"suggestions,omitempty"`
}

// Form is the JSON Schema of the form that a tool asks a person to fill in; nothing where it is something else that is asked.
func (d *Detail) Form() json.RawMessage {
	var question struct {
		Schema json.RawMessage `json:"schema"`
	}
	if d.Kind != KindQuestion || json.Unmarshal(d.Event.Data, &question) != nil {
		return nil
	}
	return question.Schema
}

// ChangeKind says what happened to an item.
type ChangeKind string

// The kinds of changes.
const (
	ChangeAdded   ChangeKind = "added"
	ChangeDecided ChangeKind = "decided" // an answer was published; whether it counts is the run's to say
	ChangeRemoved ChangeKind = "removed"
	// ChangeReminded tells that an item waits for as long as its request says that people are to be reminded.
	ChangeReminded ChangeKind = "reminded"
)

// Reason says why an item was removed.
type Reason string

// The reasons.
const (
	ReasonClosed   Reason = "closed"   // it was decided, or the run no longer waits for it
	ReasonAnswered Reason = "answered" // somebody answered it
	ReasonExpired  Reason = "expired"  // nobody answered in time
	ReasonGone     Reason = "gone"     // the broker lost it; it is added again if its run waits for it
)

// Text is what became of an item that was removed for the reason.
func (r Reason) Text() string {
	switch r {
	case ReasonClosed:
		return "was decided, or its run no longer waits for it"
	case ReasonAnswered:
		return "was answered by somebody"
	case ReasonExpired:
		return "has expired"
	case ReasonGone:
		return "was lost by the broker; its run has it published again if it waits"
	}
	return ""
}

// Change is one change of an inbox. Number counts them, from 1, since the desk was opened.
type Change struct {
	Number uint64     `json:"number"`
	Kind   ChangeKind `json:"kind"`
	// Item is the item after the change.
	Item   Item   `json:"item"`
	Reason Reason `json:"reason,omitempty"`
}

// ShortLength is the least length of a short id: with fewer characters it would soon mean another item.
const ShortLength = 6

// ShortID is a beginning of an id that very likely no other has, for where it is not known which others there are.
func ShortID(id string) string {
	hash := HashOf(id)
	return hash[:min(len(hash), ShortLength+2)]
}

// HashOf is the part of an id that differs between items: a call id is "c<step>-<index>-<hash>".
func HashOf(id string) string {
	if ref, ok := wire.ParseCallRef(id); ok {
		return id[len(ref.ID)-26:]
	}
	return id
}
