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
	// Lined is up to where, from the first message, results are shown in one line; no less than Messages.
	Lined int `json:"lined,omitempty"`
	// Files are those that calls among the messages have named, the newest last.
	Files []string `json:"files,omitempty"`
	// Evicted is how many tokens fewer the prompt has, as they are estimated.
	Evicted int `json:"evicted,omitempty"`
}

// maxSummary bounds a summary in bytes, and maxFiles the files that it lists: it is to be shorter than what it stands for.
const (
	maxSummary = 64 << 10
	maxFiles   = 64
)

func (t *transition) compacted(ev Compacted) error {
	h := &t.Head
	s := ev.Summary
	if h.RoundOpen() || h.stopping() || s.Messages < 0 || s.Lined < s.Messages {
		return violation(h, "a summary of %d messages, %d in one line, which cannot be", s.Messages, s.Lined)
	}
	t.cost(ev.Reply)
	s.Text = clip.Text(s.Text, maxSummary)
	s.Files = s.Files[max(0, len(s.Files)-maxFiles):]
	t.Summary = &s
	return nil
}

// Conversation is what the model is shown of a history.
type Conversation struct {
	// Messages are the task, and what no summary stands for.
	Messages []sdk.Message
	// Task says which of them are the task, by their places: it is never left out.
	Task []bool
	// Kept is how many of the first are shown although a summary stands for them: they are of the task.
	Kept int
	// Lined is how many of the first have their results in one line.
	Lined int
	// Summary stands for what is not shown; nil is none.
	Summary *Summary
}

// Conversation is what the model is shown of the history.
func (s *State) Conversation() Conversation {
	from := 0
	if s.Summary != nil && s.Summary.Messages <= len(s.History) {
		from = s.Summary.Messages
	}
	shown := len(s.History) - from // and the task
	c := Conversation{Summary: s.Summary, Messages: make([]sdk.Message, 0, shown), Task: make([]bool, 0, shown)}
	first, last := s.task()
	for i := range s.History {
		m := &s.History[i]
		task := m.Role == sdk.RoleUser && (i < first || i >= last && m.Turns == 0)
		if i < from && !task {
			continue
		}
		c.Messages, c.Task = append(c.Messages, s.message(i)), append(c.Task, task)
		if i < from {
			c.Kept++
		}
	}
	if s.Summary != nil {
		c.Lined = c.Kept + max(s.Summary.Lined-from, 0)
	}
	return c
}

// task is where the first words of the user end, and where the last ones begin that came before the first reply.
func (s *State) task() (first, last int) {
	assistant := func(m Remembered) bool { return m.Role == sdk.RoleAssistant }
	opening := 0
	for opening < len(s.History) && s.History[opening].Turns == 0 {
		opening++
	}
	first = slices.IndexFunc(s.History[:opening], assistant)
	if first < 0 {
		return opening, opening
	}
	for last = opening; last > 0 && !assistant(s.History[last-1]); last-- {
	}
	return first, last
}

// calibration bounds, in thousandths, by how much providers count other than agentd does.
const (
	exact                 = 1000
	lowest, highest       = 750, 2000
	fewestToLearn   int64 = 1000
)

// Calibrated is how many tokens the provider counts for a thousand that are estimated, with what is known of the last prompt.
func (h *Head) Calibrated() int {
	if h.Calibration == 0 {
		return exact
	}
	return h.Calibration
}

// calibrate learns from what the provider counted of a prompt, for which so many tokens were estimated.
func (h *Head) calibrate(estimated, counted int64) {
	if estimated < fewestToLearn || counted <= 0 {
		return
	}
	h.Calibration = int(min(max(int64(h.Calibrated())*counted/estimated, lowest), highest))
}
