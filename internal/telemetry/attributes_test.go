package telemetry

import (
	"strings"
	"testing"
)

// Exporters refuse a whole batch for one text that is no UTF-8, and half a secret may be known by its form no more.
func TestShown_CutsAtWholeCharactersAndShowsNoPartOfASecret(t *testing.T) {
	t.Parallel()
	const most = 32 << 10
	long := strings.Repeat("x", 100_000)
	for name, c := range map[string]struct{ content, end string }{
		"é across the end":                 {strings.Repeat("a", most-1) + "é" + long, "aaa…"},
		"é before the end":                 {strings.Repeat("a", most-2) + "é" + long, "aé…"},
		"as much as is shown":              {strings.Repeat("a", most), "aaa"},
		"a secret across the end":          {strings.Repeat("a", most-24) + `,"password":"hunter2hunter2"` + long, `,"password":"[redacted]"…`},
		"a secret without an end":          {strings.Repeat("a", most-24) + `,"password":"` + long, `,"password":"[redacted]"`},
		"a secret without an end, in JSON": {strings.Repeat("a", most-28) + `,\"password\":\"` + long, `,\"password\":\"[redacted]`},
		"a login across the end":           {strings.Repeat("a", most-24) + " nats://ada:hunter2hunter2@host " + long, " nats://[redacted]@host …"},
	} {
		got := shown(c.content)
		if !strings.HasSuffix(got, c.end) || strings.Contains(got, "hunter2") || len(got) > most+len("…") {
			t.Errorf("%s: %d bytes end with %q, want %q", name, len(got), got[len(got)-40:], c.end)
		}
	}
}
