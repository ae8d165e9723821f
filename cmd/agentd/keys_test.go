package main

import (
	"encoding/base64"
	"path/filepath"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
)

// newKey is what keys new prints.
func newKey(t *testing.T) string {
	t.Helper()
	var out, errors output
	if code := execute(t.Context(), []string{"keys", "new"}, cli.Streams{Out: &out, Err: &errors}); code != cli.ExitOK {
		t.Fatalf("keys new exits with %d: %s", code, errors.String())
	}
	key := strings.TrimSuffix(out.String(), "\n")
	if b, err := base64.StdEncoding.DecodeString(key); err != nil || len(b) != 32 {
		t.Fatalf("%q are %d bytes, %v", key, len(b), err)
	}
	return key
}

const sealedChat = `encryption:
  current: k1
  keys:
    k1: {env: TEST_KEY_K1}
    k2: {file: k2.key}
` + chat

func TestKeys_CommandsReadSealedRuns(t *testing.T) {
	config, script := chatProject(t)
	write(t, config, sealedChat)
	write(t, filepath.Join(filepath.Dir(config), "k2.key"), newKey(t)+"\n")
	first := newKey(t)
	t.Setenv("TEST_KEY_K1", first)
	s := startDev(t, config, script)
	out, _ := s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord)
	if out != "How can I help?\n" {
		t.Errorf("the result is %q", out)
	}
	out, _ = s.expect(cli.ExitOK, "runs", "list")
	contains(t, out, "one", "done (stopped: conversation)")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one")
	contains(t, out, "How can I help?", "done (stopped: conversation)")
	_, progress := s.expect(cli.ExitOK, "runs", "follow", "one")
	contains(t, progress, "How can I help?")
	out, _ = s.expect(cli.ExitOK, "doctor")
	contains(t, out, `store of runs: jetstream, sealed with the key "k1"`, "nothing found")
	out, _ = s.expect(cli.ExitOK, "check")
	contains(t, out, "nothing wrong", `new entries are sealed with the key "k1"`, `key "k2" is there (file `)

	// Without the key, commands say what is missing, and a worker does not start.
	t.Setenv("TEST_KEY_K1", "")
	_, problem := s.expect(cli.ExitUsage, "runs", "show", "one")
	contains(t, problem, `agentd.yaml:4:5: key "k1": environment variable TEST_KEY_K1: it is not there`)
	out, _ = s.expect(cli.ExitFindings, "doctor")
	contains(t, out, "the store cannot be opened without its keys", "TEST_KEY_K1")
	out, _ = s.expect(cli.ExitOK, "check")
	contains(t, out, `key "k1" is not there, where this command runs (environment variable TEST_KEY_K1)`)

	// With another one they name it, and no run is taken for garbage.
	t.Setenv("TEST_KEY_K1", newKey(t))
	_, problem = s.expect(cli.ExitUsage, "runs", "show", "one")
	contains(t, problem, `sealed with another key than the one that is configured here as "k1"`)
	out, _ = s.expect(cli.ExitOK, "runs", "list")
	contains(t, out, "unreadable")
	out, _ = s.expect(cli.ExitFindings, "doctor")
	contains(t, out, `sealed with another key`)

	// A configuration that has forgotten them does not take plaintext for it.
	t.Setenv("TEST_KEY_K1", first)
	plain := filepath.Join(t.TempDir(), "agentd.yaml")
	write(t, plain, chat)
	s.config = plain
	_, problem = s.expect(cli.ExitUsage, "runs", "show", "one")
	contains(t, problem, `sealed with the key "k1", which is not configured here`)
}

func TestDoctor_WarnsOfPlaintext(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord)
	t.Setenv("TEST_KEY_K1", newKey(t))
	t.Setenv("TEST_KEY_K2", newKey(t))
	s.config = filepath.Join(t.TempDir(), "agentd.yaml")
	strict := strings.Replace(sealedChat, "{file: k2.key}", "{env: TEST_KEY_K2}", 1)
	write(t, s.config, strict)
	out, _ := s.expect(cli.ExitFindings, "doctor")
	contains(t, out, "is not sealed, although encryption is on")
	write(t, s.config, strings.Replace(strict, "  keys:", "  allow_plaintext: true\n  keys:", 1))
	out, _ = s.expect(cli.ExitOK, "doctor")
	contains(t, out, "warning    encryption.allow_plaintext is on")
	out, _ = s.expect(cli.ExitOK, "runs", "show", "one")
	contains(t, out, "How can I help?")
}
