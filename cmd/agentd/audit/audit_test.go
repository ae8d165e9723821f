package audit

import (
	"bytes"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/audit"
	"agentd/internal/audit/live"
)

// A violation quotes names that strangers chose, and people read JSON on terminals too.
func TestViolations_ShowAllThatOthersWrote(t *testing.T) {
	t.Parallel()
	for _, output := range []string{cli.OutputText, cli.OutputJSON} {
		var b bytes.Buffer
		list := violationList{a: &cli.App{Streams: cli.Streams{Out: &b}, Output: output}}
		if err := list.add(live.Violation{Violation: audit.Violation{Detail: "\u009b2J\u202e"}, Name: "\u009b2J\u202e"}); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); strings.Count(text, `\u009b2J\u202e`) != 2 || strings.ContainsAny(text, "\u009b\u202e") {
			t.Errorf("%s: %q", output, text)
		}
	}
}
