package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/sdk"
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
