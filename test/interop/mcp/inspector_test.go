package mcp

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const travelDesk = "../../../examples/traveldesk"

// newTravelDesk is the example with its services, and a worker.
func newTravelDesk(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, exampleFiles(t))
	services := filepath.Join(t.TempDir(), "traveldesk")
	build := exec.Command("go", "build", "-o", services, ".")
	build.Dir = travelDesk // a module of its own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the services: %v\n%s", err, out)
	}
	w.start("serving", "serve", "--provision")
	cmd := exec.Command(services)
	cmd.Dir, cmd.Env = w.dir, append(w.env, "AGENTD_DATA="+filepath.Join(w.dir, "data"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	return w
}

func exampleFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"*.yaml", "contracts/*.yaml", "prompts/*"} {
		paths, err := filepath.Glob(filepath.Join(travelDesk, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(travelDesk, path)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = string(text)
		}
	}
	return files
}

// inspect runs the inspector's command line with agentd mcp as its server, and returns what it prints.
func (w *world) inspect(method string, flags ...string) string {
	w.Helper()
	programs := bin(w.T)
	agentd, err := binary()
	if err != nil {
		w.Fatal(err)
	}
	file, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"agents": map[string]any{
		"command": agentd,
		"args": []string{
			"mcp", "--wait", "2s", "-c", filepath.Join(w.dir, "agentd.yaml"), "--data", filepath.Join(w.dir, "data"),
		},
	}}})
	if err != nil {
		w.Fatal(err)
	}
	config := filepath.Join(w.TempDir(), "inspector.json")
	if err := os.WriteFile(config, file, 0o600); err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), wait)
	defer cancel()
	args := append([]string{
		filepath.Join(programs, "mcp-inspector"), "--cli", "--config", config, "--server", "agents", "--method", method,
	}, flags...)
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "node"), args...)
	cmd.Env = append(os.Environ(), "HOME="+w.TempDir())
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("inspector %s %q: %v\n%s", method, flags, err, out)
	}
	return string(out)
}

// The inspector, a host that is a new process for each call, starts a run, finds it by its key, and reads its answer when a
// person has answered in between.
func TestInspector_RunsTheTravelAgent(t *testing.T) {
	t.Parallel()
	bin(t)
	w := newTravelDesk(t)
	if out := w.inspect("tools/list"); !strings.Contains(out, `"travel_desk"`) || !strings.Contains(out, `"run_result"`) {
		t.Fatalf("the tools are %s", out)
	}
	trip := []string{
		"--tool-name", "travel_desk", "--tool-arg", "message=Two nights in Lisbon", "--tool-metadata", "dev.agentd/idempotencyKey=trip-1",
	}
	first, _ := runIn(t, w.inspect("tools/call", trip...))
	_, subject, _ := strings.Cut(first, "/")
	w.until(subject, `"tool": "ask_question"`)
	if second, status := runIn(t, w.inspect("tools/call", trip...)); second != first || status != "waiting" {
		t.Errorf("one key is the runs %s and %s, and the latter is %s", first, second, status)
	}
	w.must("runs", "follow", subject, "--answer", "Yes, book both")
	out := w.inspect("tools/call", "--tool-name", "run_result", "--tool-arg", "run="+first)
	if !strings.Contains(out, "TRIP-TP-533-casa-do-rio") {
		t.Errorf("the run's answer is %s", out)
	}
}

// runIn is the handle and the status of the run that goes on, in what the inspector prints.
func runIn(t *testing.T, printed string) (run, status string) {
	t.Helper()
	var result struct {
		Structured struct {
			Run    string `json:"run"`
			Status string `json:"status"`
		} `json:"structuredContent"`
	}
	at := strings.Index(printed, "{")
	if at < 0 {
		t.Fatalf("the inspector prints %s", printed)
	}
	if err := json.NewDecoder(strings.NewReader(printed[at:])).Decode(&result); err != nil || result.Structured.Run == "" {
		t.Fatalf("the inspector prints %s: %v", printed, err)
	}
	return result.Structured.Run, result.Structured.Status
}
