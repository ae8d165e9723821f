package texttools

import (
	"regexp"
	"strings"

	"agentd/sdk"
)

const (
	thinkingOpen  = "<thinking>"
	thinkingClose = "</thinking>"
)

// leadingThinking is what a reply may begin with: it is shown to who watches, and does not belong to the conversation.
var leadingThinking = regexp.MustCompile(`(?s)^\s*<thinking>.*?(</thinking>\s*|$)`)

// unthought returns a reply without the thinking that it begins with.
func unthought(text string) string { return leadingThinking.ReplaceAllString(text, "") }

// thoughts passes on the thinking that a streamed reply begins with as such, and all else to next.
type thoughts struct {
	send func(sdk.Delta)
	next func(sdk.Delta)
	held string
	// inside says that the opening tag was read, spoken that no thinking is to be expected any more, and trim that the
	// space after it is still to be dropped.
	inside, spoken, trim bool
}

func (t *thoughts) add(d sdk.Delta) {
	switch {
	case d.Reset:
		*t = thoughts{send: t.send, next: t.next}
	case d.Text != "" && !t.spoken:
		t.held += d.Text
		t.drain()
		return
	case d.Text != "" && t.trim:
		t.speak(d.Text)
		return
	}
	t.next(d)
}

func (t *thoughts) drain() {
	if !t.inside {
		begun := strings.TrimLeft(t.held, " \t\r\n")
		switch {
		case strings.HasPrefix(begun, thinkingOpen):
			t.inside, t.held = true, begun[len(thinkingOpen):]
		case strings.HasPrefix(thinkingOpen, begun):
			return // too short to tell
		default:
			t.speak(t.held)
			return
		}
	}
	if thought, rest, ended := strings.Cut(t.held, thinkingClose); ended {
		t.think(thought)
		t.trim = true
		t.speak(rest)
		return
	}
	// The end of what is held may be the beginning of the closing tag.
	keep := len(t.held)
	for n := min(len(thinkingClose)-1, len(t.held)); n > 0; n-- {
		if strings.HasPrefix(thinkingClose, t.held[len(t.held)-n:]) {
			keep = len(t.held) - n
			break
		}
	}
	t.think(t.held[:keep])
	t.held = t.held[keep:]
}

func (t *thoughts) think(text string) {
	if text != "" {
		t.send(sdk.Delta{Thinking: text})
	}
}

func (t *thoughts) speak(text string) {
	t.spoken, t.held = true, ""
	if t.trim {
		text = strings.TrimLeft(text, " \t\r\n")
		t.trim = text == ""
	}
	if text != "" {
		t.next(sdk.Delta{Text: text})
	}
}

// flush ends the reply.
func (t *thoughts) flush() {
	switch {
	case t.inside && !t.spoken:
		t.think(t.held)
	case !t.spoken:
		t.speak(t.held)
	}
}
