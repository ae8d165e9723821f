package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/sdk"
)

// patience is how long anything may take.
const patience = time.Minute

// serveHTTP serves a server on the official Go SDK.
func serveHTTP(t *testing.T, server *mcpsdk.Server, stateless bool) ServerConfig {
	t.Helper()
	h := httptest.NewServer(mcpsdk.NewStreamableHTTPHandler(func(*http.Request) *mcpsdk.Server { return server },
		&mcpsdk.StreamableHTTPOptions{Stateless: stateless}))
	t.Cleanup(h.Close)
	return ServerConfig{Name: "sdk", URL: h.URL, Policy: Policy{LocalHosts: []string{"127.0.0.1"}}}
}

func nothing(context.Context, *mcpsdk.CallToolRequest, struct{}) (*mcpsdk.CallToolResult, any, error) {
	return nil, nil, nil
}

// A server says that it has other tools, in either protocol, and again when it is asked for them.
func TestServer_SaysThatItsToolsChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ stateless, older bool }{
		"2026-07-28": {}, "2026-07-28 stateless": {stateless: true}, "2025-11-25": {older: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: "sdk", Version: "1"}, nil)
			mcpsdk.AddTool(server, &mcpsdk.Tool{Name: "first"}, nothing)
			s := start(t, serveHTTP(t, server, c.stateless))
			s.older.Store(c.older)
			tools(t, s)
			for i := range 2 {
				added := fmt.Sprintf("added_%d", i)
				mcpsdk.AddTool(server, &mcpsdk.Tool{Name: added}, nothing)
				select {
				case <-s.Changed():
				case <-time.After(patience):
					t.Fatal("nobody was told")
				}
				if tools(t, s)[added].Run == nil {
					t.Errorf("%s is not there", added)
				}
			}
		})
	}
}

// askingServer is the environment variable that makes this binary the server asking on stdio, with its value as barrier.
const askingServer = "AGENTD_TEST_ASKING_MCP_SERVER"

// coloured are the tools of the server asking.
var coloured = []string{"sky", "sea"}

// asking is a server whose tools ask for a colour while their call runs, when so many of them have been called.
func asking(barrier int) *mcpsdk.Server {
	server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: "sdk", Version: "1"}, nil)
	var called sync.WaitGroup
	called.Add(barrier)
	for i, name := range coloured {
		arrived := sync.OnceFunc(func() {
			if i < barrier {
				called.Done()
			}
		})
		mcpsdk.AddTool(server, &mcpsdk.Tool{Name: name}, func(ctx context.Context, r *mcpsdk.CallToolRequest, _ struct{}) (*mcpsdk.CallToolResult, any, error) {
			arrived()
			called.Wait()
			answer, err := r.Session.Elicit(ctx, &mcpsdk.ElicitParams{
				Message:         "Which colour has " + name + "?",
				RequestedSchema: json.RawMessage(`{"type":"object","properties":{"colour":{"type":"string"}}}`),
			})
			if err != nil {
				return nil, nil, err
			}
			text := fmt.Sprintf("%s %v %s", name, answer.Content, answer.Action)
			return &mcpsdk.CallToolResult{Content: []mcpsdk.Content{&mcpsdk.TextContent{Text: text}}}, nil, nil
		})
	}
	return server
}

// callColoured makes the calls of all coloured tools at once, in the older protocol, and returns what they end with; a result
// as an error too.
func callColoured(t *testing.T, s *Server, answers map[string]*sdk.ToolAnswer) map[string]error {
	t.Helper()
	s.older.Store(true)
	byName := tools(t, s)
	var mu sync.Mutex
	var calls sync.WaitGroup
	ended := map[string]error{}
	for _, name := range coloured {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			data, err := byName[name].Run(ctx, sdk.ToolCall{ID: "c1-0-" + name, Args: json.RawMessage(`{}`), Answer: answers[name]})
			if err == nil {
				err = errors.New(string(data))
			}
			mu.Lock()
			defer mu.Unlock()
			ended[name] = err
		})
	}
	calls.Wait()
	return ended
}

// Two calls that ask at once in the older protocol are both suspended, each with its own question, and both go on with their
// answers. Over HTTP a question comes on the stream of its call; on stdio the calls are made again one by one.
func TestServer_OlderProtocolAsksInTwoCallsAtOnce(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stdio := func(barrier string) ServerConfig {
		return ServerConfig{Name: "sdk", Command: self, Env: map[string]string{askingServer: barrier}}
	}
	remote := serveHTTP(t, asking(len(coloured)), false)
	for name, configs := range map[string][2]ServerConfig{"stdio": {stdio("2"), stdio("0")}, "HTTP": {remote, remote}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := map[string]*sdk.ToolAnswer{}
			for name, err := range callColoured(t, start(t, configs[0]), nil) {
				asks, ok := errors.AsType[*sdk.ToolSuspended](err)
				if !ok || asks.Question.Question != "Which colour has "+name+"?" {
					t.Fatalf("%s ends with %v, want its question", name, err)
				}
				answers[name] = &sdk.ToolAnswer{State: asks.State, Data: []byte(`{"answer":"` + name + ` blue"}`)}
			}
			for name, err := range callColoured(t, start(t, configs[1]), answers) {
				if want := fmt.Sprintf(`{"text":"%[1]s map[colour:%[1]s blue] accept"}`, name); err.Error() != want {
					t.Errorf("%s ends with %v, want %s", name, err, want)
				}
			}
		})
	}
}

// Where calls that are made once run beside each other, no question is anybody's: the server is told cancel, and they end.
func TestServer_OlderProtocolAsksInTwoAtMostOnceCalls(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	config := ServerConfig{Name: "sdk", Command: self, Env: map[string]string{askingServer: "2"}}
	config.AtMostOnce = []string{"*"}
	for name, err := range callColoured(t, start(t, config), nil) {
		if want := fmt.Sprintf(`{"text":"%s map[] cancel"}`, name); err.Error() != want {
			t.Errorf("%s ends with %v, want %s", name, err, want)
		}
	}
}
