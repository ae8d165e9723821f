package core

import (
	"slices"

	"agentd/internal/clip"
	"agentd/sdk"
)

// Summary stands for the oldest messages of a history in front of the model. The messages stay in the journal.
type Summary struct {
	// Messages is how many there are, from the first.
	Messages int    `json:"messages"`
	Text     string `json:"text"`
}

// maxSummary bounds a summary, which is to be shorter than what it stands for.
const maxSummary = 64 << 10

func (t *transition) compacted(ev Compacted) error {
	h := &t.Head
	if len(h.Calls) > 0 || h.stopping() || ev.Messages < 1 {
		return violation(h, "a summary of %d messages while a round is open", ev.Messages)
	}
	t.cost(ev.Reply)
	t.Summary = &Summary{Messages: ev.Messages, Text: clip.Text(ev.Reply.Text, maxSummary)}
	return nil
}

// Conversation is what the model is shown of the history: the summary, where there is one, and what came after.
func (s *State) Conversation() []sdk.Message {
	messages := s.Messages()
	if s.Summary == nil || s.Summary.Messages > len(messages) {
		return messages
	}
	summary := sdk.Text(sdk.RoleUser, "<summary>\nWhat happened before, as you remember it:\n"+s.Summary.Text+"\n</summary>")
	return slices.Insert(slices.Clone(messages[s.Summary.Messages:]), 0, summary)
}

// Summarised is how many messages of the history the first n of the Conversation stand for.
func (s *State) Summarised(n int) int {
	if s.Summary == nil {
		return n
	}
	return s.Summary.Messages + n - 1
}
