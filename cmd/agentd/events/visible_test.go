package events

import (
	"bytes"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// Whoever may publish writes subjects, headers and bodies, and people read JSON on terminals too.
func TestTail_ShowsAllThatOthersWrote(t *testing.T) {
	t.Parallel()
	const evil, seen = "\u009b2J\u202e", `\u009b2J\u202e`
	for _, output := range []string{cli.OutputText, cli.OutputJSON} {
		var b bytes.Buffer
		a := &cli.App{Streams: cli.Streams{Out: &b}, Output: output}
		tail{a: a}.print("agentd."+evil, map[string][]string{evil: {evil}}, []byte(`"`+evil+`"`))
		if text := b.String(); !strings.Contains(text, seen) || strings.ContainsAny(text, "\u009b\u202e") {
			t.Errorf("%s: %q", output, text)
		}
	}
}
