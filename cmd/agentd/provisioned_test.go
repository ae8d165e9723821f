package main

import (
	"regexp"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

// Whatever a command needs of a server that was never provisioned, it says how to provision it.
func TestCommands_SayThatTheServerIsNotProvisioned(t *testing.T) {
	c := newClinic(t, false)
	streams := c.js.StreamNames(t.Context())
	for name := range streams.Name() {
		if err := c.js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := streams.Err(); err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`run: agentd (\S+ )*provision[:\n]`)
	for _, command := range [][]string{
		{"runs", "list"},
		{"runs", "show", "trip"},
		{"runs", "cancel", "trip"},
		{"runs", "send", "trip", "Hello?"},
		{"run", "clerk", "-m", "Hello", "--detach"},
		{"dlq", "list"},
		{"contracts", "list"},
	} {
		if code, out := c.agentd(command...); code == cli.ExitOK || !told.MatchString(out) {
			t.Errorf("agentd %s exits with %d and says %s", strings.Join(command, " "), code, out)
		}
	}
}
