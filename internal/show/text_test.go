package show

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/requests"
	"agentd/sdk"
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

RUN          \u202eg…u001b[2J
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

// Names that are alike in front are told apart, and are whole where they can be.
func TestRuns_KeepNames(t *testing.T) {
	t.Parallel()
	const (
		first  = "refunds-of-the-shop-in-the-northern-region-2026-11-29-batch-17-01HZX3T7Q4"
		second = "refunds-of-the-shop-in-the-northern-region-2026-11-29-batch-17-01HZX3T7Q5"
	)
	for columns, want := range map[int]string{
		0: `RUN                                                                        AGENT  STATUS   CHANGED  WAITING FOR
` + first + `  desk   running  -        -
` + second + `  desk   running  -        -
`,
		80: `RUN                                         AGENT  STATUS   CHANGED  WAITING FOR
refunds-of-the-shop-…9-batch-17-01HZX3T7Q4  desk   running  -        -
refunds-of-the-shop-…9-batch-17-01HZX3T7Q5  desk   running  -        -
`,
		50: `RUN           AGENT  STATUS   CHANGED  WAITING FOR
refun…X3T7Q4  desk   running  -        -
refun…X3T7Q5  desk   running  -        -
`,
		48: `RUN          refunds-of-the-sh…tch-17-01HZX3T7Q4
AGENT        desk
STATUS       running
CHANGED      -
WAITING FOR  -

RUN          refunds-of-the-sh…tch-17-01HZX3T7Q5
AGENT        desk
STATUS       running
CHANGED      -
WAITING FOR  -
`,
	} {
		var b bytes.Buffer
		rows := []RunRow{{Run: first, Agent: "desk", Status: core.StatusRunning}, {Run: second, Agent: "desk", Status: core.StatusRunning}}
		if err := Runs(&b, rows, columns); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", columns, diff)
		}
	}
}

func TestMiddle_KeepsBothEnds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1234567890": "1234567890", "12345678901": "1234…78901", "世界世界世界": "世界…世界", "": "",
	} {
		if got := Middle(text, 10); got != want || Width(got) > 10 {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestNameColumn_CutsOnlyOnATerminal(t *testing.T) {
	t.Parallel()
	const name = "support-8f3k2m9qxw7r4t1z"
	for columns, want := range map[int]string{0: name, 80: "suppo…7r4t1z"} {
		if got := NameColumn(name, 12, columns); got != want {
			t.Errorf("with %d columns %q, want %q", columns, got, want)
		}
	}
	if got := NameColumn("one\u202e", 12, 80); got != `one\u202e   ` {
		t.Errorf("a short name is %q", got)
	}
}

func TestRequests_KeepNames(t *testing.T) {
	t.Parallel()
	item := requests.Item{
		ID: "a", Short: "rc7uip", Domain: sdk.HumanDomain, Agent: "northern-region.refunds-desk", Run: "support-of-order-A-7-8f3k2m9qxw7r4t1z",
		Type: sdk.TypeQuestion, Kind: requests.KindQuestion, Summary: "Which account?", Asked: time.Now().UnixMilli(),
	}
	for columns, run := range map[int]string{0: item.Run, 200: item.Run, 118: "support-of-or…3k2m9qxw7r4t1z"} {
		var b bytes.Buffer
		if err := Requests(&b, []requests.Item{item}, columns); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if columns > 0 && Width(line) > columns+1 {
				t.Errorf("with %d columns a line has %d", columns, Width(line)-1)
			}
		}
		if !strings.Contains(b.String(), run) {
			t.Errorf("with %d columns:\n%s", columns, b.String())
		}
	}
}
