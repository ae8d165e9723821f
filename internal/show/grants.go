package show

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"agentd/internal/requests"
	"agentd/sdk"
)

// Grants writes a line for each grant that is wider than a run.
func Grants(w io.Writer, grants []sdk.KeptGrant, columns int) error {
	if len(grants) == 0 {
		_, err := fmt.Fprintln(w, "nothing is allowed beyond single runs")
		return err
	}
	var t Table
	t.Row("ID", "AGE", "PRINCIPAL", "AGENT", "TOOL", "ALLOWED BY", "CALLS", "EXPIRES IN")
	for i := range grants {
		g := &grants[i]
		calls := strconv.Itoa(g.Used)
		if g.Uses > 0 {
			calls += " of " + strconv.Itoa(g.Uses)
		}
		expires := Until(g.Expires)
		if g.Spent {
			expires = "over"
		}
		t.Row(requests.ShortID(g.ID), since(g.At), Name(g.Principal), Name(g.Agent), Line(g.Tool, 28),
			Line(strings.Join(g.By, ", "), 24), calls, expires)
	}
	return t.Write(w, "", columns)
}
