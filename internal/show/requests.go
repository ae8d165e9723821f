package show

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"agentd/internal/requests"
	"agentd/sdk"
)

// summaryWidth is what the list shows of arguments and texts without a terminal, in columns.
const summaryWidth = 48

// Requests writes a line for each item, with its domain if that is not the usual one for all. On a terminal of that many
// columns, arguments and texts get what the others leave.
func Requests(w io.Writer, items []requests.Item, columns int) error {
	if len(items) == 0 {
		_, err := fmt.Fprintln(w, "nothing waits for a person")
		return err
	}
	several := slices.ContainsFunc(items, func(i requests.Item) bool { return i.Domain != sdk.HumanDomain })
	most := LineMax
	if columns == 0 {
		most = summaryWidth
	}
	var t Table
	lost := 0
	row := func(domain string, cells ...string) {
		if several {
			cells = slices.Insert(cells, 3, domain)
		}
		t.Row(cells...)
	}
	row("DOMAIN", "ID", "AGE", "EXPIRES IN", "AGENT", "RUN", "ASKS", "RISK", "ARGUMENTS OR TEXT")
	for _, i := range items {
		due := Until(i.Expires)
		if i.Lost {
			due, lost = "lost", lost+1
		}
		row(Name(i.Domain), i.Short, since(i.Asked), due, Name(i.Agent), Name(i.Run), What(&i),
			cmp.Or(Line(i.Risk, 12), "-"), Line(i.Summary, most))
	}
	if err := t.Write(w, "", columns); err != nil || lost == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "of %s the run's journal is lost: %s\n", Count(lost, "request"), nobodyWaits)
	return err
}

// nobodyWaits is what to do about a run whose journal is lost.
const nobodyWaits = "nobody waits for an answer; to end such runs: agentd reconcile"

// What is asked, in a word.
func What(i *requests.Item) string {
	switch {
	case i.Type == sdk.TypePlanReview:
		return "approval of a plan"
	case i.Kind == requests.KindPermission:
		return Line(i.Tool, 28)
	case i.Kind == requests.KindTask:
		return Line(i.Type, 28)
	case len(i.Sent) > 0:
		return "(" + string(i.Kind) + ", again)"
	}
	return "(" + string(i.Kind) + ")"
}
