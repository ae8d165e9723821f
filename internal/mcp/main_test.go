package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	mcpsdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// fakeServer is the environment variable that makes this binary an MCP server of protocol 2025-11-25 on stdio, which behaves
// as its tools are named.
const fakeServer = "AGENTD_TEST_FAKE_MCP_SERVER"

// fakeMute is the variable's value for a server that never says hello.
const fakeMute = "mute"

func TestMain(m *testing.M) {
	if barrier := os.Getenv(askingServer); barrier != "" {
		n, err := strconv.Atoi(barrier)
		if err == nil {
			err = asking(n).Run(context.Background(), &mcpsdk.StdioTransport{})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(fakeServer) != "" {
		fake()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

type fakeMessage struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   any             `json:"error,omitempty"`
}

func fake() {
	in := bufio.NewReader(os.Stdin)
	out := json.NewEncoder(os.Stdout)
	for {
		var m fakeMessage
		line, err := in.ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &m) != nil {
			return
		}
		if m.ID == nil {
			continue
		}
		reply := fakeMessage{JSONRPC: "2.0", ID: m.ID}
		switch m.Method {
		case "initialize":
			if os.Getenv(fakeServer) == fakeMute {
				continue
			}
			reply.Result = map[string]any{
				"protocolVersion": "2025-11-25", "capabilities": map[string]any{"tools": map[string]any{"listChanged": true}},
				"serverInfo": map[string]any{"name": "fake", "version": "1"},
			}
		case "tools/list":
			reply.Result = fakeTools(m.Params)
		case "tools/call":
			if reply.Result = fakeCall(m.Params, in, out); reply.Result == nil {
				continue
			}
		default:
			reply.Error = map[string]any{"code": -32601, "message": "no such method"}
		}
		_ = out.Encode(reply)
	}
}

// fakeTools are two pages, with a schema that is none and a name that two tools share.
func fakeTools(params json.RawMessage) any {
	tool := func(name string, schema any) map[string]any {
		return map[string]any{"name": name, "inputSchema": schema}
	}
	object := map[string]any{"type": "object"}
	if !strings.Contains(string(params), "page2") {
		return map[string]any{
			"nextCursor": "page2",
			"tools": []any{
				tool("pid", object), tool("crash", object), tool("hang", object), tool("flood", object), tool("order", object),
				tool("noise", object), tool("notify", object), tool("giant", object), tool("wrong", object), tool("unasked", object),
				tool("endless", object), tool("pings", object),
				tool("lies", map[string]any{"type": "object", "properties": "none"}), "no tool",
			},
		}
	}
	return map[string]any{"tools": []any{tool("environment", object), tool("a.b", object), tool("a_b", object), tool("secret", object)}}
}

func fakeCall(params json.RawMessage, in *bufio.Reader, out *json.Encoder) any {
	var call struct {
		Name string          `json:"name"`
		Meta json.RawMessage `json:"_meta"`
	}
	_ = json.Unmarshal(params, &call)
	text := func(s string) any {
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}}
	}
	switch call.Name {
	case "pid":
		_ = out.Encode(fakeMessage{JSONRPC: "2.0", Method: "notifications/tools/list_changed"})
		return text(fmt.Sprint(os.Getpid()))
	case "crash":
		os.Exit(3)
	case "hang":
		return nil
	case "flood":
		for {
			if _, err := os.Stdout.Write(make([]byte, 1<<20)); err != nil {
				os.Exit(4)
			}
		}
	case "pings":
		for {
			if out.Encode(fakeMessage{JSONRPC: "2.0", ID: json.RawMessage(`"ping"`), Method: "ping"}) != nil {
				os.Exit(4)
			}
		}
	case "environment":
		return text(strings.Join(os.Environ(), "\n"))
	case "order":
		return fakeOrder(call.Meta, in, out)
	case "noise":
		for range 1000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("debug ", 200))
		}
		fmt.Println("starting up…\n{\n[]\n{\"jsonrpc\":\"2.0\",\"id\":999,\"result\":{}}")
	case "notify":
		for i := range 5000 {
			_ = out.Encode(fakeMessage{JSONRPC: "2.0", Method: "notifications/tools/list_changed"})
			_ = out.Encode(fakeMessage{JSONRPC: "2.0", Method: "notifications/progress", Params: json.RawMessage(
				fmt.Sprintf(`{"progressToken":"c1-0-test","progress":%d,"message":7}`, i))})
		}
	case "giant":
		return text(strings.Repeat("x", 8<<20))
	case "wrong":
		return map[string]any{"content": "none", "structuredContent": 7, "isError": "no"}
	case "unasked":
		return map[string]any{"resultType": "input_required", "inputRequests": map[string]any{"a": map[string]any{"method": "sampling/createMessage"}}}
	case "endless":
		return map[string]any{"resultType": "input_required"}
	}
	return text("?")
}

// fakeOrder asks for a size while the call runs.
func fakeOrder(meta json.RawMessage, in *bufio.Reader, out *json.Encoder) any {
	schema := `{"type":"object","properties":{"size":{"type":"integer"}},"required":["size"]}`
	_ = out.Encode(fakeMessage{
		JSONRPC: "2.0", ID: json.RawMessage(`"ask"`), Method: "elicitation/create",
		Params: json.RawMessage(`{"message":"Which size?","requestedSchema":` + schema + `}`),
	})
	for {
		line, err := in.ReadBytes('\n')
		var m struct {
			ID     json.RawMessage `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err != nil || json.Unmarshal(line, &m) != nil {
			os.Exit(5)
		}
		if string(m.ID) != `"ask"` {
			continue
		}
		if m.Error != nil {
			return map[string]any{"isError": true, "content": []any{}}
		}
		return map[string]any{"content": []any{map[string]any{"type": "text", "text": string(m.Result) + " " + string(meta)}}}
	}
}
