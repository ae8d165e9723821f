package show

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/audit"
	"agentd/internal/core"
	"agentd/sdk"
)

// One run with a long status does not take the lines of all others apart.
func TestRuns_FitATerminal(t *testing.T) {
	t.Parallel()
	rows := []RunRow{
		{Run: "support-of-order-A-7-8f3k2m9qxw7r4t1z", Agent: "northern-region.refunds-desk", Status: core.StatusWaiting, Waiting: []WaitingCall{{Tool: "ask_question"}}},
		{Run: "two", Status: core.StatusDone, Reason: core.ReasonError, Code: "model_failed"},
	}
	const want = `RUN                 AGENT                STATUS            CHANGED  WAITING FOR
support-…qxw7r4t1z  northern-…unds-desk  waiting           -        ask_question
two                 -                    done (error: mo…  -        -
`
	var b bytes.Buffer
	if err := Runs(&b, rows, 80); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Rows that come one after the other stand as those of a list.
func TestTable_WritesRowsAsTheyCome(t *testing.T) {
	t.Parallel()
	for columns, want := range map[int]string{
		0:  "RUN                AGENT  RESULT\nthe-first-of-many  desk   retried\ntwo                desk   not retried: it is done, and cannot be taken up\n",
		40: "RUN              AGENT  RESULT\nthe-fir…of-many  desk   retried\ntwo              desk   not retried: it…\n",
		20: "RUN     the-fir…-of-many\nAGENT   desk\nRESULT  retried\n\nRUN     two\nAGENT   desk\nRESULT  not retried: it…\n",
	} {
		var table Table
		table.Row("RUN", "AGENT", "RESULT")
		table.Row("the-first-of-many", "desk", "")
		table.Row("two", "desk", "")
		var b bytes.Buffer
		next, err := table.Begin(&b, columns)
		if err != nil {
			t.Fatal(err)
		}
		if heads := strings.Count(b.String(), "\n"); columns != 20 && heads != 1 {
			t.Errorf("before the first row there are %d lines in %d columns", heads, columns)
		}
		for _, last := range []string{"retried", "not retried: it is done, and cannot be taken up"} {
			if err := next(last); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, b.String()); diff != "" {
			t.Errorf("in %d columns (-want +got):\n%s", columns, diff)
		}
	}
}

// Dead letters and logs are within a terminal, too; elsewhere their names are whole.
func TestLists_FitATerminal(t *testing.T) {
	t.Parallel()
	letter := Letter{
		Sequence: 12, Reason: sdk.CodeUnknownRun, Agent: "northern-region_refunds-desk", Run: "support-of-order-A-7-8f3k2m9qxw7r4t1z",
		Type: "agentd.permission.decision", Event: "c2-0-aaaaaaaaaaaaaaaaaaaaaaaaaa", Redrives: 1,
	}
	records := []audit.LogRecord{
		{Run: letter.Run, Event: audit.LogRequested, Tool: "refund", Args: json.RawMessage(`{"order":"A-7","amount":120}`), Rule: "2", Policy: "6623af4368a9e85a"},
		{Run: "two", Event: audit.LogDecided, Tool: "a_tool_that_has_a_long_name", Who: "anna", Decision: sdk.DecisionAllow},
	}
	for name, write := range map[string]func(b *bytes.Buffer, columns int) error{
		"letters": func(b *bytes.Buffer, columns int) error {
			_, err := b.WriteString(LettersTitle(columns) + "\n" + letter.Line(columns) + "\n")
			return err
		},
		"log": func(b *bytes.Buffer, columns int) error { return WriteLog(b, records, columns) },
	} {
		for _, columns := range []int{0, 80, 120} {
			var b bytes.Buffer
			if err := write(&b, columns); err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
			for _, line := range lines {
				if columns > 0 && Width(line) > columns {
					t.Errorf("%s: a line in %d columns has %d:\n%s", name, columns, Width(line), b.String())
				}
			}
			if heads := strings.Contains(lines[0], gap+"EVENT"+gap) || strings.Contains(lines[0], gap+"REASON"+gap); !heads {
				t.Errorf("%s has no heading in %d columns:\n%s", name, columns, b.String())
			}
			if columns == 0 && !strings.Contains(b.String(), letter.Run+gap) {
				t.Errorf("%s: a name is not whole:\n%s", name, b.String())
			}
		}
	}
}
