package screen_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/desk/screen"
	"agentd/internal/requests"
	"agentd/sdk"
)

var now = time.UnixMilli(1_790_000_000_000)

func item(id string, kind requests.Kind) requests.Item {
	return requests.Item{
		ID: id, Short: id, Kind: kind, Agent: "payer", Run: "run " + id, Tool: "pay", Risk: "high",
		Asked: now.Add(-time.Minute).UnixMilli(), Expires: now.Add(time.Hour).UnixMilli(), Summary: "sum of " + id,
	}
}

// show puts items on a screen with their details, as a terminal would.
func show(items ...requests.Item) *screen.Screen {
	s := screen.New("jane")
	carry(s, s.Items(items))
	return s
}

// carry carries a load out.
func carry(s *screen.Screen, a screen.Action) {
	if a.Verb == screen.Load {
		d := &requests.Detail{Item: a.Item, Suggestions: []string{"Yes", "No"}}
		if a.Item.Kind == requests.KindPermission {
			d.Request = &sdk.PermissionRequest{
				Tool: "pay", Args: json.RawMessage(`{}`), Scopes: []sdk.GrantScope{sdk.ScopeCall, sdk.ScopeTool},
			}
		}
		s.Detail(d, []string{"tool pay", "arguments of " + a.Item.ID, "terms"}, 2)
	}
	s.Render(100, 30, now)
}

// press presses keys and returns the last action.
func press(s *screen.Screen, keys ...screen.Key) screen.Action {
	var last screen.Action
	for _, k := range keys {
		last = s.Press(k)
		carry(s, last)
	}
	return last
}

func typed(text string) []screen.Key { return screen.Keys([]byte(text)) }

func TestPress_ApprovesWhatIsSelectedOnceConfirmed(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]screen.Action{
		"ay": {Verb: screen.Approve}, "at": {Verb: screen.Approve, Scope: sdk.ScopeTool}, "an": {}, "ap": {}, "a\r": {}, "a\x1b": {},
		"dtoo much\r": {Verb: screen.Deny, Text: "too much"}, "d\r": {}, "d  \r": {}, "dx\x1b": {},
		"dtypo\x7f\x7fe\r": {Verb: screen.Deny, Text: "tye"}, "rwhy?\r": {Verb: screen.Ask, Text: "why?"}, "e": {Verb: screen.Edit}, "y": {},
	} {
		s := show(item("one", requests.KindPermission), item("two", requests.KindPermission))
		press(s, screen.KeyDown)
		got := press(s, typed(keys)...)
		if want.Verb != screen.None {
			want.Item = item("two", requests.KindPermission)
		}
		got.Item.Sent = nil
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(requests.Item{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", keys, diff)
		}
	}
}

func TestPress_RepliesToQuestions(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]string{"r2\r": "No", "r7\r": "7", "rgrün\r": "grün"} {
		s := show(item("one", requests.KindQuestion))
		if got := press(s, typed(keys)...); got.Verb != screen.Answer || got.Text != want {
			t.Errorf("%q is %s %q; want the answer %q", keys, got.Verb, got.Text, want)
		}
	}
	s := show(item("one", requests.KindQuestion))
	if got := press(s, "a", "y"); got.Verb != screen.None {
		t.Errorf("a question was approved: %+v", got)
	}
}

// An item that goes while somebody decides takes the decision with it: keys never hit another one.
func TestItems_ADecisionNeverMovesToAnotherItem(t *testing.T) {
	t.Parallel()
	one, two := item("one", requests.KindPermission), item("two", requests.KindPermission)
	s := show(one, two)
	press(s, "a")
	carry(s, s.Items([]requests.Item{two}))
	if got := press(s, "y"); got.Verb != screen.None {
		t.Errorf("the key for one hit %s", got.Item.ID)
	}
	s = show(one, two)
	press(s, screen.KeyDown)
	carry(s, s.Items([]requests.Item{two}))
	if got := press(s, "a", "y"); got.Item.ID != "two" {
		t.Errorf("the selected item is %q; want two", got.Item.ID)
	}
}

func TestPress_NobodyApprovesWhatWasNotShown(t *testing.T) {
	t.Parallel()
	s := screen.New("jane")
	load := s.Items([]requests.Item{item("one", requests.KindPermission)})
	if got := press(s, "a", "y"); got.Verb != screen.None {
		t.Error("approved before the detail came")
	}
	long := strings.Split(strings.Repeat("an argument\n", 200), "\n")
	s.Detail(&requests.Detail{Item: load.Item, Request: &sdk.PermissionRequest{}}, long, len(long))
	s.Render(100, 30, now)
	if got := press(s, "a", "y"); got.Verb != screen.None {
		t.Error("approved without all of the arguments")
	}
	for range 30 {
		press(s, screen.KeyPageDown)
	}
	if got := press(s, "a", "y"); got.Verb != screen.Approve {
		t.Errorf("after all was shown the action is %+v", got)
	}
}

func TestPress_OneAnswerAtATime(t *testing.T) {
	t.Parallel()
	s := show(item("one", requests.KindPermission))
	press(s, "a", "y")
	if got := press(s, "a", "y"); got.Verb != screen.None {
		t.Errorf("a second answer was sent: %+v", got)
	}
	s.Done("one", "one pay: refused: you may not decide")
	if all := strings.Join(s.Render(100, 30, now), "\n"); !strings.Contains(all, "you may not decide") {
		t.Errorf("what became of it is not shown:\n%s", all)
	}
	if got := press(s, "a", "y"); got.Verb != screen.Approve {
		t.Errorf("after a refusal the action is %+v", got)
	}
}

func TestRender_FitsAndEscapes(t *testing.T) {
	t.Parallel()
	evil := item("one", requests.KindPermission)
	evil.Summary, evil.Run, evil.Agent, evil.Tool, evil.Risk = "a\x1b[2J\u202eb", "r\nun", "\u200bx", "t\x07", "\x9b"
	for _, size := range [][2]int{{100, 30}, {40, 8}, {1, 1}, {200, 60}} {
		s := show(evil, item("two", requests.KindQuestion))
		s.Done("one", "bad \x1b]0;title\x07")
		lines := s.Render(size[0], size[1], now)
		if want := max(size[1], 8); len(lines) != want {
			t.Errorf("%v has %d lines; want %d", size, len(lines), want)
		}
		all := strings.Join(lines, "\n")
		for _, bad := range []string{"\x1b[2J", "\u202e", "\x07", "\u200b", "\u009b", "\x1b]"} {
			if strings.Contains(all, bad) {
				t.Errorf("%q reaches the terminal", bad)
			}
		}
	}
	if all := strings.Join(screen.New("jane").Render(80, 20, now), "\n"); !strings.Contains(all, "nothing waits for a person") {
		t.Errorf("an empty inbox shows\n%s", all)
	}
}

func TestKeys_DecodesWhatTerminalsSend(t *testing.T) {
	t.Parallel()
	for input, want := range map[string][]screen.Key{
		"\x1b[A\x1bOB": {screen.KeyUp, screen.KeyDown}, "\x1b": {screen.KeyEscape}, "ü\r": {"ü", screen.KeyEnter},
		"\x1b[5~\x1b[6~": {screen.KeyPageUp, screen.KeyPageDown}, "\x1b[1;5C": nil, "\x1b[": nil, "\x03": {screen.KeyInterrupt},
		"\x15\x7f": {screen.KeyClear, screen.KeyBackspace}, "\x00\xff": nil,
	} {
		if diff := cmp.Diff(want, screen.Keys([]byte(input))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", input, diff)
		}
	}
}

func TestRender_NarrowScreensKeepWhatIsAskedAndHowToAnswer(t *testing.T) {
	t.Parallel()
	long := item("c7euxw", requests.KindPermission)
	long.Agent, long.Run, long.Tool = "a rather long name", "a run of a long name", "transfer_money"
	s := show(long)
	all := strings.Join(s.Render(60, 24, now), "\n")
	for _, want := range []string{"transfer_money", "sum of c7euxw", "a approve", "q quit"} {
		if !strings.Contains(all, want) {
			t.Errorf("60 columns do not show %q:\n%s", want, all)
		}
	}
	if all = strings.Join(show(item("one", requests.KindQuestion)).Render(60, 24, now), "\n"); strings.Contains(all, "approve") {
		t.Errorf("a question can be approved:\n%s", all)
	}
}

func TestRender_PlainHasNoColour(t *testing.T) {
	t.Parallel()
	const red = "\x1b[31m"
	s := show(item("one", requests.KindPermission), item("two", requests.KindPermission))
	if all := strings.Join(s.Render(100, 30, now), "\n"); !strings.Contains(all, red) {
		t.Errorf("what is of high risk is not red:\n%q", all)
	}
	s.Plain = true
	if all := strings.Join(s.Render(100, 30, now), "\n"); strings.Contains(all, red) {
		t.Errorf("plain is red:\n%q", all)
	}
}
