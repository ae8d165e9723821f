package main

import (
	"path/filepath"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/embedded"
)

// On a new server a worker is not what is missing first.
func TestUnprovisioned_CommandsSayWhatToType(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: true, Port: -1, PortOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	for _, name := range []string{"NATS_URL", "REDIS_URL", "AGENTD_DATA", "AGENTD_STORE"} {
		t.Setenv(name, "")
	}
	s := &system{t: t, config: filepath.Join(example, "agentd.yaml"), data: t.TempDir()}
	for _, command := range [][]string{
		{"approvals", "list"}, {"events", "tail"}, {"runs", "list"}, {"dlq", "list"}, {"approvals", "show", "c1"},
	} {
		_, told := s.expect(cli.ExitUsage, append(command, "--nats", server.URL())...)
		contains(t, told, "run: "+s.line("--nats", server.URL(), "provision")+"\n")
	}
}
