package mockllm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// vendorCallID begins the call ids that this server makes up, as OpenAI's do.
const vendorCallID = "call_"

// compare says how got differs from the beginning of want, or "" if it does not, and how many messages agree.
func compare(want, got []Message) (agree int, difference string) {
	ids := callIDs{seen: map[string]bool{}, byRecord: map[string]string{}}
	for i, m := range got {
		if i >= len(want) {
			return i, fmt.Sprintf("message %d: the record has %d messages only, got %s", i, len(want), show(m))
		}
		if d := compareMessage(want[i], m); d != "" {
			return i, fmt.Sprintf("message %d: %s", i, d)
		}
		if d := ids.check(want[i], m); d != "" {
			return i, fmt.Sprintf("message %d: %s", i, d)
		}
	}
	return len(got), ""
}

func compareMessage(want, got Message) string {
	if want.Role != got.Role {
		return fmt.Sprintf("want %s, got %s", show(want), show(got))
	}
	if want.Role == roleTool {
		if !equalJSON(want.Text, got.Text) {
			return difference("result", want.Text, got.Text)
		}
	} else if want.Text != got.Text {
		return difference(want.Role+" text", want.Text, got.Text)
	}
	if !reflect.DeepEqual(want.Media, got.Media) {
		return difference("media", strings.Join(want.Media, ","), strings.Join(got.Media, ","))
	}
	if len(want.Calls) != len(got.Calls) {
		return fmt.Sprintf("want %d calls, got %d: %s", len(want.Calls), len(got.Calls), show(got))
	}
	for i := range want.Calls {
		w, g := want.Calls[i], got.Calls[i]
		if w.Name != g.Name {
			return difference(fmt.Sprintf("name of call %d", i), w.Name, g.Name)
		}
		if !equalJSON(w.Arguments, g.Arguments) {
			return difference(fmt.Sprintf("arguments of call %d", i), w.Arguments, g.Arguments)
		}
	}
	return ""
}

// callIDs follows the ids of a request: they are the client's own, so they are compared by position.
type callIDs struct {
	seen     map[string]bool
	byRecord map[string]string
	// open are the calls of the last assistant message, for records without ids.
	open []string
}

func (ids *callIDs) check(want, got Message) string {
	if got.Role == roleAssistant {
		ids.open = nil
	}
	for i, c := range got.Calls {
		switch {
		case c.ID == "" || ids.seen[c.ID]:
			return fmt.Sprintf("the id %q of call %d is not unique", c.ID, i)
		case strings.HasPrefix(c.ID, vendorCallID):
			return fmt.Sprintf("the id %q of call %d is the one of the vendor", c.ID, i)
		}
		ids.seen[c.ID] = true
		ids.open = append(ids.open, c.ID)
		if record := want.Calls[i].ID; record != "" {
			ids.byRecord[record] = c.ID
		}
	}
	if got.Role != roleTool {
		return ""
	}
	expected := ids.byRecord[want.CallID]
	if want.CallID == "" && len(ids.open) > 0 {
		expected, ids.open = ids.open[0], ids.open[1:]
	}
	if got.CallID == "" || got.CallID != expected {
		return difference("id of the call that the result is for", expected, got.CallID)
	}
	return ""
}

// equalJSON compares as JSON where both are, else as texts. Numbers are equal when they are as float64, like those of
// canonical JSON.
func equalJSON(a, b string) bool {
	if a == b {
		return true
	}
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}

// shown is how many bytes of a value a difference shows, so that both fit into an error that a client passes on; lead is
// how many of them come before the point where the values part.
const (
	shown = 160
	lead  = 60
)

func difference(what, want, got string) string {
	at := 0
	for at < len(want) && at < len(got) && want[at] == got[at] {
		at++
	}
	return fmt.Sprintf("%s: want %s, got %s", what, excerpt(want, at), excerpt(got, at))
}

// excerpt quotes s, or the part of it around at when it is long.
func excerpt(s string, at int) string {
	if len(s) <= shown {
		return fmt.Sprintf("%q", s)
	}
	from := max(0, min(at, len(s))-lead)
	to := min(len(s), from+shown)
	for from > 0 && !utf8.RuneStart(s[from]) {
		from--
	}
	for to < len(s) && !utf8.RuneStart(s[to]) {
		to++
	}
	return fmt.Sprintf("…%q… (from byte %d of %d)", s[from:to], from, len(s))
}

func show(m Message) string {
	out := fmt.Sprintf("%s %s", m.Role, excerpt(m.Text, 0))
	for _, c := range m.Calls {
		out += fmt.Sprintf(" %s(%s)", c.Name, excerpt(c.Arguments, 0))
	}
	return out
}
