package seeds_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/mcp"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

type number struct {
	N int `json:"n"`
}

// addInc gives a server the tool inc, which says who it is.
func addInc(server *mcpsdk.Server, name string) {
	mcpsdk.AddTool(server, &mcpsdk.Tool{Name: "inc", Description: "of " + name},
		func(_ context.Context, _ *mcpsdk.CallToolRequest, in number) (*mcpsdk.CallToolResult, any, error) {
			return spoken(name + strings.Repeat("+", in.N)), nil, nil
		})
}

func spoken(text string) *mcpsdk.CallToolResult {
	return &mcpsdk.CallToolResult{Content: []mcpsdk.Content{&mcpsdk.TextContent{Text: text}}}
}

// remote is a server on the official Go SDK over HTTP, which can be away.
type remote struct {
	*mcpsdk.Server
	away atomic.Bool
	url  string
}

func newRemote(t *testing.T, name string) *remote {
	t.Helper()
	r := &remote{Server: mcpsdk.NewServer(&mcpsdk.Implementation{Name: name, Version: "1"}, nil)}
	addInc(r.Server, name)
	handler := mcpsdk.NewStreamableHTTPHandler(func(*http.Request) *mcpsdk.Server { return r.Server },
		&mcpsdk.StreamableHTTPOptions{Stateless: true})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if r.away.Load() {
			http.Error(w, "away", http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, req)
	}))
	t.Cleanup(h.Close)
	r.url = h.URL
	return r
}

func toolsetOf(t *testing.T, config mcp.ServerConfig) *mcp.Server {
	t.Helper()
	config.LocalHosts = []string{"127.0.0.1"}
	s, err := mcp.NewServer(config, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mcpServer is a server over HTTP with the tool inc.
func mcpServer(t *testing.T, name string) *mcp.Server {
	t.Helper()
	return toolsetOf(t, mcp.ServerConfig{Name: name, URL: newRemote(t, name).url})
}

// mcpProgram is the environment variable that makes this binary an MCP server on stdio, with the tools inc, pid, die and hang.
const mcpProgram = "AGENTD_TEST_SEEDS_MCP_PROGRAM"

func serveMCP() {
	server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: "program", Version: "1"}, nil)
	addInc(server, "program")
	add := func(name string, does func(context.Context) *mcpsdk.CallToolResult) {
		mcpsdk.AddTool(server, &mcpsdk.Tool{Name: name},
			func(ctx context.Context, _ *mcpsdk.CallToolRequest, _ struct{}) (*mcpsdk.CallToolResult, any, error) {
				return does(ctx), nil, nil
			})
	}
	add("pid", func(context.Context) *mcpsdk.CallToolResult { return spoken(fmt.Sprint(os.Getpid())) })
	add("die", func(context.Context) *mcpsdk.CallToolResult {
		os.Exit(3)
		return nil
	})
	add("hang", func(ctx context.Context) *mcpsdk.CallToolResult {
		<-ctx.Done()
		return spoken("never")
	})
	if err := server.Run(context.Background(), &mcpsdk.StdioTransport{}); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
	}
}

// program is that server, with ten seconds for each call: a process is started within one.
func program(t *testing.T) *mcp.Server {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return toolsetOf(t, mcp.ServerConfig{
		Name: "program", Command: self, Env: map[string]string{mcpProgram: "1"}, Policy: mcp.Policy{Timeout: 10 * time.Second},
	})
}

// mcpTools is rows L17, L18 and L19: the schemas of a server's tools come after those of the agent's own,
// calls go to the server of the name, arguments are validated before, and texts are the result.
func mcpTools(t *testing.T) {
	a := desk(service("shop.find"))
	red := newRemote(t, "red")
	mcpsdk.AddTool(red.Server, &mcpsdk.Tool{Name: "two"}, func(context.Context, *mcpsdk.CallToolRequest, struct{}) (*mcpsdk.CallToolResult, any, error) {
		return &mcpsdk.CallToolResult{Content: []mcpsdk.Content{&mcpsdk.TextContent{Text: "one"}, &mcpsdk.TextContent{Text: "two"}}}, nil, nil
	})
	a.Toolsets = []sdk.Toolset{toolsetOf(t, mcp.ServerConfig{Name: "red", URL: red.url}), mcpServer(t, "blue")}
	model := sdktest.Script(
		sdktest.Ask(
			sdktest.Tool("red_two", map[string]any{}), sdktest.Tool("red_inc", n(1)), sdktest.Tool("blue_inc", n(2)), sdktest.Tool("inc", n(3)),
			sdktest.Tool("blue_inc", map[string]any{"n": "two"}), sdktest.Tool("red_inc", map[string]any{})),
		sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 2)
	equal(t, "tools, those of servers last", toolNames(requests[0]), []string{"shop_find", "red_inc", "red_two", "blue_inc"})
	equal(t, "description", requests[0].Tools[3].Description, "of blue")
	got := results(t, requests[1].Messages, 6)
	equal(t, "results, one of several texts", []string{got[0].Text, got[1].Text, got[2].Text},
		[]string{`{"content":[{"text":"one","type":"text"},{"text":"two","type":"text"}]}`, `{"text":"red+"}`, `{"text":"blue++"}`})
	equal(t, "code", problem(t, got[3]).Code, sdk.CodeUnknownTool)
	for _, refused := range got[4:] {
		equal(t, "code", problem(t, refused).Code, sdk.CodeContractViolation)
	}
	h.StopWorkers()
}

// whichTools is what runs are asked that are started to see the tools they have.
const whichTools = "which tools?"

// asIt is a model that answers whichTools with the names of the tools that it is shown, and all else as the script says.
func asIt(script *sdktest.Model) sdk.Provider {
	return sdktest.ModelFunc(func(ctx context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
		if req.Messages[0].PlainText() == whichTools {
			return sdktest.Say(strings.Join(toolNames(req), " ")), nil
		}
		return script.Generate(ctx, req, nil)
	})
}

// offered starts runs until one has the tool.
func offered(t *testing.T, h *harness.Harness, tool string) {
	t.Helper()
	n := 0
	await(t, "a run has the tool "+tool, func() bool {
		n++
		event := h.Init("desk", message(whichTools))
		event.ID, event.Subject = fmt.Sprint("look-", tool, n), fmt.Sprint(t.Name(), "-look-", tool, n)
		return strings.Contains(string(h.Done(h.Send("desk", event)).Data), tool)
	})
}

// mcpLifecycle is row L72: an agent runs while one of its servers is down, a server that dies is started again, and a tool
// that hangs harms its own call only.
func mcpLifecycle(t *testing.T) {
	down := newRemote(t, "down")
	down.away.Store(true)
	a := desk()
	a.Toolsets = []sdk.Toolset{program(t), toolsetOf(t, mcp.ServerConfig{Name: "down", URL: down.url})}
	none := map[string]any{}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("program_inc", n(1)), sdktest.Tool("down_inc", n(1)), sdktest.Tool("program_pid", none)),
		sdktest.Ask(sdktest.Tool("program_hang", none), sdktest.Tool("program_inc", n(2)), sdktest.Tool("program_pid", none)),
		sdktest.Ask(sdktest.Tool("program_die", none)),
		sdktest.Ask(sdktest.Tool("program_pid", none)), sdktest.Say("done"))
	h := start(t, asIt(model), a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	requests := asked(t, model, 5)
	equal(t, "tools while one server is down", toolNames(requests[0]),
		[]string{"program_die", "program_hang", "program_inc", "program_pid"})
	got := results(t, requests[4].Messages, 8)
	equal(t, "result of the other server", got[0].Text, `{"text":"program+"}`)
	missing := problem(t, got[1])
	equal(t, "code of the server that is down", missing.Code, sdk.CodeUnavailable)
	ordered(t, missing.ErrorMessage, "down_inc", "toolset down is away")
	equal(t, "code of the tool that hangs", problem(t, got[3]).Code, sdk.CodeDeadline)
	equal(t, "results beside it, of the same process", []string{got[4].Text, got[5].Text}, []string{`{"text":"program++"}`, got[2].Text})
	equal(t, "code of the call that the server died of", problem(t, got[6]).Code, sdk.CodeUnavailable)
	if got[7].IsError || got[7].Text == got[2].Text {
		t.Errorf("the server that died was %s, and is %+v", got[2].Text, got[7])
	}
	down.away.Store(false)
	offered(t, h, "down_inc")
}

// mcpClients is row T70: tools of equal names are told apart by their servers, the list of tools follows the server, and a
// server that fails is used again when it is well, by the same run.
func mcpClients(t *testing.T) {
	red := newRemote(t, "red")
	a := desk()
	a.Tools = []sdk.Tool{echo("inc")}
	a.Toolsets = []sdk.Toolset{toolsetOf(t, mcp.ServerConfig{Name: "red", URL: red.url}), mcpServer(t, "blue")}
	a.Tools = append(a.Tools, internal("outage", func(context.Context, sdk.ToolCall) ([]byte, error) {
		red.away.Store(!red.away.Load())
		return []byte(`{}`), nil
	}))
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("inc", n(0)), sdktest.Tool("red_inc", n(1)), sdktest.Tool("blue_inc", n(2))),
		sdktest.Ask(sdktest.Tool("outage", n(3))),
		sdktest.Ask(sdktest.Tool("red_inc", n(4)), sdktest.Tool("blue_inc", n(4))),
		sdktest.Ask(sdktest.Tool("outage", n(5))),
		sdktest.Ask(sdktest.Tool("red_inc", n(6))), sdktest.Say("done"))
	h := start(t, asIt(model), a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 6)
	equal(t, "tools", toolNames(requests[0]), []string{"inc", "outage", "red_inc", "blue_inc"})
	got := results(t, requests[5].Messages, 8)
	equal(t, "who was called", []string{got[0].Text, got[1].Text, got[2].Text}, []string{`{"n":0}`, `{"text":"red+"}`, `{"text":"blue++"}`})
	equal(t, "code of the server that fails", problem(t, got[4]).Code, sdk.CodeUnavailable)
	equal(t, "the other server", got[5].Text, `{"text":"blue++++"}`)
	equal(t, "the server when it is well", got[7].Text, `{"text":"red++++++"}`)
	mcpsdk.AddTool(red.Server, &mcpsdk.Tool{Name: "dec"},
		func(context.Context, *mcpsdk.CallToolRequest, struct{}) (*mcpsdk.CallToolResult, any, error) {
			return spoken("-"), nil, nil
		})
	offered(t, h, "red_dec")
	equal(t, "statuses of a run that nobody was asked in", slices.Contains(statuses(h.Parts(r)), core.StatusWaiting), false)
}

// mcpInText is rows F4, F14 and F15 with servers that there are: their tools are described after the agent's own, the server's
// name says whose tool is meant, and one that is nobody's is told with those that there are.
func mcpInText(t *testing.T) {
	a := desk()
	a.Tools = []sdk.Tool{echo("inc")}
	a.Toolsets = []sdk.Toolset{mcpServer(t, "red"), mcpServer(t, "blue")}
	model := sdktest.Script(
		writing("local", "inc", `{"n":1}`), writing("red", "inc", `{"n":2}`), writing("blue", "blue_inc", `{"n":3}`),
		writing("green", "inc", `{"n":4}`), writing("red", "dec", `{"n":5}`), sdktest.Say("done"))
	h := start(t, inText(t, model), a)
	succeeds(t, h, h.Run("desk", message("hello")), `{"response": "done"}`)
	requests := asked(t, model, 6)
	told := func(i int) string {
		messages := requests[i].Messages
		return messages[len(messages)-1].PlainText()
	}
	ordered(t, told(0), "<tools>", "server_name: local", "tool_name: inc", "</tools>", "<mcp_tools>",
		"server_name: red", "tool_name: red_inc", "of red", `arguments: {`, `"n":{"type":"integer"}`,
		"server_name: blue", "tool_name: blue_inc", "of blue", `arguments: {`, `"n":{"type":"integer"}`, "</mcp_tools>")
	ordered(t, told(1), `status="success"`, `{"n":1}`)
	ordered(t, told(2), `status="success"`, `red++`)
	ordered(t, told(3), `status="success"`, `blue+++`)
	for i, name := range map[int]string{4: "green.inc", 5: "red.dec"} {
		ordered(t, told(i), `status="error"`, "unknown_tool", name, "there is inc, red_inc, blue_inc")
	}
}
