package contracts

import (
	"bytes"
	"strings"
	"testing"

	"agentd/internal/contractlint"
	"agentd/internal/schema"
)

// What the registry has was written by whoever may publish contracts, and the names of runs by whoever starts them.
func TestWrite_ShowsAllThatOthersWrote(t *testing.T) {
	t.Parallel()
	const evil, seen = "pay\x1b[2J\u202e", `pay\u001b[2J\u202e`
	for name, write := range map[string]func(*bytes.Buffer) error{
		"list": func(b *bytes.Buffer) error {
			return writeContracts(b, []contractRow{{Type: evil, Versions: []string{evil}, Domain: evil, URI: evil}}, 0)
		},
		"remove": func(b *bytes.Buffer) error {
			return removal{Type: "pay", Version: "1.0.0", Calls: []openCall{{Agent: evil, Run: evil, Call: evil}}}.write(b)
		},
		"lint": func(b *bytes.Buffer) error {
			return writeLinted(b, []linted{{evil, []schema.Finding{{Severity: schema.Error, Path: evil, Message: evil}}}}, false)
		},
		"diff": func(b *bytes.Buffer) error {
			return writeChanges(b, []contractlint.Change{{Severity: schema.Breaking, Path: evil, Message: evil}})
		},
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Error(name, err)
		}
		if text := b.String(); !strings.Contains(text, seen) || strings.ContainsAny(text, "\x1b\u202e") {
			t.Errorf("%s writes %q", name, text)
		}
	}
}

// A list of contracts is as wide as its terminal; elsewhere it is whole.
func TestWriteContracts_FitsATerminal(t *testing.T) {
	t.Parallel()
	rows := []contractRow{
		{Type: "northern-region.refunds.of-orders.approve", Versions: []string{"1.0.0", "1.1.0", "1.2.0", "2.0.0"}, Domain: "northern-region", URI: "#/northern-region/refunds/approve"},
		{Type: "flights.search", Versions: []string{"1.0.0"}, Domain: "local", URI: "#/flights/search"},
	}
	for columns, want := range map[int]string{
		80: "TYPE                      VERSIONS             DOMAIN           URI\n" +
			"northern-re…ders.approve  1.0.0 1.1.0 1.2.0 …  northern-region  #/northern-regi…\n" +
			"flights.search            1.0.0                local            #/flights/search\n",
		0: "TYPE                                       VERSIONS                 DOMAIN           URI\n" +
			"northern-region.refunds.of-orders.approve  1.0.0 1.1.0 1.2.0 2.0.0  northern-region  #/northern-region/refunds/approve\n" +
			"flights.search                             1.0.0                    local            #/flights/search\n",
	} {
		var b bytes.Buffer
		if err := writeContracts(&b, rows, columns); err != nil || b.String() != want {
			t.Errorf("in %d columns, %v:\n%s\nwant\n%s", columns, err, b.String(), want)
		}
	}
}
