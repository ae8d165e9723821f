package mcp

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentd/test/missing"
)

// The packages of other makers, in the versions that docs/mcp.md speaks of. The suite needs a newer Node than many systems
// have, so one comes with them.
var packages = []string{
	"@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31",
	"@modelcontextprotocol/conformance@0.1.16", "@modelcontextprotocol/inspector@2.12.0", "node@22.23.3",
}

var install = sync.OnceValues(func() (string, error) {
	root, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, "agentd-interop", "mcp-"+strings.NewReplacer("/", "", "@", "-", "modelcontextprotocol", "").Replace(strings.Join(packages, "")))
	if _, err := os.Stat(filepath.Join(dir, "complete")); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	args := append([]string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--loglevel=error", "--fetch-retries=1"}, packages...)
	if out, err := exec.Command("npm", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm install: %w\n%s", err, out)
	}
	return dir, os.WriteFile(filepath.Join(dir, "complete"), nil, 0o600)
})

// bin is the folder of the packages' programs.
func bin(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		missing.Optional(t, "npm is not installed")
	}
	dir, err := install()
	if err != nil {
		missing.Optional(t, "the packages from npm cannot be installed: %v", err)
	}
	path := filepath.Join(dir, "node_modules", ".bin")
	return path
}

// The reference servers of the protocol's makers serve a run whose worker is killed while one of them asks a person: in the
// older protocol, and while other calls of it run.
func TestNPMServers_ServeARunThroughAKilledWorker(t *testing.T) {
	t.Parallel()
	programs := bin(t)
	files := t.TempDir()
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"everything": map[string]any{"command": filepath.Join(programs, "mcp-server-everything"), "args": []string{"stdio"}},
		"files":      map[string]any{"command": filepath.Join(programs, "mcp-server-filesystem"), "args": []string{files}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, map[string]string{
		"mcp.json": string(servers),
		"agentd.yaml": `
mcp:
  servers:
    files: {allow: [write_file, read_text_file], at_most_once: [write_file]}
agents:
  - name: desk
    model: {name: m}
    tools: {mcp: [everything, files]}
`,
		"script.yaml": fmt.Sprintf(`
conversations:
  - match: {contains: note}
    replies:
      - calls:
          - {name: files_write_file, arguments: {path: %[1]q, content: noted}}
          - {name: everything_get-sum, arguments: {a: 20, b: 22}}
          - {name: everything_get-tiny-image, arguments: {}}
          - {name: everything_get-structured-content, arguments: {location: Chicago}}
          - {name: everything_trigger-long-running-operation, arguments: {duration: 1, steps: 2}}
          - {name: everything_trigger-elicitation-request, arguments: {}}
      - calls:
          - {name: files_read_text_file, arguments: {path: %[1]q}}
          - {name: everything_echo, arguments: {message: still here}}
      - text: '{"response": "noted"}'
`, filepath.Join(files, "note.txt")),
	})
	kill := w.start("serving", "serve", "--provision")
	w.must("run", "desk", "-m", "note", "--subject", "one", "--detach")
	w.untilWaiting("one")
	kill()
	w.start("serving", "serve")
	if out := w.must("runs", "follow", "one", "--answer", `{"name": "Ada"}`); !strings.Contains(out, "noted") {
		t.Errorf("the run says %s", out)
	}
	journal := w.must("runs", "show", "one", "-v")
	for _, want := range []string{"The sum of 20 and 22 is 42", "image/png", "conditions", "Echo: still here", "Long running operation completed", "Name: Ada"} {
		if !strings.Contains(journal, want) {
			t.Errorf("%q is missing in\n%s", want, journal)
		}
	}
	if text, err := os.ReadFile(filepath.Join(files, "note.txt")); err != nil || string(text) != "noted" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// An agent of a model with a window of 8,000 tokens reads a file of 260 KB, which the server sends twice, as text and as structured
// content, and finishes its task.
func TestNPMServers_ALargeFileFitsASmallWindow(t *testing.T) {
	t.Parallel()
	programs := bin(t)
	files := t.TempDir()
	large := filepath.Join(files, "large.txt")
	text := strings.Repeat("A line of a file that is larger than the window.\n", 5400) + "the last line is 42\n"
	if err := os.WriteFile(large, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	servers, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"files": map[string]any{"command": filepath.Join(programs, "mcp-server-filesystem"), "args": []string{files}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, map[string]string{
		"mcp.json": string(servers),
		"agentd.yaml": `
mcp:
  servers:
    files: {allow: [read_text_file]}
agents:
  - name: desk
    model: {name: small, context_window: 8000}
    tools: {mcp: [files]}
`,
		"script.yaml": fmt.Sprintf(`
conversations:
  - match: {contains: last line}
    replies:
      - calls: [{name: files_read_text_file, arguments: {path: %q}}]
      - calls: [{name: read_more, arguments: {result: c1-0, offset: %d}}]
      - text: '{"response": "42"}'
`, large, len(text)-2000),
	})
	w.start("serving", "serve", "--provision")
	if out := w.must("run", "desk", "-m", "What is the last line?", "--subject", "one"); !strings.Contains(out, "42") {
		t.Errorf("the run says %s", out)
	}
	journal := w.must("runs", "show", "one", "-v")
	for _, want := range []string{"read_more", `"size":264620`} {
		if !strings.Contains(journal, want) {
			t.Errorf("%q is missing in\n%.3000s", want, journal)
		}
	}
}
