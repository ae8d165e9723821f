package show

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"agentd/internal/audit"
	"agentd/internal/requests"
)

// Times are by the clock of whoever reads them, who is told so: the next one reads them elsewhere.
func TestTimes_HaveTheirZone(t *testing.T) { //nolint:paralleltest // the zone is the program's
	local := time.Local
	time.Local = time.FixedZone("CET", 3600)
	t.Cleanup(func() { time.Local = local })
	at := time.Date(2026, 3, 1, 22, 30, 0, 0, time.UTC).UnixMilli()
	later := at + time.Hour.Milliseconds()
	var one, days, log, asked bytes.Buffer
	err := errors.Join(
		RunDetails{Run: "one", Updated: at, Journal: []JournalRow{{At: at}, {At: at + 250}}}.Write(&one, 0, false, commandLine),
		RunDetails{Run: "one", Journal: []JournalRow{{At: at}, {At: later}}}.Write(&days, 0, false, commandLine),
		WriteLog(&log, []audit.LogRecord{{Run: "one", At: at, Event: audit.LogViewed, Who: "ann"}}, 0),
	)
	r := Request{}
	r.Sent = []requests.Sent{{At: later, Who: "ann"}}
	r.writeDecisions(&asked)
	if err != nil {
		t.Fatal(err)
	}
	for text, wanted := range map[string][]string{
		one.String():   {"2026-03-01 23:30:00 CET (", "journal (2), times in CET\n", "  0  23:30:00.000", "  0  23:30:00.250"},
		days.String():  {"journal (2), times in CET\n", "  0  2026-03-01 23:30:00.000", "  0  2026-03-02 00:30:00.000"},
		log.String():   {"2026-03-01 23:30:00 CET  viewed"},
		asked.String(): {"  2026-03-02 00:30:00 CET  ann  answered"},
	} {
		for _, want := range wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in\n%s", want, text)
			}
		}
	}
}
