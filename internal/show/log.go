package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"agentd/internal/audit"
)

// WriteLog writes a line for each record, with its run if there are several, for a terminal of that many columns.
func WriteLog(w io.Writer, records []audit.LogRecord, columns int) error {
	if len(records) == 0 {
		_, err := fmt.Fprintln(w, "nobody was asked for permission")
		return err
	}
	several := slices.ContainsFunc(records, func(r audit.LogRecord) bool { return r.Run != records[0].Run })
	var t Table
	row := func(run string, cells ...string) {
		if several {
			cells = slices.Insert(cells, 1, run)
		}
		t.Row(cells...)
	}
	row("RUN", "TIME", "EVENT", "TOOL", "WHAT")
	for _, r := range records {
		row(Name(r.Run), clock(r.At), string(r.Event), Line(cmp.Or(r.Tool, r.Call), 28), logText(&r))
	}
	return t.Write(w, "", columns)
}

// logText is what a person wants to know of the record.
func logText(r *audit.LogRecord) string {
	who := cmp.Or(r.Who, "somebody anonymous")
	because := ""
	if r.Reason != "" {
		because = ": " + r.Reason
	}
	text := ""
	switch r.Event {
	case audit.LogRequested:
		text = string(r.Args) + because + " (rule " + r.Rule + ", policy " + Line(r.Policy, 12) + ")"
	case audit.LogDecided:
		text = who + ": " + string(r.Decision) + " " + string(r.Scope) + because
		if r.Source == "" && r.Who == "" {
			text = string(r.Decision) + because // nobody did
		}
	case audit.LogRefused:
		if r.Decision == "" {
			r.Decision = "an answer"
		}
		text = who + ": " + string(r.Decision) + ", which does not count" + because
	case audit.LogViewed:
		text = who
	case audit.LogRetried:
		text = who + ": the run goes on from where it ended"
	case audit.LogUndoing:
		text = who + ": what the run did is undone"
	case audit.LogGranted:
		text = string(r.Decision) + ", as decided on " + r.Request
	case audit.LogEdited:
		text = string(r.Args)
	case audit.LogEscalated:
		text = r.Reason
	case audit.LogMade:
		text = cmp.Or(r.Schema, r.Call)
	case audit.LogCalled:
		text = string(r.Args)
	case audit.LogReturned:
		text = string(r.Kind)
		if r.Error {
			text += ", an error"
		}
	}
	return Visible(text)
}
