package show

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"agentd/internal/desk"
	"agentd/sdk"
)

// widths of what the list shows of arguments and texts, in characters: without a terminal, and at least.
const (
	summaryWidth = 48
	leastSummary = 16
)

// WriteRequests writes a line for each item, with its domain if that is not the usual one for all. On a terminal of that many columns, arguments and texts get what the others leave.
func WriteRequests(w io.Writer, items []desk.Item, columns int) error {
	if len(items) == 0 {
		_, err := fmt.Fprintln(w, "nothing waits for a person")
		return err
	}
	var table bytes.Buffer
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	several := slices.ContainsFunc(items, func(i desk.Item) bool { return i.Domain != sdk.HumanDomain })
	row := func(domain string, cells ...string) {
		if several {
			cells = slices.Insert(cells, 3, domain)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t")+"\t")
	}
	row("DOMAIN", "ID", "AGE", "EXPIRES IN", "AGENT", "RUN", "ASKS", "RISK")
	for _, i := range items {
		row(OneLine(i.Domain, 24), i.Short, age(i.Asked), left(i.Expires),
			OneLine(i.Agent, 24), OneLine(i.Run, 24), What(&i), cmp.Or(OneLine(i.Risk, 12), "-"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSuffix(table.String(), "\n"), "\n")
	room := summaryWidth
	if columns > 0 {
		room = max(columns-len([]rune(lines[0])), leastSummary)
	}
	for n, line := range lines {
		summary := "ARGUMENTS OR TEXT"
		if n > 0 {
			summary = items[n-1].Summary
		}
		if _, err := fmt.Fprintln(w, line+OneLine(summary, room)); err != nil {
			return err
		}
	}
	return nil
}

// What is asked, in a word.
func What(i *desk.Item) string {
	switch {
	case i.Kind == desk.KindPermission:
		return OneLine(i.Tool, 28)
	case i.Kind == desk.KindTask:
		return OneLine(i.Type, 28)
	case len(i.Sent) > 0:
		return "(" + string(i.Kind) + ", again)"
	}
	return "(" + string(i.Kind) + ")"
}
