package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/cmd/agentd/internal/cli"
)

// host is an MCP host: the official Go SDK's client.
type host struct {
	*mcp.ClientSession
	mu       sync.Mutex
	progress []string
}

func connectHost(t *testing.T, transport mcp.Transport) *host {
	t.Helper()
	h := &host{}
	client := mcp.NewClient(&mcp.Implementation{Name: "host", Version: "1"}, &mcp.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.progress = append(h.progress, r.Params.Message)
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	session, err := client.Connect(ctx, transport, nil)
	if err != nil {
		t.Fatal(err)
	}
	h.ClientSession = session
	return h
}

func (h *host) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.progress, "\n")
}

func (h *host) call(t *testing.T, tool, key string, args map[string]any) *mcp.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	params := &mcp.CallToolParams{Name: tool, Arguments: args, Meta: mcp.Meta{"progressToken": "p1"}}
	if key != "" {
		params.Meta["dev.agentd/idempotencyKey"] = key
	}
	result, err := h.CallTool(ctx, params)
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	return result
}

// fields is the structured content of a result.
func fields(t *testing.T, r *mcp.CallToolResult) map[string]any {
	t.Helper()
	data, err := json.Marshal(r.StructuredContent)
	var f map[string]any
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil || r.IsError {
		t.Fatalf("result %+v: %v", r, err)
	}
	return f
}

func stdioHost(t *testing.T, s *system, flags ...string) *host {
	t.Helper()
	args := append([]string{"mcp", "--config", s.config, "--data", s.data}, flags...)
	return connectHost(t, &mcp.CommandTransport{Command: exec.Command("agentd", args...)})
}

func (h *host) close(t *testing.T) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
}

func TestMCP_AgentIsAToolWhoseRunOutlivesItsHost(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	first := stdioHost(t, s, "--wait", "2s")
	tools, err := first.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := json.Marshal(tools)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(listed), `"travel_desk"`, "What the traveller wants", `"run_result"`, `"run_cancel"`)
	trip := map[string]any{"message": "Two nights in Lisbon"}
	state := fields(t, first.call(t, "travel_desk", "trip-1", trip))
	_, subject, _ := strings.Cut(state["run"].(string), "/")
	s.waitingFor(subject, "ask_question")
	state = fields(t, first.call(t, "travel_desk", "trip-1", trip)) // the same run, some time later
	waiting, err := json.Marshal(state)
	if err != nil || state["status"] != "waiting" {
		t.Fatalf("state %v, %v", state, err)
	}
	contains(t, string(waiting), "a person's answer")
	for deadline := time.Now().Add(wait); !strings.Contains(first.said(), "calls search_flights") && time.Now().Before(deadline); {
		<-time.After(5 * time.Millisecond) // progress may come after the result
	}
	contains(t, first.said(), "the run has started", "calls search_flights")
	first.close(t)

	// Another host finds the run by the key, and later by its handle.
	second := stdioHost(t, s, "--wait", "1s")
	again := fields(t, second.call(t, "travel_desk", "trip-1", trip))
	if again["run"] != state["run"] {
		t.Fatalf("the same key is run %v and %v", state["run"], again["run"])
	}
	s.expect(cli.ExitOK, "runs", "follow", subject, "--answer", "Yes, book both")
	got := fields(t, second.call(t, "run_result", "", map[string]any{"run": state["run"]}))
	if got["reference"] != "TRIP-TP-533-casa-do-rio" {
		t.Errorf("result %v", got)
	}
	second.close(t)
}

func TestMCP_HTTPCancelsByHandleAndAsksForItsToken(t *testing.T) {
	s := startDev(t, filepath.Join(example, "agentd.yaml"), filepath.Join(example, "script.yaml"))
	s.serve()
	const token = "a token of this test"
	t.Setenv("AGENTD_MCP_TOKEN", "secret")
	s.expect(cli.ExitUsage, "mcp", "--http", "127.0.0.1:0")
	t.Setenv("AGENTD_MCP_TOKEN", token)
	var out, errors output
	s.background(&out, &errors, "mcp", "--http", "127.0.0.1:0", "--wait", "2s")
	s.until(&errors, "agents are MCP tools at ")
	_, rest, _ := strings.Cut(errors.String(), "agents are MCP tools at ")
	url, _, _ := strings.Cut(rest, "\n")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	refused, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := refused.Body.Close(); err != nil || refused.StatusCode != http.StatusUnauthorized {
		t.Errorf("without the token: %s, %v", refused.Status, err)
	}
	request, err = http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Origin", "https://evil.example")
	if refused, err = http.DefaultClient.Do(request); err != nil {
		t.Fatal(err)
	}
	if err := refused.Body.Close(); err != nil || refused.StatusCode != http.StatusForbidden {
		t.Errorf("for a page of another site: %s, %v", refused.Status, err)
	}
	h := connectHost(t, &mcp.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer(token)}})
	// Runs of others have names that can be guessed.
	s.expect(cli.ExitOK, "run", "travel.desk", "-m", "Two nights in Lisbon", "--subject", "invoice-4711", "-d")
	s.waiting("invoice-4711")
	nobody := "travel.desk/run-" + strings.Repeat("a", 26)
	for _, tool := range []string{"run_cancel", "run_result"} {
		if r := h.call(t, tool, "", map[string]any{"run": "travel.desk/invoice-4711"}); !r.IsError {
			t.Errorf("%s of another's run: %+v", tool, r)
		}
	}
	if r := h.call(t, "run_cancel", "", map[string]any{"run": nobody}); !r.IsError {
		t.Errorf("cancel of a run that is not there: %+v", r)
	}
	if shown, _ := s.expect(cli.ExitOK, "runs", "list"); strings.Contains(shown, "cancelled") {
		t.Errorf("another's run was cancelled:\n%s", shown)
	}
	state := fields(t, h.call(t, "travel_desk", "", map[string]any{"message": "Two nights in Lisbon"}))
	if r := h.call(t, "run_cancel", "", map[string]any{"run": state["run"]}); r.IsError {
		t.Errorf("cancel: %+v", r)
	}
	r := h.call(t, "run_result", "", map[string]any{"run": state["run"]})
	text, err := json.Marshal(r.Content)
	if err != nil || !r.IsError {
		t.Errorf("a cancelled run is %+v, %v", r, err)
	}
	contains(t, string(text), "cancelled")
	if r := h.call(t, "travel_desk", "", map[string]any{"message": 5}); !r.IsError {
		t.Errorf("an input that breaks the contract is %+v", r)
	}
	h.close(t)
	http.DefaultClient.CloseIdleConnections()
}

type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}
