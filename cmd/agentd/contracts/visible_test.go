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
			return writeContracts(b, []contractRow{{Type: evil, Versions: []string{evil}, Domain: evil, URI: evil}})
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
