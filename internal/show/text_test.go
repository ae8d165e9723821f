package show

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
)

func TestWrap_BreaksBetweenWordsAndLosesNothing(t *testing.T) {
	for text, want := range map[string][]string{
		"":                      nil,
		"one two three":         {"one two", "three"},
		"one\n\ntwo three four": {"one", "", "two", "three", "four"},
		"äöüäöüäöüäöü":          {"äöüäöüäö", "üäöü"},
	} {
		if diff := cmp.Diff(want, Wrap(text, 8)); diff != "" {
			t.Errorf("%q: -want +got:\n%s", text, diff)
		}
	}
	if got := Wrap("one two three", 0); len(got) != 1 {
		t.Errorf("without a terminal: %q", got)
	}
}

func TestLine_IsOneLineOfSoManyColumnsInWhichAllCanBeSeen(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"plain":            "plain",
		"two\nline \r\n x": "two line x",
		"pay\u202eEMCA":    `pay\u202e…`,
		"\x1b[2Jgone":      `\u001b[2J…`,
		"1234567890":       "1234567890",
		"12345678901":      "123456789…",
		"世界世界世":            "世界世界世",
		"世界世界世界":           "世界世界…",
	} {
		if got := Line(text, 10); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// What the names of runs and agents look like is up to strangers.
func TestRuns_AreAlignedAndEscaped(t *testing.T) {
	t.Parallel()
	rows := []RunRow{
		{Run: "trip-7", Agent: "travel.desk", Status: core.StatusWaiting, Waiting: []WaitingCall{{Tool: "book"}, {Tool: "ask_question"}}},
		{Run: "\u202egnp.exe\x1b[2J", Agent: "clerk", Status: core.StatusDone, Reason: core.ReasonCompleted},
		{Run: "旅行", Agent: "clerk", Status: core.StatusRunning},
	}
	wide := `RUN                     AGENT        STATUS            CHANGED  WAITING FOR
trip-7                  travel.desk  waiting           -        book, ask_question
\u202egnp.exe\u001b[2J  clerk        done (completed)  -        -
旅行                    clerk        running           -        -
`
	cut := `RUN                     AGENT        STATUS            CHANGED  WAITING FOR
trip-7                  travel.desk  waiting           -        book, ask_quest…
\u202egnp.exe\u001b[2J  clerk        done (completed)  -        -
旅行                    clerk        running           -        -
`
	narrow := `RUN          trip-7
AGENT        travel.desk
STATUS       waiting
CHANGED      -
WAITING FOR  book, ask_quest…

RUN          \u202egnp.exe\u…
AGENT        clerk
STATUS       done (completed)
CHANGED      -
WAITING FOR  -

RUN          旅行
AGENT        clerk
STATUS       running
CHANGED      -
WAITING FOR  -
`
	for columns, want := range map[int]string{0: wide, 160: wide, 80: cut, 29: narrow} {
		var b bytes.Buffer
		if err := Runs(&b, rows, columns); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", columns, diff)
		}
	}
}

func TestDuration_HasTwoUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second:                     "0s",
		59*time.Second + 900*1e6:         "59s",
		3 * time.Minute:                  "3m",
		3*time.Minute + 5*time.Second:    "3m5s",
		24*time.Hour - 4*time.Second:     "23h59m",
		24 * time.Hour:                   "24h",
		49*time.Hour + 59*time.Minute:    "2d1h",
		30*24*time.Hour + 59*time.Minute: "30d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%s is %s, want %s", d, got, want)
		}
	}
	// What has just begun has all its time.
	for d, want := range map[time.Duration]string{24*time.Hour - time.Millisecond: "24h", time.Millisecond: "1s", 0: "0s", -time.Hour: "0s"} {
		if got := left(d); got != want {
			t.Errorf("of %s are left %s, want %s", d, got, want)
		}
	}
}
