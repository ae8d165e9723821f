// Package screen is the terminal inbox of the human desk: what is shown, and what keys mean. It knows neither terminal nor
// broker: Keys decodes what was typed, Press says what is to be done, and Render returns what is to be seen.
package screen

import (
	"slices"
	"strconv"
	"strings"

	"agentd/internal/requests"
	"agentd/sdk"
)

// Verb is what is to be done.
type Verb string

// The verbs. None is nothing.
const (
	None    Verb = ""
	Quit    Verb = "quit"
	Load    Verb = "load" // read the detail of an item
	Approve Verb = "approve"
	Deny    Verb = "deny"
	Ask     Verb = "ask" // ask back
	Answer  Verb = "answer"
	Edit    Verb = "edit"
	Form    Verb = "form"
)

// Action is something to do with an item.
type Action struct {
	Verb Verb
	Item requests.Item
	// Text is a reason, a question or an answer; Scope that of an approval.
	Text  string
	Scope sdk.GrantScope
}

// mode is what keys mean.
type mode int

const (
	browsing mode = iota
	confirming
	typing
)

// Screen is the state of the inbox. It is used by one goroutine.
type Screen struct {
	// Who is who decides, for the first line.
	Who string
	// Plain shows nothing in colour.
	Plain bool
	items []requests.Item
	// selected is the id of an item, so that a key never hits one that has moved under it.
	selected string
	// detail is of the selected item.
	detail *requests.Detail
	lines  []string
	// vital is how many of the lines nobody must decide without; hidden says that not all of those were to be seen.
	vital  int
	hidden bool
	// large shows the detail alone; scroll is its first line.
	large  bool
	scroll int
	mode   mode
	// action is what is being confirmed or typed for.
	action Action
	typed  []rune
	status string
	// busy are the items whose answers are on their way.
	busy map[string]bool
}

// New returns an empty screen.
func New(who string) *Screen { return &Screen{Who: who, busy: map[string]bool{}} }

// Items sets what is open. When the selected item is gone, nothing is asked about it any more.
func (s *Screen) Items(items []requests.Item) Action {
	at := s.index()
	for i := range items {
		if was := s.find(items[i].ID); was >= 0 && items[i].Reminded > s.items[was].Reminded && s.mode == browsing {
			s.status = "a reminder: " + items[i].Short + " of run " + items[i].Run + " still waits"
		}
	}
	s.items = items
	if s.mode != browsing && s.find(s.action.Item.ID) < 0 {
		s.mode, s.status = browsing, "it is no longer open"
	}
	switch {
	case len(items) == 0:
		s.selected, s.detail, s.lines, s.large = "", nil, nil, false
		return Action{}
	case s.find(s.selected) < 0:
		return s.choose(min(max(at, 0), len(items)-1))
	}
	return s.load()
}

// Detail sets the detail of an item, with its lines as they are to be shown. Nobody must approve without having seen the
// vital ones, which come first.
func (s *Screen) Detail(d *requests.Detail, lines []string, vital int) {
	if d.ID == s.selected {
		s.detail, s.lines, s.vital, s.hidden = d, lines, vital, true
	}
}

// Done says what became of an action.
func (s *Screen) Done(id, status string) {
	delete(s.busy, id)
	s.status = status
}

func (s *Screen) find(id string) int {
	return slices.IndexFunc(s.items, func(i requests.Item) bool { return i.ID == id })
}

func (s *Screen) index() int { return s.find(s.selected) }

// choose selects an item by its place.
func (s *Screen) choose(n int) Action {
	if n < 0 || n >= len(s.items) {
		return Action{}
	}
	if s.items[n].ID != s.selected {
		s.selected, s.detail, s.lines, s.scroll = s.items[n].ID, nil, nil, 0
	}
	return s.load()
}

// load asks for the detail of the selected item when it is not there, or no longer true.
func (s *Screen) load() Action {
	item := s.items[s.index()]
	if s.detail != nil && len(s.detail.Sent) == len(item.Sent) {
		return Action{}
	}
	return Action{Verb: Load, Item: item}
}

// Press handles a key.
func (s *Screen) Press(k Key) Action {
	if k == KeyInterrupt {
		return Action{Verb: Quit}
	}
	switch s.mode {
	case confirming:
		return s.confirm(k)
	case typing:
		return s.typeKey(k)
	case browsing:
	}
	return s.browse(k)
}

func (s *Screen) browse(k Key) Action {
	s.status = ""
	switch k {
	case "q":
		return Action{Verb: Quit}
	case KeyUp, "k":
		return s.move(-1)
	case KeyDown, "j":
		return s.move(1)
	case KeyPageUp:
		s.scroll = max(s.scroll-10, 0)
	case KeyPageDown:
		s.scroll = min(s.scroll+10, max(len(s.lines)-1, 0))
	case "s", KeyEnter:
		s.large = !s.large && len(s.items) > 0
		s.scroll = 0
	case KeyEscape:
		s.large = false
	case "a", "d", "e", "r":
		return s.begin(k)
	default:
	}
	return Action{}
}

func (s *Screen) move(by int) Action {
	if s.large {
		s.scroll = min(max(s.scroll+by, 0), max(len(s.lines)-1, 0))
		return Action{}
	}
	return s.choose(s.index() + by)
}

// begin begins to answer the selected item. Nobody decides on what they were not shown.
func (s *Screen) begin(k Key) Action {
	at := s.index()
	switch {
	case at < 0:
		return Action{}
	case s.detail == nil:
		s.status = "wait until the details are shown"
		return Action{}
	case s.busy[s.selected]:
		s.status = "an answer is on its way"
		return Action{}
	}
	item := s.items[at]
	s.action, s.typed = Action{Item: item}, nil
	permission := item.Kind == requests.KindPermission
	switch {
	case k == "r" && item.Kind == requests.KindTask:
		return Action{Verb: Form, Item: item}
	case k == "r":
		s.mode, s.action.Verb = typing, Answer
		if permission {
			s.action.Verb = Ask
		}
	case !permission:
		s.status = "this is a " + string(item.Kind) + "; r replies"
	case k == "a" && s.hidden:
		s.large, s.status = true, "not all of the arguments were shown; see them, then a again"
	case k == "a":
		s.mode, s.action.Verb = confirming, Approve
	case k == "d":
		s.mode, s.action.Verb = typing, Deny
	case k == "e":
		return Action{Verb: Edit, Item: item}
	}
	return Action{}
}

// scopeKeys are the keys of the scopes that need nothing further.
var scopeKeys = []struct {
	key   Key
	scope sdk.GrantScope
}{{"t", sdk.ScopeTool}, {"p", sdk.ScopePrincipal}}

func (s *Screen) confirm(k Key) Action {
	s.mode = browsing
	if k == "y" {
		return s.send("")
	}
	for _, c := range scopeKeys {
		if k == c.key && s.detail != nil && slices.Contains(s.detail.Request.Scopes, c.scope) {
			return s.send(c.scope)
		}
	}
	s.status = "nothing was sent"
	return Action{}
}

func (s *Screen) send(scope sdk.GrantScope) Action {
	s.busy[s.action.Item.ID] = true
	s.status = "sent; waiting for what becomes of it"
	s.action.Scope = scope
	return s.action
}

func (s *Screen) typeKey(k Key) Action {
	switch k {
	case KeyEscape:
		s.mode, s.status = browsing, "nothing was sent"
	case KeyBackspace:
		s.typed = s.typed[:max(len(s.typed)-1, 0)]
	case KeyClear:
		s.typed = nil
	case KeyEnter:
		text := strings.TrimSpace(string(s.typed))
		if text == "" {
			return Action{}
		}
		s.mode, s.action.Text = browsing, s.suggestion(text)
		return s.send("")
	default:
		if !strings.HasPrefix(string(k), "<") || k == "<" {
			s.typed = append(s.typed, []rune(string(k))...)
		}
	}
	return Action{}
}

// suggestion is the suggestion with that number, or the text itself.
func (s *Screen) suggestion(text string) string {
	n, err := strconv.Atoi(text)
	if err != nil || s.action.Verb != Answer || s.detail == nil || n < 1 || n > len(s.detail.Suggestions) {
		return text
	}
	return s.detail.Suggestions[n-1]
}
