package core

import (
	"slices"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Note is a message for the model that is not said yet, because calls are open or a model call is in progress.
type Note struct {
	// ID is unique in the run and begins with "n".
	ID   string `json:"id"`
	Text string `json:"text"`
	// Event, Source and Who tell who sent it: event id and source as claimed, and the principal that the broker enforced. A
	// hook's note has none.
	Event  string `json:"event,omitempty"`
	Source string `json:"source,omitempty"`
	Who    string `json:"who,omitempty"`
	// Urgent says that it is said before those that wait and are not.
	Urgent bool `json:"urgent,omitempty"`
}

const (
	// MaxNote is the size of a message that is sent into a run, in bytes.
	MaxNote = wire.MaxMessage
	// MaxNotes is how many messages may wait until they can be said.
	MaxNotes = 32
	// maxHeard is how many messages a run remembers, so that one which comes twice counts once.
	maxHeard = 64
)

// stopText is Head.Stop when a reply's text completes the run, rather than the result of a call.
const stopText = "text"

// restText is Head.Stop when the model has answered with a text while calls are open: the run waits for the first of them, and its model
// goes on from there.
const restText = "rest"

// answerCode is the reason code of a run that completes with a text of its model.
const answerCode = "answer"

// stopTool is the reason code of a run that completes with the result of a tool.
const stopTool = "tool"

// NoteID is the id of the note for a message with that source and event id.
func NoteID(source, id string) string { return wire.MessageID(source, id) }

// steered lets a message into the run: it waits until the model can be shown it. Under SteeringInterrupt, what the run waits
// for is given up for it.
func (t *transition) steered(ev Steered) error {
	h, note := &t.Head, ev.Note
	if ev.Question != nil {
		return t.asked(note, *ev.Question)
	}
	refused := func(format string, args ...any) error { return sdk.Errorf(sdk.CodeMessageRefused, format, args...) }
	switch {
	case slices.Contains(h.Heard, note.ID):
		return ErrStale
	case h.Status == StatusDone:
		return refused("the run is done")
	case h.Cancel != nil:
		return refused("the run is to end: %s", h.Cancel.Message)
	case len(h.Undo) > 0:
		return refused("calls of the run are being undone, and no model is there to read it")
	case t.spec.Steering == sdk.SteeringReject:
		return refused("the agent takes no messages while it works")
	case t.spec.exhausted(h):
		return refused("the run has used up its model calls, or its tokens, so its model would not read it")
	case note.Text == "" || len(note.Text) > MaxNote:
		return refused("the message has %d bytes; it must have 1 to %d", len(note.Text), MaxNote)
	case len(h.Notes) >= MaxNotes:
		return refused("%d messages wait already", len(h.Notes))
	}
	t.takeNotes([]Note{note})
	h.Heard = append(slices.Clip(h.Heard), note.ID)
	h.Heard = h.Heard[max(0, len(h.Heard)-maxHeard):]
	if t.spec.Steering == sdk.SteeringInterrupt {
		h.Urgent = h.Status == StatusRunning
		t.giveUp()
	}
	return t.settle()
}

// spokenTo reports whether a message of somebody waits until it can be said.
func (h *Head) spokenTo() bool {
	return slices.ContainsFunc(h.Notes, func(id string) bool { return slices.Contains(h.Heard, id) })
}

// takeNotes keeps notes until they can be said.
func (t *transition) takeNotes(notes []Note) {
	for _, n := range notes {
		t.Notes = append(t.Notes, n)
		h := &t.Head
		if n.Urgent {
			h.Notes = slices.Insert(slices.Clone(h.Notes), h.Ahead, n.ID)
			h.Ahead++
			continue
		}
		h.Notes = append(slices.Clip(h.Notes), n.ID)
	}
}

// giveUp closes every call that waits for somebody else.
func (t *transition) giveUp() {
	for i := range t.Head.Calls {
		c := &t.Head.Calls[i]
		if c.Closed() || c.Status != CallSuspended && !c.Queued {
			continue
		}
		t.withdraw(c, givenUp(c))
	}
}

// overtaken keeps a reply of text that the model wrote before it could see the messages that wait: it is not an answer.
func (t *transition) overtaken(text string) {
	t.Head.Lifecycle = sdk.LifecycleUserMessage
	if text != "" {
		t.Messages = append(t.Messages, sdk.Text(sdk.RoleAssistant, text))
	}
}

// flushNotes puts the notes that wait into the conversation, but for those that are to be kept.
func (t *transition) flushNotes(kept []string) {
	h := &t.Head
	for _, id := range h.Notes {
		if !slices.Contains(kept, id) {
			t.Messages = append(t.Messages, h.note(id))
		}
	}
	h.Notes, h.Ahead, h.Urgent = kept, 0, false
	t.forgetClosed()
}

func (t *transition) reviewed(ev Reviewed) error {
	h := &t.Head
	if h.RoundOpen() || !h.Review && len(h.Notes) == 0 {
		return violation(h, "a review that nothing asked for")
	}
	t.keep(ev.Hooks)
	t.Messages = append(t.Messages, ev.Messages...)
	kept := t.unreviewed(ev.Late)
	t.stopLate(kept)
	// A person who speaks wants to be heard: the run goes on, whatever it was to stop on. It ends with what it has where its model is not called
	// any more.
	if h.spokenTo() && (!h.stopping() || !over(t.spec, h)) {
		t.stopOn("", "")
		h.Guarded.heard()
		t.spoken()
		h.Lifecycle = sdk.LifecycleUserMessage
		t.Checkpoints = append(t.Checkpoints, CheckpointUserMessage)
	}
	h.Review = false
	if len(h.Notes) > len(kept) && slices.ContainsFunc(h.Notes, isCall) {
		t.Checkpoints = append(t.Checkpoints, CheckpointToolResults)
	}
	t.flushNotes(kept)
	return t.settle()
}
