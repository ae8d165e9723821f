package follow

import (
	"bytes"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

func TestAnswerer_AsksAgainAfterAnEmptyLine(t *testing.T) {
	var err bytes.Buffer
	d := &answerer{a: &cli.App{Streams: cli.Streams{Err: &err}}, lines: cli.ReadLines(strings.NewReader("  \n yes \n"))}
	if answer, ok := d.prompt(t.Context(), ""); !ok || answer != "yes" {
		t.Errorf("answer %q, %t", answer, ok)
	}
	if want := "> (a text, please; Ctrl-C leaves it to others) > "; err.String() != want {
		t.Errorf("printed %q, want %q", err.String(), want)
	}
}
