package core

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// State is a run with its history: the fold of its journal.
type State struct {
	Head
	Rev    uint64
	System string
	Input  json.RawMessage
	// Started is when the first entry was made, in Unix milliseconds.
	Started int64
	// History is the conversation. Messages derives the seen counts.
	History []Remembered
	// Summary stands for the beginning of History in front of the model; nil is none.
	Summary *Summary
	// Offered is which tools the model was offered last; nil is all.
	Offered *Offered
	// StepOffers are which tools routers are offered for steps of the last plan.
	StepOffers []StepOffer
	// Stored are the results of the history that are kept as blobs.
	Stored []StoredResult
	// Results, Edits, Asks and Corrections are those of the calls in the head; Notes are not in the History yet.
	Results     []Result
	Edits       []Edit
	Asks        []Ask
	Corrections []Correction
	Notes       []Note
	// Granted are the grants of the run that have allowed calls of the head when their rounds were planned, as they were before that.
	Granted []GrantedCall
	// Context is what context providers answered last, by section.
	Context []sdk.Section
	// before is how many messages the History had before the last entry.
	before int
	sized  sized
}

// GrantedCall is a call with the grant of its run that decided it.
type GrantedCall struct {
	Call string
	Grant
}

// StoredResult is the result of a call that is kept as a blob.
type StoredResult struct {
	Call string
	Stored
}

// Remembered is a message with the number of model calls that had been made when it was appended.
type Remembered struct {
	sdk.Message
	Turns int
}

// Apply appends an entry to s, which it takes over: the caller must not use s afterwards. Entries must come in order.
func Apply(s State, e *Entry) (State, error) {
	if e.Rev != s.Rev+1 {
		return State{}, fmt.Errorf("%w: entry %d follows %d in run %s", ErrIllegal, e.Rev, s.Rev, e.Head.Run)
	}
	for _, part := range e.Parts() {
		var err error
		if s, err = s.apply(part); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// Fold appends entries that come in order. It takes s over, as Apply does.
func Fold(s State, entries []*Entry) (State, error) {
	for _, e := range entries {
		var err error
		if s, err = Apply(s, e); err != nil {
			return State{}, err
		}
	}
	return s, nil
}

// ApplyRest appends an entry of which s has what was absorbed, and takes s over as Apply does.
func ApplyRest(s State, e *Entry) (State, error) {
	if e.Rev != s.Rev || e.Absorbed == nil {
		return State{}, fmt.Errorf("%w: entry %d does not go on from a part of it in run %s", ErrIllegal, e.Rev, e.Head.Run)
	}
	parts := e.Parts()
	return s.apply(parts[len(parts)-1])
}

// apply appends a part of an entry.
func (s State) apply(e *Entry) (State, error) {
	anew := e.Kind == KindRetried && s.Unbegun()
	before := s.Plan
	s.Granted = append(s.Granted, s.grantedBy(e)...)
	s.Rev = e.Rev
	s.Head = e.Head
	switch {
	case e.Rev == 1:
		s.System, s.Input, s.Started = e.System, e.Input, e.At
	case e.Reopens:
		s.History, s.sized = s.History[:s.before:s.before], sized{}
	case anew:
		s.System, s.History, s.sized = e.System, nil, sized{}
	}
	s.before = len(s.History)
	if e.Summary != nil {
		s.Summary = e.Summary
	}
	if e.Offered != nil {
		s.Offered = e.Offered
	}
	if e.Kind == KindPlanned {
		s.StepOffers = e.StepOffers
	} else if e.Head.Plan != nil && e.Head.Plan.Edited {
		s.StepOffers = stillOffered(s.StepOffers, before, e.Head.Plan)
	}
	s.Results = append(s.Results, e.Results...)
	s.Edits = append(s.Edits, e.Edits...)
	s.Asks = append(s.Asks, e.Asks...)
	s.Corrections = append(s.Corrections, e.Corrections...)
	s.Notes = append(s.Notes, e.Notes...)
	for _, m := range e.Messages {
		message, err := s.resolve(m)
		if err != nil {
			return State{}, err
		}
		s.History = append(s.History, Remembered{Message: message, Turns: e.Head.Turns})
	}
	s.absorb(e)
	// A retry may open the last round of a run that is done again.
	if !s.RoundOpen() && s.Status != StatusDone {
		s.forget()
	}
	if len(s.Head.Notes) == 0 && s.Status != StatusDone {
		s.Notes = nil
	}
	return s, nil
}

// grantedBy are the calls of an entry that grants of the run have decided, of which the entry may have used the last one up.
func (s *State) grantedBy(e *Entry) []GrantedCall {
	var granted []GrantedCall
	for i := range e.Decisions {
		d := &e.Decisions[i]
		at := slices.IndexFunc(s.Grants, func(g Grant) bool { return g.Request == d.Grant })
		if d.Request == "" && d.Grant != "" && at >= 0 {
			granted = append(granted, GrantedCall{d.Call, s.Grants[at]})
		}
	}
	return granted
}

// GrantOf is the grant of the run that decided a call of the head when its round was planned; nil is none.
func (s *State) GrantOf(call string) *Grant {
	for i := range s.Granted {
		if s.Granted[i].Call == call {
			return &s.Granted[i].Grant
		}
	}
	return nil
}

// stillOffered are the choices of tools for the steps that people have left as they were: for others, routers are offered all.
func stillOffered(offers []StepOffer, before, now *Plan) []StepOffer {
	return slices.DeleteFunc(slices.Clone(offers), func(o StepOffer) bool {
		was, is := before.Step(o.Step), now.Step(o.Step)
		return was == nil || is == nil || was.Text != is.Text || was.Tool != is.Tool
	})
}

// forget drops what is known of calls that are not in the head any more.
func (s *State) forget() {
	if len(s.Calls) == 0 {
		s.Results, s.Edits, s.Asks, s.Corrections, s.Granted = nil, nil, nil, nil, nil
		return
	}
	gone := func(call string) bool { return s.call(call) < 0 }
	s.Results = slices.DeleteFunc(s.Results, func(r Result) bool { return gone(r.Call) })
	s.Edits = slices.DeleteFunc(s.Edits, func(e Edit) bool { return gone(e.Call) })
	s.Asks = slices.DeleteFunc(s.Asks, func(a Ask) bool { return gone(a.ID) })
	s.Corrections = slices.DeleteFunc(s.Corrections, func(c Correction) bool { return gone(c.Call) })
	s.Granted = slices.DeleteFunc(s.Granted, func(g GrantedCall) bool { return gone(g.Call) })
}

// resolve fills tool results, and texts about decisions, with the data that was absorbed before.
func (s *State) resolve(m sdk.Message) (sdk.Message, error) {
	content := make([]sdk.Content, len(m.Content))
	shown := 0
	for i, c := range m.Content {
		if note := s.note(c.CallID); note != nil {
			c.Text = note.Text
		} else if c.Kind == sdk.ContentToolResult && c.Pending {
			s.correct(&c)
		} else if c.CallID != "" && c.Kind != sdk.ContentToolUse {
			r := s.result(c.CallID)
			if r == nil {
				return sdk.Message{}, fmt.Errorf("%w: run %s: no result for call %s", ErrIllegal, s.Run, c.CallID)
			}
			if c.Kind != sdk.ContentMedia {
				s.take(&c, r)
				s.reuse(&c, r)
			} else if shown < len(r.Media) {
				c.Media = &r.Media[shown]
				shown++
			}
		}
		content[i] = c
	}
	m.Content = content
	return m, nil
}

// correct tells with a result what of its call is not as the model wrote it.
func (s *State) correct(c *sdk.Content) {
	if corrected := s.correction(c.CallID); corrected != nil && c.Kind == sdk.ContentToolResult {
		c.Note = corrected.Note
	}
}

// take makes r the result that c is.
func (s *State) take(c *sdk.Content, r *Result) {
	c.Text = string(r.Data)
	s.correct(c)
	if r.Stored == nil {
		return
	}
	c.Size = r.Stored.Size
	s.Stored = append(s.Stored, StoredResult{Call: r.Call, Stored: *r.Stored})
}

// reuse makes the result of an earlier call the one that c is, where r says so.
func (s *State) reuse(c *sdk.Content, r *Result) {
	if r.Of == "" {
		return
	}
	earlier := s.ResultNamed(r.Of)
	if earlier == nil {
		return // r says that the call was made before
	}
	c.Text, c.Size = earlier.Text, earlier.Size
	if stored := s.StoredOf(r.Of); stored != nil {
		s.Stored = append(s.Stored, StoredResult{Call: r.Call, Stored: *stored})
	}
}

// StoredOf is where the result of a call is kept; nil is in the history.
func (s *State) StoredOf(call string) *Stored {
	for i := range s.Stored {
		if s.Stored[i].Call == call {
			return &s.Stored[i].Stored
		}
	}
	return nil
}

func (s *State) note(id string) *Note {
	for i := range s.Notes {
		if s.Notes[i].ID == id {
			return &s.Notes[i]
		}
	}
	return nil
}

// result is that of a call of the head: the last one, because a call that the run's end had given up has another later.
func (s *State) result(call string) *Result {
	for i := len(s.Results) - 1; i >= 0; i-- {
		if s.Results[i].Call == call {
			return &s.Results[i]
		}
	}
	return nil
}

// Messages is the history with its seen counts: what they were when appended, and one for each model call since.
func (s *State) Messages() []sdk.Message {
	messages := make([]sdk.Message, len(s.History))
	for i := range s.History {
		messages[i] = s.message(i)
	}
	return messages
}

// message is that of a place in the history, with its seen count.
func (s *State) message(i int) sdk.Message {
	m := s.History[i].Message
	m.Seen += s.Turns - s.History[i].Turns
	return m
}

// Arguments returns what a call of the history is to be made with: the model's arguments, or an approver's.
func (s *State) Arguments(call string) (json.RawMessage, bool) {
	for _, e := range s.Edits {
		if e.Call == call {
			return e.Args, true
		}
	}
	for i := len(s.History) - 1; i >= 0; i-- {
		for _, c := range s.History[i].Content {
			if c.Kind == sdk.ContentToolUse && c.CallID == call {
				return c.Args, true
			}
		}
	}
	return nil, false
}

// WrittenPlan is the plan that the agent has written down last; nil is none.
func (s *State) WrittenPlan() json.RawMessage {
	for i := len(s.History) - 1; i >= 0; i-- {
		for _, c := range s.History[i].Content {
			if c.IsResult() && c.Tool == sdk.ToolUpdatePlan && !c.IsError {
				return json.RawMessage(c.Text)
			}
		}
	}
	return nil
}

// StopText is the text that the output of a stopping run is built from: the result of the tool it stops on, or the last
// thing the agent said when the person ended the conversation.
func (s *State) StopText() string {
	said := ""
	for i := len(s.History) - 1; i >= 0; i-- {
		m := s.History[i]
		for _, c := range m.Content {
			if c.IsResult() && c.CallID == s.stopCall() {
				return Unquoted(c.Text)
			}
		}
		if text := m.PlainText(); said == "" && m.Role == sdk.RoleAssistant {
			said = text
		}
	}
	return said
}

// StopResult is the result that the run stops on; nil is none.
func (s *State) StopResult() *sdk.Content {
	if s.stopCall() == "" {
		return nil
	}
	return s.ResultNamed(s.stopCall())
}

// ResultNamed is the newest result of a call of the history with that id or place (wire.CallPlace); nil is none.
func (s *State) ResultNamed(name string) *sdk.Content {
	for i := len(s.History) - 1; i >= 0; i-- {
		content := s.History[i].Content
		for j := range content {
			if c := &content[j]; c.IsResult() && (c.CallID == name || wire.CallPlace(c.CallID) == name) {
				return c
			}
		}
	}
	return nil
}

// Unquoted is a result that is only a JSON string as the text that it is.
func Unquoted(result string) string {
	var text string
	if strings.HasPrefix(result, `"`) && json.Unmarshal([]byte(result), &text) == nil {
		return text
	}
	return result
}

// Shown is how many results of calls the history has.
func (s *State) Shown() int {
	n := 0
	for i := range s.History {
		for j := range s.History[i].Content {
			if s.History[i].Content[j].IsResult() {
				n++
			}
		}
	}
	return n
}
