package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// oneRun is a Runs with one run, which tells its progress and is done when that was heard: what is told right before the
// answer, the library may drop.
type oneRun struct{ heard chan struct{} }

func (oneRun) Start(context.Context, string, string, json.RawMessage) (string, error) {
	return "desk/1", nil
}

func (r oneRun) Await(ctx context.Context, run string, progress func(string)) (RunState, error) {
	progress("calls find")
	select {
	case <-r.heard:
	case <-ctx.Done():
	}
	return RunState{Run: run, Status: "done", Output: json.RawMessage(`{"response":"found"}`)}, nil
}

func (oneRun) Cancel(context.Context, string, string) error { return nil }

// A host of the older protocol hears of the progress of its calls over HTTP, whoever else listens.
func TestAgents_ReportProgressToHostsOfTheOlderProtocol(t *testing.T) {
	t.Parallel()
	heard := make(chan struct{})
	a, err := NewAgents(AgentsOptions{
		Agents: []AgentTool{{Agent: "desk", Accepts: json.RawMessage(`{"type":"object"}`), Emits: json.RawMessage(`{"type":"object"}`)}},
		Runs:   oneRun{heard}, Wait: time.Minute, Version: "1", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(a.Handler(""))
	t.Cleanup(h.Close)
	listening := ask(t, h.URL, http.MethodGet, "") // another host, which listens for as long as it may
	defer func() { _ = listening.Body.Close() }()
	resp := ask(t, h.URL, http.MethodPost,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"desk","arguments":{},"_meta":{"progressToken":3}}}`)
	defer func() { _ = resp.Body.Close() }() // it was read
	var body strings.Builder
	told := sync.OnceFunc(func() { close(heard) })
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		body.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "calls find") {
			told()
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"progressToken":3`, "the run is desk/1", "calls find", `"structuredContent":{"response":"found"}`} {
		if !strings.Contains(body.String(), want) {
			t.Errorf("%s is missing in\n%s", want, body.String())
		}
	}
}

// ask makes a request in the older protocol.
func ask(t *testing.T, url, method, body string) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	request.Header.Set("Mcp-Protocol-Version", "2025-11-25")
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}
