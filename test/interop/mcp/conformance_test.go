package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentdmcp "agentd/internal/mcp"
	"agentd/sdk"
)

// conformanceClient makes the test binary the client that the suite tests; the URL is its last argument.
const conformanceClient = "AGENTD_TEST_CONFORMANCE_CLIENT"

// conformance runs scenarios of the suite, and returns for each whether it passed.
func conformance(t *testing.T, args ...string) map[string]bool {
	t.Helper()
	programs := bin(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "node"), append([]string{filepath.Join(programs, "conformance")}, args...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), conformanceClient+"=1"), t.TempDir()
	out, err := cmd.CombinedOutput()
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		t.Fatalf("conformance %q: %v\n%s", args, err, out)
	}
	passed := map[string]bool{}
	for _, line := range summaryLine.FindAllStringSubmatch(string(out), -1) {
		passed[line[2]] = line[1] == "✓"
	}
	if len(passed) == 0 {
		t.Fatalf("conformance %q says nothing of scenarios: %v\n%s", args, err, out)
	}
	return passed
}

// summaryLine is how the suite tells what became of a scenario.
var summaryLine = regexp.MustCompile(`(?m)^([✓✗~]) (\S+): \d+ passed, \d+ failed`)

// documented is what docs/mcp.md says of the scenarios for a client, or a server: whether each passes.
func documented(t *testing.T, side string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile("../../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.TrimSpace(cells[1]) != side {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[3], -1) {
			listed[name[1]] = strings.TrimSpace(cells[2]) == "yes"
		}
	}
	return listed
}

// The documentation lists what passes of all scenarios that there are for a client. One measures how soon a client is back,
// and so is given several chances on a machine that is busy.
func TestConformance_Client(t *testing.T) {
	bin(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	passed := conformance(t, "client", "--command", self, "--suite", "all", "--timeout", "120000")
	const timed = "sse-retry"
	for range 5 {
		if passed[timed] {
			break
		}
		maps.Copy(passed, scenario(t, timed, "client", "--command", self, "--timeout", "120000"))
	}
	if diff := cmp.Diff(documented(t, "client"), passed); diff != "" {
		t.Errorf("scenarios that pass -documented +found:\n%s", diff)
	}
}

// scenario runs one, which has no summary.
func scenario(t *testing.T, name string, args ...string) map[string]bool {
	t.Helper()
	programs := bin(t)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "node"),
		append([]string{filepath.Join(programs, "conformance")}, append(args, "--scenario", name)...)...)
	cmd.Env, cmd.Dir = append(os.Environ(), conformanceClient+"=1"), t.TempDir()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Logf("scenario %s: %v\n%s", name, err, out)
	}
	return map[string]bool{name: err == nil}
}

// The suite calls tools of fixed names, so there are agents of those names, where agents can do what is asked.
func TestConformance_Server(t *testing.T) {
	t.Parallel()
	bin(t)
	w := newWorld(t, map[string]string{
		"agentd.yaml": `
agents:
  - {name: test_simple_text, model: {name: simple}, contract: &any {accepts: {type: object}, emits: {type: object}}}
  - name: test_error_handling
    model: {name: error}
    contract: {accepts: {type: object}, emits: {type: object, properties: {n: {type: integer}}, required: [n]}}
    limits: {interactions: 1}
  - name: test_tool_with_progress
    model: {name: progress}
    contract: *any
    tools: {services: [{contract: test_simple_text, as: simple}]}
  - name: json_schema_2020_12_tool
    model: {name: simple}
    contract:
      accepts:
        $schema: https://json-schema.org/draft/2020-12/schema
        type: object
        $defs: {address: {type: object, properties: {street: {type: string}, city: {type: string}}}}
        properties: {name: {type: string}, address: {$ref: '#/$defs/address'}}
        additionalProperties: false
      emits: {type: object}
`,
		"script.yaml": `
conversations:
  - {match: {model: simple}, replies: [{text: '{"text": "simple"}'}]}
  - {match: {model: error}, replies: [{text: 'no JSON'}, {text: 'no JSON'}]}
  - match: {model: progress}
    replies:
      - {calls: [{name: simple, arguments: {}}], delay: 1s}
      - {calls: [{name: simple, arguments: {}}], delay: 1s}
      - text: '{"text": "done"}'
`,
	})
	w.start("serving", "serve", "--provision")
	said := w.startSaying("agents are MCP tools at ", "mcp", "--http", "127.0.0.1:0")
	_, url, _ := strings.Cut(said, "agents are MCP tools at ")
	passed := conformance(t, "server", "--url", strings.TrimSpace(url), "--suite", "all")
	if diff := cmp.Diff(documented(t, "server"), passed); diff != "" {
		t.Errorf("scenarios that pass -documented +found:\n%s", diff)
	}
}

// actAsClient is our client against a server of the suite: it calls every tool, and answers what it is asked with nothing
// but defaults.
func actAsClient(url string) error {
	server, err := agentdmcp.NewServer(agentdmcp.ServerConfig{
		Name: "suite", URL: url, Policy: agentdmcp.Policy{LocalHosts: []string{"localhost", "127.0.0.1"}},
	}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	tools, err := server.Tools(ctx)
	for i, tool := range tools {
		call := sdk.ToolCall{ID: fmt.Sprintf("c1-%d-call", i), Args: json.RawMessage(`{"a":5,"b":3}`)}
		_, callErr := tool.Run(ctx, call)
		if asks, ok := errors.AsType[*sdk.ToolSuspended](callErr); ok {
			call.Answer = &sdk.ToolAnswer{State: asks.State, Data: json.RawMessage(`{"answer":"","content":{}}`)}
			_, callErr = tool.Run(ctx, call)
		}
		err = errors.Join(err, callErr)
	}
	return errors.Join(err, server.Close())
}
