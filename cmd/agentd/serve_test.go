package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/state/redistest"
)

func TestServe_RunsAgentsOnRedis(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script, "--server-only")
	url := redistest.Start(t)
	var out, log output
	s.background(&out, &log, "serve", "--redis", url, "--provision")
	s.until(&log, "msg=serving")
	result, _ := s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord, "--redis", url)
	if result != "How can I help?\n" {
		t.Errorf("the result is %q", result)
	}
	listed, _ := s.expect(cli.ExitOK, "runs", "list", "--redis", url)
	contains(t, listed, "one", "done (stopped: conversation)")
	listed, _ = s.expect(cli.ExitOK, "runs", "list") // nothing of it is in JetStream
	contains(t, listed, "no runs")
	found, _ := s.expect(cli.ExitOK, "doctor", "--redis", url)
	contains(t, found, "store of runs: redis", "nothing found")
}

func TestServe_RefusesARedisThatLosesRuns(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script)
	url := redistest.StartServer(t, "--appendonly", "no", "--maxmemory-policy", "noeviction").URL()
	_, problem := s.expect(cli.ExitUsage, "serve", "--redis", url)
	contains(t, problem, "Redis cannot keep runs", "appendonly")
	found, _ := s.expect(cli.ExitFindings, "doctor", "--redis", url)
	contains(t, found, "appendonly is off", "→ set appendonly yes")
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(nats:.*?)```")

// TestDocs_TheConfigurationInTheReferenceLoads keeps docs/cli.md true.
func TestDocs_TheConfigurationInTheReferenceLoads(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	block := yamlBlock.FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/cli.md has no configuration")
	}
	dir := t.TempDir()
	for name, body := range map[string]string{
		"agentd.yaml":     string(block[1]),
		"prompts/desk.md": "You book trips.",
		"contracts/desk.yaml": `{uri: "#/desk", type: travel.desk, versions: {1.0.0: {accepts: {type: object}, ` +
			`emits: {travel.desk.done: {type: object}}}}}`,
		"prompts/loop.md": "Look before you book.",
		"mcp.json":        `{"mcpServers": {"files": {"command": "files"}}}`,
		"keys/anna.pem": "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAn+gx0J4N+/qisPIRdV9cDJPFoVvrkZ0v5AjGMCQEPWw=\n" +
			"-----END PUBLIC KEY-----\n",
		"contracts/book.yaml": `{uri: "#/book", type: bookings.book, versions: {1.0.0: {accepts: {type: object}, ` +
			`emits: {bookings.booked: {type: object}}}}}`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, path, body)
	}
	var out, errors output
	code := execute(t.Context(), []string{"check", filepath.Join(dir, "agentd.yaml")}, cli.Streams{Out: &out, Err: &errors})
	if code != cli.ExitOK {
		t.Errorf("check exits with %d:\n%s%s", code, out.String(), errors.String())
	}
}
