package desk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"agentd/sdk/wire"

	"agentd/internal/broker"
	"agentd/sdk"
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

var kinds = map[string]Kind{
	sdk.TypePermissionRequest: KindPermission, sdk.TypeQuestion: KindQuestion, sdk.TypeConversationTurn: KindTurn,
}

// Item is something that waits for a person. Times are in Unix milliseconds. Its texts are what agents and models wrote:
// show them through Visible.
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
	// Tool, Mode, Risk, Stage and Quorum are those of a permission request.
	Tool   string             `json:"tool,omitempty"`
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

	// subject is where the call was delivered, sequence where it is stored.
	subject  string
	sequence uint64
	// hash is the part of ID that no other item has.
	hash string
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

	// sequence is where the answer is stored.
	sequence uint64
}

const (
	// summarySize is how much of arguments and texts the inbox keeps, in bytes; the rest is read when it is shown.
	summarySize = 240
	// maxSent bounds Item.Sent.
	maxSent = 16
)

// asked is the union of the data of the calls that the inbox knows.
type asked struct {
	Agent    string             `json:"agent"`
	Tool     string             `json:"tool"`
	Mode     sdk.PermissionMode `json:"mode"`
	Risk     string             `json:"risk"`
	Stage    int                `json:"stage"`
	Quorum   int                `json:"quorum"`
	Remind   int64              `json:"remind_ms"`
	Args     json.RawMessage    `json:"args"`
	Question string             `json:"question"`
	Message  string             `json:"message"`
}

// newItem reads a call. One that cannot be read is nobody's to answer.
func newItem(d broker.Delivery) (*Item, error) {
	event, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return nil, fmt.Errorf("read call on %s: %w", d.Subject(), err)
	}
	kind, ok := kinds[event.Type]
	if !ok {
		kind = KindTask
	}
	i := &Item{
		ID: event.ID, Kind: kind, Domain: event.Domain, Type: event.Type, Agent: event.Agent, Run: event.Subject,
		Asked: d.Received(), Expires: expiry(event), subject: d.Subject(), sequence: d.Sequence(), hash: hashOf(event.ID),
	}
	var a asked
	if err := json.Unmarshal(event.Data, &a); err != nil && kind != KindTask {
		return nil, fmt.Errorf("read data of call %s: %w", event.ID, err)
	}
	switch kind {
	case KindPermission:
		i.Tool, i.Mode, i.Risk, i.Stage, i.Quorum, i.Summary = a.Tool, a.Mode, a.Risk, a.Stage, a.Quorum, string(a.Args)
		i.RemindMillis = max(a.Remind, 0)
	case KindQuestion:
		i.Summary = a.Question
	case KindTurn:
		i.Summary = a.Message
	case KindTask:
		i.Summary = string(event.Data)
	}
	i.Summary = shorten(i.Summary)
	return i, nil
}

// remindersAt is how many reminders were due until a time in Unix milliseconds. It follows from the request alone, so that all
// desks agree.
func (i *Item) remindersAt(now int64) int {
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

// shorten keeps the beginning of a text, as a copy that does not hold the rest in memory.
func shorten(text string) string {
	if len(text) <= summarySize {
		return strings.Clone(text)
	}
	return strings.ToValidUTF8(text[:summarySize], "") + "…"
}

// expiry is when the event's call is due; 0 is unknown.
func expiry(event wire.Event) int64 {
	text, _ := event.Extensions[wire.ExpiryTime].(string)
	due, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return due.UnixMilli()
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

func newDetail(i Item, d broker.Delivery) (Detail, error) {
	event, err := wire.DecodeEvent(d.Headers(), d.Data())
	if err != nil {
		return Detail{}, fmt.Errorf("read call %s: %w", i.ID, err)
	}
	detail := Detail{Item: i, Event: event}
	if i.Kind == KindPermission {
		detail.Request, err = readRequest(event)
		return detail, err
	}
	if i.Kind == KindTask {
		return detail, nil
	}
	var text struct {
		Question    string   `json:"question"`
		Message     string   `json:"message"`
		Suggestions []string `json:"suggestions"`
	}
	if err := json.Unmarshal(event.Data, &text); err != nil {
		return Detail{}, fmt.Errorf("read call %s: %w", i.ID, err)
	}
	detail.Text, detail.Suggestions = text.Question+text.Message, text.Suggestions // it has one of them
	return detail, nil
}

// readRequest reads a permission request. What an approver is shown must be what the hash is of.
func readRequest(event wire.Event) (*sdk.PermissionRequest, error) {
	var r sdk.PermissionRequest
	if err := json.Unmarshal(event.Data, &r); err != nil {
		return nil, fmt.Errorf("read permission request %s: %w", event.ID, err)
	}
	canonical, err := wire.Canonicalize(r.Args)
	if err != nil {
		return nil, fmt.Errorf("read the arguments of permission request %s: %w", event.ID, err)
	}
	if sdk.ArgsHash(canonical) != r.ArgsHash {
		return nil, sdk.Errorf(sdk.CodeInvalidEvent,
			"permission request %s shows arguments that its hash is not of; nobody should decide on it", event.ID)
	}
	r.Args = canonical
	return &r, nil
}

// replySubject is where answers of a principal go; who may be empty.
func replySubject(conn *broker.Conn, subject, who string) (string, error) {
	reply, ok := conn.ReplySubject(subject)
	if !ok {
		return "", fmt.Errorf("%s is no call", subject)
	}
	if who != "" {
		reply += "." + who
	}
	return reply, nil
}

// indent is JSON as people read it.
func indent(data json.RawMessage) string {
	var b bytes.Buffer
	if json.Indent(&b, data, "", "  ") != nil {
		return string(data)
	}
	return b.String()
}
