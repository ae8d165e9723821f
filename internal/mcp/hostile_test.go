package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/test/peak"
)

// Whatever a server writes, its call has a result or a fault, and the process is used for the next one.
func TestServer_BearsNoiseAndNonsense(t *testing.T) {
	t.Parallel()
	s := start(t, fakeConfig(t))
	byName := tools(t, s)
	before, err := call(t, byName["pid"], sdk.ToolCall{})
	if err != nil {
		t.Fatal(err)
	}
	for tool, want := range map[string]sdk.Code{
		"noise": "", "notify": "", "giant": "", "wrong": sdk.CodeTool, "unasked": sdk.CodeTool, "endless": sdk.CodeUnavailable,
	} {
		if text, err := call(t, byName[tool], sdk.ToolCall{}); code(err) != want {
			t.Errorf("%s ends with %.100s, %v; want the code %q", tool, text, err, want)
		}
	}
	if after, err := call(t, byName["pid"], sdk.ToolCall{}); err != nil || after != before {
		t.Errorf("the server was %s, and is %s, %v", before, after, err)
	}
}

// A tool whose schema explodes, and those behind the first megabyte of schemas, are left out with the reason; the others work.
func TestServer_OffersNoToolWhoseSchemaExplodes(t *testing.T) {
	t.Parallel()
	peak.Memory(t, func(t *testing.T) {
		server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: "sdk", Version: "1"}, nil)
		add := func(name, schema string) {
			server.AddTool(&mcpsdk.Tool{Name: name, InputSchema: json.RawMessage(schema)},
				func(context.Context, *mcpsdk.CallToolRequest) (*mcpsdk.CallToolResult, error) {
					return &mcpsdk.CallToolResult{Content: []mcpsdk.Content{&mcpsdk.TextContent{Text: name}}}, nil
				})
		}
		var defs []string
		for i := range 40 {
			defs = append(defs, fmt.Sprintf(`"a%d": {"anyOf": [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}`, i, i+1, i+1))
		}
		add("bomb", `{"type": "object", "allOf": [{"$ref": "#/$defs/a0"}], "$defs": {`+strings.Join(defs, ", ")+`, "a40": {"required": ["x"]}}}`)
		add("fine", `{"type": "object"}`)
		for i := range 6 {
			add(fmt.Sprintf("large%d", i), `{"type": "object", "description": "`+strings.Repeat("x", 200<<10)+`"}`)
		}
		var log bytes.Buffer
		s, err := NewServer(serveHTTP(t, server, false), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		byName := tools(t, s)
		var names []string
		for name, tool := range byName {
			names = append(names, name)
			box, err := toolbox.New(sdk.AgentSpec{}, []sdk.Tool{tool})
			if err != nil {
				t.Fatal(err)
			}
			if _, faults := box.All()[0].Validate(json.RawMessage(`{}`)); len(faults) > 0 {
				t.Error(name, faults)
			}
		}
		slices.Sort(names)
		if want := []string{"fine", "large0", "large1", "large2", "large3", "large4"}; !slices.Equal(names, want) {
			t.Errorf("tools %v; want %v", names, want)
		}
		if text, err := call(t, byName["fine"], sdk.ToolCall{}); err != nil || text != `{"text":"fine"}` {
			t.Errorf("fine answers %s, %v", text, err)
		}
		for _, reason := range []string{"tool=bomb", "at most 10000 schemas that apply to one value", "tool=large5"} {
			if !strings.Contains(log.String(), reason) {
				t.Errorf("the log does not say %q:\n%s", reason, log.String())
			}
		}
	})
}

// A server that never says hello is away when the time is over, and is ended.
func TestServer_ThatNeverSaysHelloIsAway(t *testing.T) {
	t.Parallel()
	config := fakeConfig(t)
	config.Env[fakeServer] = fakeMute
	s := start(t, config)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := s.Tools(ctx); code(err) != sdk.CodeUnavailable {
		t.Errorf("error %v", err)
	}
}

// What a program said before it ended is in the reason why it is away.
func TestServer_ThatDoesNotStartSaysWhy(t *testing.T) {
	t.Parallel()
	s := start(t, ServerConfig{Name: "broken", Command: "/bin/sh", Args: []string{"-c", "echo no licence >&2; exit 1"}})
	_, err := s.Tools(t.Context())
	if cause := errors.Unwrap(sdk.AsError(err)); code(err) != sdk.CodeUnavailable || cause == nil || !strings.Contains(cause.Error(), "no licence") {
		t.Errorf("error %v, because of %v", err, cause)
	}
}

// A call that nobody waits for any more is given up at the server, in either protocol.
func TestServer_IsToldOfCallsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	for name, older := range map[string]bool{"2026-07-28": false, "2025-11-25": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			running, givenUp := make(chan struct{}), make(chan struct{})
			server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: "sdk", Version: "1"}, nil)
			mcpsdk.AddTool(server, &mcpsdk.Tool{Name: "hang"},
				func(ctx context.Context, _ *mcpsdk.CallToolRequest, _ struct{}) (*mcpsdk.CallToolResult, any, error) {
					close(running)
					<-ctx.Done()
					close(givenUp)
					return nil, nil, ctx.Err()
				})
			s := start(t, serveHTTP(t, server, false))
			s.older.Store(older)
			hang := tools(t, s)["hang"]
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-running
				cancel()
			}()
			if _, err := hang.Run(ctx, sdk.ToolCall{ID: "c1-0-hang", Args: json.RawMessage(`{}`)}); !errors.Is(err, context.Canceled) {
				t.Errorf("the call ends with %v", err)
			}
			select {
			case <-givenUp:
			case <-time.After(patience):
				t.Error("the server goes on with it")
			}
		})
	}
}

// A server that reports progress all the time keeps nobody from the result, and is heard now and then.
func TestServer_ReportsProgressNowAndThen(t *testing.T) {
	t.Parallel()
	var reported atomic.Int64
	ctx := sdk.WithProgress(t.Context(), func(sdk.Progress) { reported.Add(1) })
	notify := tools(t, start(t, fakeConfig(t)))["notify"]
	if _, err := notify.Run(ctx, sdk.ToolCall{ID: "c1-0-test", Args: json.RawMessage(`{}`)}); err != nil || reported.Load() == 0 || reported.Load() > 2500 {
		t.Errorf("%d of 5000 reports, error %v", reported.Load(), err)
	}
}
