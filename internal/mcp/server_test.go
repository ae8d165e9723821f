package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

func start(t *testing.T, config ServerConfig) *Server {
	t.Helper()
	s, err := NewServer(config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// fakeConfig starts this binary as a server.
func fakeConfig(t *testing.T) ServerConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return ServerConfig{Name: "fake", Command: self, Env: map[string]string{fakeServer: "1"}}
}

func tools(t *testing.T, s *Server) map[string]sdk.Tool {
	t.Helper()
	list, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]sdk.Tool{}
	for _, tool := range list {
		byName[tool.Definition.Name] = tool
	}
	return byName
}

func call(t *testing.T, tool sdk.Tool, c sdk.ToolCall) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	if c.ID == "" {
		c.ID = "c1-0-test"
	}
	if c.Args == nil {
		c.Args = json.RawMessage(`{}`)
	}
	data, err := tool.Run(ctx, c)
	return string(data), err
}

func code(err error) sdk.Code {
	if err == nil {
		return ""
	}
	return sdk.AsError(err).Code
}

func TestServer_ListsWhatCanBeUsed(t *testing.T) {
	t.Parallel()
	config := fakeConfig(t)
	config.Deny, config.AtMostOnce = []string{"sec*"}, []string{"order"}
	s := start(t, config)
	list, err := s.Tools(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range list {
		names = append(names, tool.Definition.Name)
		if tool.AtMostOnce != (tool.Definition.Name == "order") {
			t.Errorf("%s at most once: %t", tool.Definition.Name, tool.AtMostOnce)
		}
		if tool.Labels != (sdk.ToolLabels{Destructive: true, OpenWorld: true}) {
			t.Errorf("%s, which says nothing of itself, is labelled %+v", tool.Definition.Name, tool.Labels)
		}
	}
	// Of both pages, by name; without what is denied, cannot be read or used, or has another's name.
	want := []string{
		"a_b", "crash", "endless", "environment", "flood", "giant", "hang", "noise", "notify", "order", "pid", "pings", "unasked", "wrong",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("tools -want +got:\n%s", diff)
	}
}

func TestServer_HarmsOnlyItsCall(t *testing.T) {
	t.Parallel()
	s := start(t, fakeConfig(t))
	byName := tools(t, s)
	pid := func() string {
		t.Helper()
		text, err := call(t, byName["pid"], sdk.ToolCall{})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := pid()
	if pid() != first {
		t.Error("a server that works was started again")
	}
	for _, bad := range []string{"crash", "flood", "pings"} {
		before := pid()
		if _, err := call(t, byName[bad], sdk.ToolCall{}); code(err) != sdk.CodeUnavailable {
			t.Errorf("%s: %v", bad, err)
		}
		if pid() == before {
			t.Errorf("after %s the server is the same", bad)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := byName["hang"].Run(ctx, sdk.ToolCall{ID: "c1-1-x", Args: []byte(`{}`)}); code(err) != sdk.CodeDeadline {
		t.Errorf("hang: %v", err)
	}
	pid()
	select {
	case <-s.Changed():
	case <-time.After(patience):
		t.Error("nobody was told that the server has other tools")
	}
}

func TestServer_GivesOnlyTheEnvironmentOfTheConfiguration(t *testing.T) {
	t.Setenv("AGENTD_TEST_SECRET", "hunter2")
	config := fakeConfig(t)
	config.Env["GIVEN"] = "yes"
	text, err := call(t, tools(t, start(t, config))["environment"], sdk.ToolCall{})
	if err != nil || strings.Contains(text, "hunter2") || !strings.Contains(text, "GIVEN=yes") || !strings.Contains(text, "PATH=") {
		t.Errorf("environment %s, error %v", text, err)
	}
}

// A server of the older protocol asks while its call runs. The call is given up, and made again with the answer, by another
// client too.
func TestServer_OlderProtocolAsks(t *testing.T) {
	t.Parallel()
	order := tools(t, start(t, fakeConfig(t)))["order"]
	_, err := call(t, order, sdk.ToolCall{ID: "c1-0-order", TraceParent: "00-x"})
	asks, ok := errors.AsType[*sdk.ToolSuspended](err)
	if !ok || asks.Question.Question != "Which size?" || len(asks.Question.Schema) == 0 {
		t.Fatalf("error %v, want a question", err)
	}
	other := tools(t, start(t, fakeConfig(t)))["order"]
	_, err = call(t, other, sdk.ToolCall{ID: "c1-0-order", Answer: &sdk.ToolAnswer{State: asks.State, Data: []byte(`{"answer":"big"}`)}})
	again, ok := errors.AsType[*sdk.ToolSuspended](err)
	if !ok || !strings.Contains(again.Question.Question, "does not do") {
		t.Fatalf("an answer that does not fit: %v, want the question again", err)
	}
	text, err := call(t, other, sdk.ToolCall{
		ID: "c1-0-order", TraceParent: "00-x", Answer: &sdk.ToolAnswer{State: again.State, Data: []byte(`{"answer":"7"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`\"action\":\"accept\"`, `\"size\":7`, `idempotencyKey\":\"c1-0-order\"`, `\"traceparent\":\"00-x\"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the server got %s, without %s", text, want)
		}
	}
}

func TestServer_OlderProtocolAsksAnAtMostOnceTool(t *testing.T) {
	t.Parallel()
	config := fakeConfig(t)
	config.AtMostOnce = []string{"*"}
	text, err := call(t, tools(t, start(t, config))["order"], sdk.ToolCall{})
	if err != nil || !strings.Contains(text, `\"action\":\"cancel\"`) {
		t.Errorf("answer %s, error %v; want a cancel", text, err)
	}
}
