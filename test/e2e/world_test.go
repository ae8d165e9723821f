package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentd/internal/broker"
	"agentd/internal/broker/datafolder"
	"agentd/internal/state/redistest"
	"agentd/internal/worker"
	"agentd/sdk/wire"
	"agentd/test/poll"
)

// world starts the processes of a scenario and stops them with the test.
func (s scenario) world(t *testing.T, data records, modelURL string) *world {
	w := &world{t: t, prefix: "e2e-" + s.name() + "-"}
	dir := t.TempDir()
	bin, err := filepath.Abs(filepath.Join("..", "..", "bin"))
	if err != nil {
		t.Fatal(err)
	}
	agentd := filepath.Join(bin, "agentd")
	if !fileExists(agentd) {
		t.Fatalf("%s is missing: make build", agentd)
	}
	policy := ""
	if s.gated {
		policy = "    permissions: {require: ['book_*', 'cancel_*', 'update_*', 'send_certificate']}\n"
	}
	config := writeProject(t, dir, data, policy)
	nats := filepath.Join(dir, "nats")
	startProcess(t, "server", nil, agentd, "dev", "--server-only", "--data", nats)
	url := awaitAddress(t, nats)
	env := []string{"NATS_URL=" + url, "OPENAI_BASE_URL=" + modelURL, "OPENAI_API_KEY=none"}
	if s.store == "redis" {
		env = append(env, "REDIS_URL="+redistest.Start(t))
	}
	provision(t, env, agentd, config)
	w.connect(t, url, s, env)
	airline := filepath.Join(dir, "airline")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", airline, "./airline").CombinedOutput(); err != nil {
		t.Fatalf("build the airline: %v\n%s", err, out)
	}
	startProcess(t, "airline", env, airline, "-transcripts", data.dir, "-tools", data.toolsJSON)
	if s.gated {
		startProcess(t, "approver", env, airline, "-approve", "-transcripts", data.dir, "-tools", data.toolsJSON)
	}
	for i := range s.workers {
		w.workers = append(w.workers, startProcess(t, fmt.Sprintf("worker %d", i), env, agentd, "serve", "-c", config))
	}
	w.killing = func() int { return 0 }
	if s.kill {
		w.killing = w.startKilling()
	}
	return w
}

// writeProject writes the agent as its author would: agentd.yaml, the prompt and a contract a tool.
func writeProject(t *testing.T, dir string, data records, permissions string) string {
	t.Helper()
	raw, err := os.ReadFile(data.toolsJSON)
	if err != nil {
		t.Fatal(err)
	}
	policy, err := os.ReadFile(data.policy)
	if err != nil {
		t.Fatal(err)
	}
	var tools []struct {
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		} `json:"function"`
	}
	if err := json.Unmarshal(raw, &tools); err != nil {
		t.Fatal(err)
	}
	var services strings.Builder
	for _, tool := range tools {
		f := tool.Function
		writeJSON(t, filepath.Join(dir, "contracts", f.Name+".json"), map[string]any{
			"uri": "#/airline/" + f.Name, "type": "airline." + f.Name, "domain": "airline", "description": f.Description,
			"versions": map[string]any{"1.0.0": map[string]any{
				"accepts": f.Parameters,
				"emits": map[string]any{"airline." + f.Name + ".done": map[string]any{
					"type": "object", "required": []string{"result"},
					"properties": map[string]any{"result": map[string]string{"type": "string"}},
				}},
			}},
		})
		fmt.Fprintf(&services, "        - {contract: contracts/%s.json, version: ^1, as: %s}\n", f.Name, f.Name)
	}
	writeFile(t, filepath.Join(dir, "policy.md"), string(policy))
	config := filepath.Join(dir, "agentd.yaml")
	writeFile(t, config, `agents:
  - name: airline
    contract:
      accepts: {type: object, properties: {message: {type: string}}, required: [message]}
      emits: {type: object, properties: {response: {type: string}}, required: [response]}
    model: {provider: openai, name: gpt-4o}
    system: policy.md
    text: converse
    stop_on: [transfer_to_human_agents]
    limits: {interactions: 30}
    answers: {incomplete: 10, deflecting: 3, unverified: 2} # small-model and unverified; a summary would end what the recorder cut
    guards: {errors: 2, failures: 3, duplicates: 2, read_only: ["get_*", "search_*", "list_*", calculate, think]}
    memory: {results: {"*": 20000}} # the model was shown all of them
`+permissions+`    tools:
      services:
`+services.String())
	return config
}

func writeJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, string(data))
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func provision(t *testing.T, env []string, agentd, config string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), agentd, "provision", "-c", config)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("provision: %v\n%s", err, out)
	}
}

// connect opens the test's own way to the broker and the journals.
func (w *world) connect(t *testing.T, url string, s scenario, env []string) {
	t.Helper()
	conn, err := broker.Connect(t.Context(), broker.ConnectOptions{
		URL: url, Name: "e2e", Subjects: wire.DefaultSubjects(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	w.conn = conn
	var redis string
	if s.store == "redis" {
		redis = strings.TrimPrefix(env[len(env)-1], "REDIS_URL=")
	}
	store, err := worker.OpenStore(t.Context(), conn, worker.StoreOptions{RedisURL: redis})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	w.store = store
}

// process is a child process that can be killed and started again.
type process struct {
	t    *testing.T
	name string
	env  []string
	args []string

	mu     sync.Mutex
	cmd    *exec.Cmd
	starts int
	log    lockedBuffer
}

func startProcess(t *testing.T, name string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, env: append(os.Environ(), env...), args: args}
	p.start()
	t.Cleanup(func() {
		p.signal(syscall.SIGTERM)
		p.wait()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.log.complaints())
		}
	})
	return p
}

func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cmd = exec.Command(p.args[0], p.args[1:]...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = p.env, &p.log, &p.log
	p.starts++
	if err := p.cmd.Start(); err != nil {
		p.t.Errorf("start %s: %v", p.name, err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd.Process != nil {
		_ = p.cmd.Process.Signal(s) // it may have ended by itself
	}
}

func (p *process) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.cmd.Wait() // its exit code is that of the signal
}

// startKilling kills a worker every second and starts it again, one after the other. None is killed before it has served,
// else nobody would serve on a machine that takes longer than three seconds to start one. The returned function stops the
// killing and says how often it was done.
func (w *world) startKilling() func() int {
	stop, done := make(chan struct{}), make(chan int, 1)
	go func() {
		kills := 0
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case <-stop:
				done <- kills
				return
			case <-every.C:
				p := w.workers[kills%len(w.workers)]
				if p.log.count("msg=serving") < p.starts {
					continue
				}
				p.signal(syscall.SIGKILL)
				p.wait()
				p.start()
				kills++
			}
		}
	}()
	var kills int
	once := sync.OnceFunc(func() {
		close(stop)
		kills = <-done
	})
	w.t.Cleanup(once)
	return func() int {
		once()
		return kills
	}
}

func (w *world) stopKilling() int { return w.killing() }

// awaitAddress waits until the server has written where it listens.
func awaitAddress(t *testing.T, dir string) (url string) {
	t.Helper()
	poll.Until(t, time.Minute, "the server listens", func() bool {
		var err error
		url, err = datafolder.ReadAddress(dir)
		return err == nil
	})
	return url
}

// lockedBuffer keeps what a process prints.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

var _ io.Writer = (*lockedBuffer)(nil)

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// count says how often the processes have printed the text.
func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.b.Bytes(), []byte(text))
}

// complaints are the last lines that tell of trouble.
func (b *lockedBuffer) complaints() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for line := range strings.Lines(b.b.String()) {
		if !strings.Contains(line, "level=INFO") {
			lines = append(lines, line)
		}
	}
	const most = 40
	return strings.Join(lines[max(0, len(lines)-most):], "")
}
