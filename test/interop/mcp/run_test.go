// Package mcp sees that agents and MCP programs of other makers work together, also when workers are killed.
package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/internal/llm/mockllm"
	"agentd/test/capture"
)

// wait is how long anything may take.
const wait = 2 * time.Minute

// binary is agentd, built once.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentd-interop-mcp-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "agentd")
	if out, err := exec.Command("go", "build", "-o", path, "agentd/cmd/agentd").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build agentd: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	if os.Getenv(conformanceClient) != "" {
		if err := actAsClient(os.Args[len(os.Args)-1]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	if path, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path)) // in the temporary folder
	}
	os.Exit(code)
}

// world is a folder with a configuration, a NATS server and a model.
type world struct {
	*testing.T
	dir string
	env []string
}

func newWorld(t *testing.T, files map[string]string) *world {
	t.Helper()
	w := &world{T: t, dir: t.TempDir()}
	for name, text := range files {
		if err := os.MkdirAll(filepath.Join(w.dir, filepath.Dir(name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script, err := mockllm.LoadScript(filepath.Join(w.dir, "script.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	model := httptest.NewServer(mockllm.New(script))
	t.Cleanup(model.Close)
	w.env = append(os.Environ(), "OPENAI_BASE_URL="+model.URL+"/v1", "NATS_URL=", "REDIS_URL=")
	w.start("ready", "dev", "--server-only")
	return w
}

// start runs agentd until kill is called, or the test ends, and waits until it says mark.
func (w *world) start(mark string, args ...string) (kill func()) {
	w.Helper()
	_, kill = w.launch(mark, args...)
	return kill
}

// startSaying is start that returns what was said.
func (w *world) startSaying(mark string, args ...string) string {
	w.Helper()
	said, _ := w.launch(mark, args...)
	return said
}

func (w *world) launch(mark string, args ...string) (text string, kill func()) {
	w.Helper()
	path, err := binary()
	if err != nil {
		w.Fatal(err)
	}
	cmd := exec.Command(path, append(args, "-c", filepath.Join(w.dir, "agentd.yaml"), "--data", filepath.Join(w.dir, "data"))...)
	cmd.Env = w.env
	said := &capture.Output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		w.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	w.Cleanup(func() {
		kill()
		if w.Failed() {
			w.Logf("agentd %q said:\n%s", args, said.String())
		}
	})
	for deadline := time.Now().Add(wait); !strings.Contains(said.String(), mark); {
		if time.Now().After(deadline) {
			w.Fatalf("agentd %q does not say %q:\n%s", args, mark, said.String())
		}
		<-time.After(10 * time.Millisecond)
	}
	return said.String(), kill
}

// agentd runs a command to its end.
func (w *world) agentd(args ...string) (string, error) {
	w.Helper()
	path, err := binary()
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), wait)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, "-c", filepath.Join(w.dir, "agentd.yaml"), "--data", filepath.Join(w.dir, "data"))...)
	cmd.Env = w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (w *world) must(args ...string) string {
	w.Helper()
	out, err := w.agentd(args...)
	if err != nil {
		w.Fatalf("agentd %q: %v\n%s", args, err, out)
	}
	return out
}

// untilWaiting waits until the run waits for a person.
func (w *world) untilWaiting(run string) {
	w.Helper()
	w.until(run, `"status": "waiting"`)
}

// until waits until the run, as JSON, has the text.
func (w *world) until(run, text string) {
	w.Helper()
	for deadline := time.Now().Add(wait); ; {
		out, err := w.agentd("runs", "show", run, "-o", "json")
		if err == nil && strings.Contains(out, text) {
			return
		}
		if time.Now().After(deadline) {
			w.Fatalf("run %s has no %s: %v\n%s", run, text, err, out)
		}
		<-time.After(50 * time.Millisecond)
	}
}

type amount struct {
	N int `json:"n"`
}

// shop is a server on the official Go SDK: one tool that adds up, one that asks for a size.
func shop(added *atomic.Int64) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "shop", Version: "1"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add"}, func(_ context.Context, _ *mcp.CallToolRequest, in amount) (*mcp.CallToolResult, any, error) {
		return nil, map[string]any{"sum": added.Add(int64(in.N))}, nil
	})
	s.AddTool(&mcp.Tool{Name: "order", InputSchema: json.RawMessage(`{"type":"object"}`)}, order)
	return s
}

func order(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if len(r.Params.InputResponses) == 0 {
		return &mcp.CallToolResult{
			InputRequests: mcp.InputRequestMap{"size": &mcp.ElicitParams{
				Message:         "Which size?",
				RequestedSchema: json.RawMessage(`{"type":"object","properties":{"size":{"type":"integer"}},"required":["size"]}`),
			}},
			RequestState: "cart 7",
		}, nil
	}
	data, err := json.Marshal(r.Params.InputResponses)
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: r.Params.RequestState + " " + string(data)}}}, nil
}

// A stateful and a stateless server of the official Go SDK serve a run whose worker is killed while a person is asked.
func TestGoSDKServers_ServeARunThroughAKilledWorker(t *testing.T) {
	t.Parallel()
	var added atomic.Int64
	url := func(stateless bool) string {
		server := shop(&added)
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: stateless})
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		return s.URL
	}
	for _, asks := range []string{"stateful", "stateless"} {
		t.Run(asks, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, map[string]string{
				"mcp.json": fmt.Sprintf(`{"mcpServers": {
					"stateful": {"type": "http", "url": %q}, "stateless": {"type": "http", "url": %q}}}`, url(false), url(true)),
				"agentd.yaml": `
mcp: {local_hosts: [127.0.0.1]}
agents:
  - name: desk
    model: {name: m}
    tools: {mcp: [stateful, stateless]}
`,
				"script.yaml": strings.ReplaceAll(`
conversations:
  - match: {contains: order}
    replies:
      - calls:
          - {name: stateful_add, arguments: {n: 1}}
          - {name: stateless_add, arguments: {n: 10}}
          - {name: ASKS_order, arguments: {}}
      - calls: [{name: stateful_add, arguments: {n: 100}}, {name: stateless_add, arguments: {n: 1000}}]
      - text: '{"response": "ordered"}'
`, "ASKS", asks),
			})
			kill := w.start("serving", "serve", "--provision")
			w.must("run", "desk", "-m", "order", "--subject", "one", "--detach")
			w.untilWaiting("one")
			kill()
			w.start("serving", "serve")
			if out := w.must("runs", "follow", "one", "--answer", "7"); !strings.Contains(out, "ordered") {
				t.Errorf("the run says %s", out)
			}
			journal := w.must("runs", "show", "one", "-v")
			for _, want := range []string{"cart 7", "accept"} {
				if !strings.Contains(journal, want) {
					t.Errorf("%q is missing in\n%s", want, journal)
				}
			}
		})
	}
}

// A required server that is away when the worker starts keeps neither the worker nor its other agents from serving; its agent's run
// waits, and is done when the server is there.
func TestWorker_StartsWithoutAServerAndWaitsForIt(t *testing.T) {
	t.Parallel()
	var added atomic.Int64
	server := shop(&added)
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	var there atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if !there.Load() {
			http.Error(rw, "not yet", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(rw, r)
	}))
	t.Cleanup(web.Close)
	w := newWorld(t, map[string]string{
		"mcp.json": fmt.Sprintf(`{"mcpServers": {"shop": {"type": "http", "url": %q}}}`, web.URL),
		"agentd.yaml": `
mcp: {local_hosts: [127.0.0.1], servers: {shop: {required: true}}}
agents:
  - {name: plain, model: {name: m}}
  - name: desk
    model: {name: m}
    tools: {mcp: [shop]}
    stop_on: [shop_order]
`,
		"script.yaml": `
conversations:
  - match: {contains: count}
    replies:
      - calls: [{name: shop_add, arguments: {n: 5}}]
      - text: '{"response": "counted"}'
  - match: {contains: hello}
    replies: [{text: '{"response": "hello"}'}]
`,
	})
	if out, err := w.agentd("check"); err != nil {
		t.Errorf("check: %v\n%s", err, out)
	}
	said := w.startSaying("serving", "serve", "--provision")
	if !strings.Contains(said, "toolset=shop agents=desk") {
		t.Errorf("no warning of the server that is away:\n%s", said)
	}
	w.must("run", "desk", "-m", "count", "--subject", "one", "--detach")
	if out := w.must("run", "plain", "-m", "hello"); !strings.Contains(out, "hello") {
		t.Errorf("the other agent says %s", out)
	}
	there.Store(true)
	w.until("one", `"rev"`) // its init is delivered again
	if out := w.must("runs", "follow", "one"); !strings.Contains(out, "counted") || added.Load() != 5 {
		t.Errorf("the run says %s, and %d was added", out, added.Load())
	}
}

// What a server says of its tools decides what a person is asked for: a rule names labels, not tools.
func TestAnnotations_DriveAPermissionPolicy(t *testing.T) {
	t.Parallel()
	yes, no := true, false
	var done [4]atomic.Int64
	server := mcp.NewServer(&mcp.Implementation{Name: "disk", Version: "1"}, nil)
	for i, tool := range []*mcp.Tool{
		{Name: "look", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}},
		{Name: "note", Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}},
		{Name: "wipe", Annotations: &mcp.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no}},
		{Name: "post", Annotations: &mcp.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &yes}},
	} {
		mcp.AddTool(server, tool, func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			done[i].Add(1)
			return nil, map[string]any{"ok": true}, nil
		})
	}
	web := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(web.Close)
	w := newWorld(t, map[string]string{
		"mcp.json": fmt.Sprintf(`{"mcpServers": {"disk": {"type": "http", "url": %q}}}`, web.URL),
		"agentd.yaml": `
mcp: {local_hosts: [127.0.0.1]}
agents:
  - name: desk
    model: {name: m}
    tools: {mcp: [disk]}
    permissions:
      rules:
        - {labels: [open_world], verdict: deny, reason: nothing leaves the house}
        - {labels: [destructive]}
`,
		"script.yaml": `
conversations:
  - replies:
      - calls: [{name: disk_look, arguments: {}}, {name: disk_note, arguments: {}}, {name: disk_wipe, arguments: {}}, {name: disk_post, arguments: {}}]
      - text: '{"response": "cleaned"}'
`,
	})
	w.start("serving", "serve", "--provision")
	w.must("run", "desk", "-m", "clean", "--subject", "one", "--detach")
	w.untilWaiting("one")
	counts := func(want ...int64) {
		t.Helper()
		for i := range done {
			if got := done[i].Load(); got != want[i] {
				t.Errorf("tool %d ran %d times, want %d", i, got, want[i])
			}
		}
	}
	counts(1, 1, 0, 0)
	var asked []struct {
		ID   string `json:"id"`
		Tool string `json:"tool"`
	}
	if out := w.must("approvals", "list", "-o", "json"); json.Unmarshal([]byte(out), &asked) != nil || len(asked) != 1 || asked[0].Tool != "disk_wipe" {
		t.Fatalf("asked is %s", out)
	}
	w.must("approvals", "approve", asked[0].ID)
	if out := w.must("runs", "follow", "one"); !strings.Contains(out, "cleaned") {
		t.Errorf("the run says %s", out)
	}
	counts(1, 1, 1, 0)
	if journal := w.must("runs", "show", "one", "-v"); !strings.Contains(journal, "nothing leaves the house") {
		t.Errorf("the model is not told why:\n%s", journal)
	}
}
