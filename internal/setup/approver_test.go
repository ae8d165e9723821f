package setup

import (
	"os"
	"path/filepath"
	"testing"

	"agentd/internal/config"
)

func TestApprover_IsWhoNATSKnows(t *testing.T) {
	dir := t.TempDir()
	creds := filepath.Join(dir, "jane.creds")
	const jane = "-----BEGIN NATS USER JWT-----\ne30.eyJuYW1lIjoiamFuZSJ9.c2ln\n------END NATS USER JWT------\n"
	if err := os.WriteFile(creds, []byte(jane), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NATS_URL", "")
	for _, c := range []struct{ name, url, creds, file, flag, want string }{
		{"flag", "nats://joe:x@h:1", creds, "boss", "me", "me"},
		{"configuration", "nats://joe:x@h:1", creds, "boss", "", "boss"},
		{"credentials", "nats://joe:x@h:1", creds, "", "", "jane"},
		{"user", "nats://joe:x@h:1,nats://h:2", "", "", "", "joe"},
		{"nobody", "nats://h:1", "", "", "", ""},
		{"no token", "nats://a.b:x@h:1", "", "", "", ""},
		{"dev", "", "", "", "", SystemUser()},
	} {
		cfg := config.Default()
		cfg.NATS.URL, cfg.NATS.Creds, cfg.Approvals.As = config.URL(c.url), c.creds, c.file
		got, err := FindApprover(cfg, c.flag)
		if err != nil || got.Who != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got.Who, err, c.want)
		}
	}
	if _, err := FindApprover(nil, "two words"); err == nil {
		t.Error("two words are a principal")
	}
	if SystemUser() == "" && os.Getenv("USER") != "" {
		t.Error("the operating system's user is nobody")
	}
}
