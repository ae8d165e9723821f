package main

import (
	"path/filepath"
	"strconv"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/internal/broker/embedded"
	"agentd/test/ports"
)

// Whoever keeps the desk running need not start it again when the server comes later, or is restarted.
func TestApprovals_ServeWaitsForTheServer(t *testing.T) {
	config, _ := chatProject(t)
	for _, name := range []string{"NATS_URL", "REDIS_URL", "AGENTD_DATA", "AGENTD_STORE"} {
		t.Setenv(name, "")
	}
	t.Setenv("OPENAI_API_KEY", "unused")
	s := &system{t: t, config: config, data: t.TempDir()}
	folder, port := t.TempDir(), ports.Free(t)
	start := func() *embedded.Server {
		t.Helper()
		server, err := embedded.Start(embedded.Options{Dir: folder, Listen: true, Port: port, PortOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	flag := []string{"--nats", "nats://127.0.0.1:" + strconv.Itoa(port)}
	server := start()
	s.expect(cli.ExitOK, append([]string{"provision"}, flag...)...)
	stop := func() {
		t.Helper()
		if err := server.Close(); err != nil {
			t.Fatal(err)
		}
	}
	stop()

	var serving, out, log output
	s.background(&output{}, &serving, append([]string{"serve"}, flag...)...)
	s.background(&out, &log, append([]string{"approvals", "serve", "--http", "127.0.0.1:0"}, flag...)...)
	s.until(&log, "NATS cannot be reached yet; waiting for it")
	server = start()
	s.until(&out, "\nready")
	stop()
	s.until(&log, "connection to NATS is lost")
	server = start()
	t.Cleanup(stop)
	s.until(&log, "connected to NATS again")
	listed := s.eventually(cli.ExitOK, "", append([]string{"approvals", "list"}, flag...)...)
	contains(t, listed, "nothing waits for a person")
}

// A server without streams does not get them by waiting.
func TestApprovals_ServeSaysThatTheServerIsNotProvisioned(t *testing.T) {
	server, err := embedded.Start(embedded.Options{Dir: t.TempDir(), Listen: true, Port: -1, PortOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	s := &system{t: t, config: filepath.Join(example, "agentd.yaml"), data: t.TempDir()}
	_, told := s.expect(cli.ExitUsage, "approvals", "serve", "--http", "127.0.0.1:0", "--nats", server.URL())
	contains(t, told, "run: "+s.line("--nats", server.URL(), "provision")+"\n")
}

// Whoever stops what serves while it waits for the server has stopped it, and it has not failed.
func TestApprovalsServe_StoppedWhileItWaitsForTheServer(t *testing.T) {
	config := filepath.Join(t.TempDir(), "agentd.yaml")
	write(t, config, "log: {level: info}\n")
	s := &system{t: t, config: config, data: t.TempDir()}
	var log output
	stop := s.background(&output{}, &log, "approvals", "serve", "--http", "127.0.0.1:0", "--nats", "nats://127.0.0.1:1")
	s.until(&log, "NATS cannot be reached yet")
	stop()
}
