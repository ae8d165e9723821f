package core

import (
	"encoding/json"
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Offered says which tools a model is offered, of many. Those that the run has called or found since are offered as well.
type Offered struct {
	// For is the digest of what the choice was made of: the tools that there are, and what people had said.
	For string `json:"for"`
	// By is how it was made.
	By sdk.SelectedBy `json:"by"`
	// Tools are in the order in which the model is shown them.
	Tools []string `json:"tools"`
	// Degraded says why it was made by words although embeddings were to be compared; empty is that it was not.
	Degraded string `json:"degraded,omitempty"`
}

// StepOffer says which tools a router is offered for a step of the plan, of many, beside those that the plan names.
type StepOffer struct {
	Step int `json:"step"`
	// By, Tools and Degraded are as those of Offered.
	By       sdk.SelectedBy `json:"by"`
	Tools    []string       `json:"tools"`
	Degraded string         `json:"degraded,omitempty"`
}

// OfferedFor is the choice of tools for the step of that number; nil is that all are offered.
func (s *State) OfferedFor(step int) *StepOffer {
	for i := range s.StepOffers {
		if s.StepOffers[i].Step == step {
			return &s.StepOffers[i]
		}
	}
	return nil
}

// MaxOffered bounds how many tools a choice has, and so what an entry has of it: names of 64 bytes at most.
const MaxOffered = 256

// What a choice of tools is made of: how much of each text, in bytes, and how many of the last texts beside the first.
const (
	maxSaidForTools = 4 << 10
	lastForTools    = 2
)

func (t *transition) chosen(ev Chosen) error {
	h := &t.Head
	if !t.spec.Selects || h.RoundOpen() || h.stopping() || len(ev.Offered.Tools) > MaxOffered {
		return violation(h, "a choice of %d tools that nothing asked for", len(ev.Offered.Tools))
	}
	offered := ev.Offered
	offered.Degraded = clip.Text(offered.Degraded, maxMessage)
	t.Offered = &offered
	return nil
}

// Wanted is what people have said that tools are chosen for, the newest first: the last texts, and the one that the run began with.
func (s *State) Wanted(person func(tool string) bool) []string {
	var all []string
	for i := range s.History {
		m := &s.History[i]
		text := ""
		if m.Role == sdk.RoleUser && !tellsOfCalls(m.Content) {
			text = m.PlainText()
		}
		for j := range m.Content {
			c := &m.Content[j]
			switch {
			case !c.IsResult():
			case !c.IsError && person(c.Tool):
				text = c.Text
			case c.Pending:
				text = ""
			}
		}
		if text != "" {
			all = append(all, clip.Text(text, maxSaidForTools))
		}
	}
	if len(all) > lastForTools+1 {
		all = append(all[:1:1], all[len(all)-lastForTools:]...)
	}
	slices.Reverse(all)
	return all
}

// Spoken are the texts of the conversation, with who they are of. Not among them are the calls, what is said before them, and what the model is
// told of calls: results, what they have shown, and what people have decided on them.
func (s *State) Spoken() []sdk.Message {
	var all []sdk.Message
	for i := range s.History {
		m := &s.History[i].Message
		if text := m.PlainText(); text != "" && !tellsOfCalls(m.Content) {
			all = append(all, sdk.Text(m.Role, text))
		}
	}
	return all
}

// tellsOfCalls reports whether a message is of calls.
func tellsOfCalls(content []sdk.Content) bool {
	return slices.ContainsFunc(content, func(c sdk.Content) bool { return c.Tool != "" || c.Kind == sdk.ContentMedia && c.CallID != "" })
}

// Uses are the tools that the run has called, and those that it was shown by tools which look for tools.
func (s *State) Uses(finds func(tool string) bool) map[string]bool {
	uses := map[string]bool{}
	for i := range s.History {
		for j := range s.History[i].Content {
			c := &s.History[i].Content[j]
			switch {
			case c.Kind == sdk.ContentToolUse:
				uses[c.Tool] = true
			case c.IsResult() && !c.IsError && finds(c.Tool):
				for _, name := range FoundTools(c.Text) {
					uses[name] = true
				}
			}
		}
	}
	return uses
}

// FoundTools are the names in a result of a tool that looks for tools.
func FoundTools(result string) []string {
	var found struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if json.Unmarshal([]byte(result), &found) != nil {
		return nil
	}
	var names []string
	for _, t := range found.Tools {
		names = append(names, t.Name)
	}
	return names
}
