package seeds_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"agentd/internal/mcp"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

type number struct {
	N int `json:"n"`
}

// mcpServer is a server on the official Go SDK with the tool inc.
func mcpServer(t *testing.T, name string) *mcp.Server {
	t.Helper()
	server := mcpsdk.NewServer(&mcpsdk.Implementation{Name: name, Version: "1"}, nil)
	mcpsdk.AddTool(server, &mcpsdk.Tool{Name: "inc", Description: "of " + name},
		func(_ context.Context, _ *mcpsdk.CallToolRequest, in number) (*mcpsdk.CallToolResult, any, error) {
			return &mcpsdk.CallToolResult{Content: []mcpsdk.Content{&mcpsdk.TextContent{Text: name + strings.Repeat("+", in.N)}}}, nil, nil
		})
	h := httptest.NewServer(mcpsdk.NewStreamableHTTPHandler(func(*http.Request) *mcpsdk.Server { return server },
		&mcpsdk.StreamableHTTPOptions{Stateless: true}))
	t.Cleanup(h.Close)
	s, err := mcp.NewServer(mcp.ServerConfig{
		Name: name, URL: h.URL, Policy: mcp.Policy{LocalHosts: []string{"127.0.0.1"}},
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// mcpTools is rows L17, L18 and L19: the schemas of a server's tools come after those of the agent's own,
// calls go to the server of the name, arguments are validated before, and texts are the result.
func mcpTools(t *testing.T) {
	a := desk(service("shop.find"))
	a.Toolsets = []sdk.Toolset{mcpServer(t, "red"), mcpServer(t, "blue")}
	model := sdktest.Script(
		sdktest.Ask(
			sdktest.Tool("red_inc", n(1)), sdktest.Tool("blue_inc", n(2)), sdktest.Tool("inc", n(3)),
			sdktest.Tool("blue_inc", map[string]any{"n": "two"}), sdktest.Tool("red_inc", map[string]any{})),
		sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	succeeds(t, h, r, `{"response": "done"}`)
	requests := asked(t, model, 2)
	equal(t, "tools, those of servers last", toolNames(requests[0]), []string{"shop_find", "red_inc", "blue_inc"})
	equal(t, "description", requests[0].Tools[2].Description, "of blue")
	got := results(t, requests[1].Messages, 5)
	equal(t, "results", []string{got[0].Text, got[1].Text}, []string{`{"text":"red+"}`, `{"text":"blue++"}`})
	equal(t, "code", problem(t, got[2]).Code, sdk.CodeUnknownTool)
	for _, refused := range got[3:] {
		equal(t, "code", problem(t, refused).Code, sdk.CodeContractViolation)
	}
	h.StopWorkers()
}
