package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"agentd/cmd/agentd/internal/cli"
	"agentd/cmd/agentd/internal/follow"
	"agentd/internal/broker/streams"
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
	_, problem := s.expect(cli.ExitUsage, "runs", "list")
	contains(t, problem, "runs are kept in redis, and this is jetstream: set REDIS_URL", "if the store that has the runs is lost for good: "+s.line("reconcile", "--store-lost")+"\n")
	if state, err := s.client().ZoneState(t.Context(), streams.Run); err != nil || state.Messages != 0 {
		t.Errorf("JetStream has %d entries of it, %v", state.Messages, err)
	}
	found, _ := s.expect(cli.ExitOK, "doctor", "--redis", url)
	contains(t, found, "store of runs: redis", "nothing found")
}

// Whoever writes to the store waits for replicas: workers, and commands.
func TestServe_WaitsForReplicasOfRedis(t *testing.T) {
	config, script := chatProject(t)
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, config, "redis: {replicas: 1, replica_timeout: 20s}\n"+string(text))
	s := startDev(t, config, script, "--server-only")
	master := redistest.StartServer(t, "--repl-diskless-sync-delay", "0")
	redistest.StartReplica(t, master)
	client := redis.NewClient(&redis.Options{Addr: master.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	waits := 0
	waited := func(who string) {
		t.Helper()
		_, rest, _ := strings.Cut(client.Info(t.Context(), "commandstats").Val(), "cmdstat_wait:calls=")
		count, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(count)
		if err != nil || n <= waits {
			t.Errorf("%s: %d waits for replicas, %d before; %v", who, n, waits, err)
		}
		waits = n
	}

	var out, log output
	stop := s.background(&out, &log, "serve", "--redis", master.URL(), "--provision")
	s.until(&log, "msg=serving")
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--answer", follow.EndWord, "--redis", master.URL())
	stop()
	waited("a worker")
	s.expect(cli.ExitOK, "runs", "purge", "one", "--yes", "--redis", master.URL())
	waited("agentd runs purge")
	found, _ := s.expect(cli.ExitOK, "doctor", "--redis", master.URL())
	if strings.Contains(found, "redis_") {
		t.Errorf("doctor finds\n%s", found)
	}
	waited("agentd doctor")
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

// A changed configuration takes the place of the one that is served, and runs go on; one with faults does not.
func TestServe_ReadsTheConfigurationAgain(t *testing.T) {
	config, script := chatProject(t)
	s := startDev(t, config, script, "--server-only")
	var out, log output
	s.background(&out, &log, "serve", "--provision")
	s.until(&log, "msg=serving")
	hangUp := func() {
		t.Helper()
		self, err := os.FindProcess(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if err := self.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	s.expect(cli.ExitOK, "run", "chat", "-m", "Hello", "--subject", "one", "--detach")

	write(t, config, "agents:\n  - nam: chat\n")
	hangUp()
	s.until(&log, "the one before stays in use")
	contains(t, log.String(), `agentd.yaml:2:5: unknown key \"nam\"`)

	write(t, config, chat+"  - name: second\n    model: {name: gpt-4o-mini}\n")
	hangUp()
	s.until(&log, `agents="[chat second]"`)
	result, _ := s.expect(cli.ExitOK, "run", "second", "-m", "Hello", "--answer", follow.EndWord)
	if result != "How can I help?\n" {
		t.Errorf("the new agent says %q", result)
	}
	s.expect(cli.ExitOK, "runs", "show", "one")
}
