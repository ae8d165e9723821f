package core

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Cause is the message that an entry was made for: its unacknowledged delivery is what relays the entry's effects.
type Cause struct {
	Stream   string `json:"stream"`
	Sequence uint64 `json:"seq"`
	EventID  string `json:"id"`
}

// Is reports whether both are the same message. Of one whose event is not known the place has to do: a stream that was made anew counts
// from 1 again.
func (c Cause) Is(o Cause) bool {
	return c.Stream == o.Stream && c.Sequence == o.Sequence && (c.EventID == o.EventID || c.EventID == "" || o.EventID == "")
}

// Checkpoint names what a run has come to when an entry is committed.
type Checkpoint string

// The checkpoints.
const (
	CheckpointUserMessage   Checkpoint = "UserMessage"
	CheckpointAssistantTurn Checkpoint = "AssistantTurnCommitted"
	CheckpointToolResults   Checkpoint = "ToolResultsCommitted"
	CheckpointRunFinished   Checkpoint = "RunFinished"
)

// Change is what one input does to a run.
type Change struct {
	// Absorbed is what the entry's message did before, where nothing was written between: the reply of a model that answered at once is
	// in one entry with what it replied to. It has no effects, and no Absorbed of its own. See Entry.Parts.
	Absorbed *Change `json:"absorbed,omitempty"`
	// At is when the input was handled, in Unix milliseconds by the worker's clock: what the change says is due counts from it. It is stored
	// as the entry's date only.
	At int64 `json:"-"`
	// Kind is the input's name.
	Kind        string       `json:"kind"`
	Checkpoints []Checkpoint `json:"checkpoints,omitempty"`
	// System and Input begin a run: its system prompt and the data of its init event.
	System string          `json:"system,omitempty"`
	Input  json.RawMessage `json:"input,omitempty"`
	// Messages are appended to the history. The content of a tool result is not repeated here: Apply takes it from the
	// Results of the entry that absorbed it.
	Messages []sdk.Message `json:"messages,omitempty"`
	// Tokens is how many tokens the Messages that begin a run have, by estimate.
	Tokens  int      `json:"tokens,omitempty"`
	Results []Result `json:"results,omitempty"`
	// Summary replaces the one before in front of the model, not in the history.
	Summary *Summary `json:"summary,omitempty"`
	// Offered is which tools the model is offered from now on; nil is those that it was offered before.
	Offered *Offered `json:"offered,omitempty"`
	// Steps are the steps of the plan that the entry changes, as they are then.
	Steps []PlanStep `json:"steps,omitempty"`
	// StepOffers are which tools routers are offered for the steps of a new plan.
	StepOffers []StepOffer `json:"step_offers,omitempty"`
	// Dropped names the tools of calls that the model asked for and that were not made, because others had priority.
	Dropped []string `json:"dropped,omitempty"`
	// Corrections say what of the round's calls is not as the model wrote it.
	Corrections []Correction `json:"corrections,omitempty"`
	// Misread is the class of what is wrong with a reply whose calls could not be understood.
	Misread string `json:"misread,omitempty"`
	// Judged is what a judge had against the reply.
	Judged *Judged `json:"judged,omitempty"`
	// Notes are messages that were sent into the run, or that hooks have of calls that wait. They come into the conversation
	// when the round is complete.
	Notes []Note `json:"notes,omitempty"`
	// Requests are the permission requests that the entry makes, Decisions what people decided, and Edits the arguments that
	// they put in place of the model's.
	Requests  []Request  `json:"requests,omitempty"`
	Decisions []Decision `json:"decisions,omitempty"`
	Edits     []Edit     `json:"edits,omitempty"`
	// Guards are what guards of calls did.
	Guards []GuardHit `json:"guards,omitempty"`
	// Asks are the questions that inline tools ask.
	Asks []Ask `json:"asks,omitempty"`
	// Inquiries are what context providers are asked.
	Inquiries []Inquiry `json:"inquiries,omitempty"`
	// Records are grants wider than the run, for the permission manager to keep.
	Records  []sdk.GrantRecord `json:"records,omitempty"`
	Effects  []Effect          `json:"effects,omitempty"`
	Terminal *Terminal         `json:"terminal,omitempty"`
	// Reopens says that the round which the run's end closed is open again: the messages of the entry before are taken back.
	Reopens bool `json:"reopens,omitempty"`
	Head    Head `json:"head"`
}

// Entry is one record of a run's journal (docs/journal.md).
type Entry struct {
	V    int    `json:"v"`
	Rev  uint64 `json:"rev"`
	Etag string `json:"etag"`
	// Prev is the SHA-256 of the entry before, in hexadecimal: the audit chain. Empty in the first.
	Prev string `json:"prev,omitempty"`
	// KeyID names the key that contents are sealed with; empty is none.
	KeyID string `json:"kid,omitempty"`
	Cause Cause  `json:"cause"`
	// At is the date of the entry: the At of its Change.
	At int64 `json:"at"`
	// Blobs are the sections that were too large and are stored beside the journal.
	Blobs []Blob `json:"blobs,omitempty"`
	Change
}

// Blob is a section of an entry that is stored by its content's hash.
type Blob struct {
	// Section is the name of the entry's field.
	Section string `json:"section"`
	// Digest is the SHA-256 of the section's JSON in hexadecimal.
	Digest string `json:"digest"`
	Size   int    `json:"size"`
}

// ResultKind says where a result came from.
type ResultKind string

// The kinds of results.
const (
	ResultAnswer    ResultKind = "answer"    // a service or person answered
	ResultInline    ResultKind = "inline"    // an inline tool returned
	ResultRefused   ResultKind = "refused"   // the call was never made: unknown tool or invalid arguments
	ResultTimeout   ResultKind = "timeout"   // nobody answered in time
	ResultCancelled ResultKind = "cancelled" // the run ended first
	ResultDenied    ResultKind = "denied"    // the call was not allowed
	ResultBlocked   ResultKind = "blocked"   // a hook kept the call from being made
	ResultSet       ResultKind = "set"       // a hook gave the call its result
	ResultGiven     ResultKind = "given"     // a person gave the call its result, so that it was not made
	ResultRepeated  ResultKind = "repeated"  // the call was not made: the result is that of an equal call before
	ResultGranted   ResultKind = "granted"   // a permission request became needless: another decision covers its call
)

// Result is the one result of a call.
type Result struct {
	Call string     `json:"call"`
	Kind ResultKind `json:"kind"`
	// Data is what the model is shown, as JSON. It is absent for a turn, whose answer is a message.
	Data  json.RawMessage `json:"data,omitempty"`
	Error bool            `json:"error,omitempty"`
	// Of is the call whose result this is too. Data then only says so.
	Of string `json:"of,omitempty"`
	// Stored is where the whole of a large result is; Data has its beginning and its end. Nil is that Data is the result.
	Stored *Stored `json:"stored,omitempty"`
	// Media are images and sounds that were in the result, which the model is shown as such. Data names them by their numbers.
	Media []sdk.Media `json:"media,omitempty"`
	// Event, Source and Who tell who answered: event id and source as claimed, and the principal that the broker enforced.
	Event  string `json:"event,omitempty"`
	Source string `json:"source,omitempty"`
	Who    string `json:"who,omitempty"`
}

// Stored is a result that is kept as a blob of its run.
type Stored struct {
	// Digest is the SHA-256 of the result's JSON in hexadecimal, and Size its bytes.
	Digest string `json:"digest"`
	Size   int    `json:"size"`
}

// EffectKind says what an effect does.
type EffectKind string

// The effects. All are events with deterministic ids, or are harmless to repeat.
const (
	EffectCall     EffectKind = "call"     // publish a call to each of its domains
	EffectVoid     EffectKind = "void"     // tell the service that nobody waits any more
	EffectTimer    EffectKind = "timer"    // arm the run's timer
	EffectTerminal EffectKind = "terminal" // publish the terminal event
	EffectGrant    EffectKind = "grant"    // hand a wider grant to the permission manager
	EffectCleanup  EffectKind = "cleanup"  // tell the permission manager that the run has ended
	EffectRunEnd   EffectKind = "run_end"  // tell hooks that the run has ended, or is suspended
	EffectAnswer   EffectKind = "answer"   // publish the answer to a question of an agent that the run has called
	EffectPark     EffectKind = "park"     // leave word that the run waits for Key, so that it is found, or take it back when it does not any more
)

// Effect is something to do outside once the entry is durable. With the entry that lists it, its bytes can be rebuilt.
type Effect struct {
	Kind EffectKind `json:"kind"`
	// Call is the id of the call, Opened the revision of the entry that opened it (0: the entry that lists the effect).
	Call   string `json:"call,omitempty"`
	Opened uint64 `json:"opened,omitempty"`
	// Attempt at the call, from 2; absent is the first. Repeated is how many attempts were made because the run was retried.
	Attempt  int `json:"attempt,omitempty"`
	Repeated int `json:"repeated,omitempty"`
	// Type, Domains and Schema are the call's event type, routing lanes (none: the local one) and dataschema.
	Type    string   `json:"type,omitempty"`
	Domains []string `json:"domains,omitempty"`
	Schema  string   `json:"schema,omitempty"`
	// ParentSubject says that the contract wants the caller's subject in its data.
	ParentSubject bool `json:"parent_subject,omitempty"`
	// Caller is what the call says of the agent that makes it, where that may be asked: the type of its contract.
	Caller string `json:"caller,omitempty"`
	// Question is what is answered, with the result of Call.
	Question *Question `json:"question,omitempty"`
	// Due is when the timer fires, in Unix milliseconds.
	Due int64 `json:"due,omitempty"`
	// Key is what a parked run waits for, or waited for; older versions do not say it where it is Head.Parked's.
	Key string `json:"key,omitempty"`
}

// Terminal is the content of a run's one terminal event.
type Terminal = wire.Terminal

// Encode returns the bytes of the entry: equal entries have equal bytes.
func (e *Entry) Encode() ([]byte, error) {
	data, err := EncodeJSON(e)
	if err != nil {
		return nil, fmt.Errorf("encode entry %d: %w", e.Rev, err)
	}
	return data, nil
}

// EncodeJSON is json.Marshal that leaves raw JSON as it is: canonical arguments must come back byte for byte.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// rawAsWritten lets the newer decoder read all that EncodeJSON writes: raw values, such as a model's arguments, are kept as they
// came, with what is not UTF-8 and with names that come twice.
var rawAsWritten = jsonv2.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// DecodeEntry is Entry.Decode of a new entry.
func DecodeEntry(data []byte) (Entry, error) {
	var e Entry
	if err := e.Decode(data); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// Decode reads an entry of this or an earlier layout into e, which is zero. Step and Next rely on the invariants of its head.
// The error is ErrLaterLayout when a worker of a later version can go on with the run.
// It is most of what a worker computes, and the newer decoder needs half the time.
func (e *Entry) Decode(data []byte) error {
	err := jsonv2.Unmarshal(data, e, rawAsWritten)
	if err != nil { // a later layout may have other types
		var layout struct{ V int }
		if json.Unmarshal(data, &layout) == nil {
			e.V = layout.V
		}
	}
	switch {
	case e.V > LayoutVersion, e.V == PackedLayout:
		return fmt.Errorf("%w: it has layout %d, this worker reads 1 to %d", ErrLaterLayout, e.V, LayoutVersion)
	case err != nil:
		return fmt.Errorf("decode journal entry: %w", err)
	case e.V < 1:
		return fmt.Errorf("journal entry %d has layout %d; this version reads 1 to %d", e.Rev, e.V, LayoutVersion)
	}
	for _, part := range e.Parts() {
		if err := part.Head.Check(); err != nil {
			return fmt.Errorf("journal entry %d: %w", e.Rev, err)
		}
	}
	return nil
}

// PutBeside notes that a section, which the entry has no more, is stored as a blob.
func (e *Entry) PutBeside(b Blob) {
	e.Blobs = append(e.Blobs, b)
	if b.Section == "inquiries" || b.Section == "notes" {
		e.V = max(e.V, layoutBeside)
		e.Head.V = e.V
	}
}

// Restore puts back a section that was stored as a blob.
func (e *Entry) Restore(b Blob, content []byte) error {
	if Digest(content) != b.Digest {
		return fmt.Errorf("section %s of entry %d: the blob has another content", b.Section, e.Rev)
	}
	var into any
	switch b.Section {
	case "messages":
		into = &e.Messages
	case "results":
		into = &e.Results
	case "requests":
		into = &e.Requests
	case "asks":
		into = &e.Asks
	case "input":
		into = &e.Input
	case "terminal":
		into = &e.Terminal
	case "inquiries":
		into = &e.Inquiries
	case "notes":
		into = &e.Notes
	default:
		return fmt.Errorf("entry %d has a blob for an unknown section %q", e.Rev, b.Section)
	}
	if err := json.Unmarshal(content, into); err != nil {
		return fmt.Errorf("decode section %s of entry %d: %w", b.Section, e.Rev, err)
	}
	return nil
}

// Digest is the hash that the next entry names as its Prev.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	var text [2 * sha256.Size]byte
	hex.Encode(text[:], sum[:])
	return string(text[:])
}

// Effect returns the entry's effect of that kind for that call; the zero Effect if it lists none. An entry lists one
// attempt of a call at most.
func (e *Entry) Effect(kind EffectKind, call string) Effect {
	for _, f := range e.Effects {
		if f.Kind == kind && f.Call == call {
			return f
		}
	}
	return Effect{}
}
