package llm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/golden"
	"agentd/internal/llm"
	"agentd/sdk"
)

const plainAnswer = `{"id":"x","object":"chat.completion","model":"m-2024","choices":[
	{"index":0,"message":{"role":"assistant","content":"Hello."},"finish_reason":"stop"}],
	"usage":{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14}}`

// client returns an HTTP client whose connections end with the test.
func client(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// serve runs a server and returns a provider for it.
func serve(t *testing.T, h http.HandlerFunc) sdk.Provider {
	t.Helper()
	return provider(t, llm.OpenAIOptions{BaseURL: serverOf(t, h) + "/v1", APIKey: "my-secret-key", HTTPClient: client(t)})
}

// serverOf runs a server and returns its address.
func serverOf(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

func provider(t *testing.T, o llm.OpenAIOptions) sdk.Provider {
	t.Helper()
	p, err := llm.NewOpenAI(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answering returns a handler with a fixed answer.
func answering(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func hello() sdk.ModelRequest {
	return sdk.ModelRequest{Run: "r", Model: "m", Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Hi")}}
}

func use(id, tool, args string) sdk.Content {
	return sdk.Content{Kind: sdk.ContentToolUse, CallID: id, Tool: tool, Args: json.RawMessage(args)}
}

func result(id, tool, text string) sdk.Content {
	return sdk.Content{Kind: sdk.ContentToolResult, CallID: id, Tool: tool, Text: text}
}

func text(s string) sdk.Content { return sdk.Content{Kind: sdk.ContentText, Text: s} }

func media(m sdk.Media) sdk.Content { return sdk.Content{Kind: sdk.ContentMedia, Media: &m} }

func requests() map[string]sdk.ModelRequest {
	zero := 0.0
	image := sdk.Media{MIME: "image/png", Name: "photo.png", Data: "aGk="}
	return map[string]sdk.ModelRequest{
		"minimal": hello(),
		"everything": {
			Model: "m", System: "Be brief.", Temperature: &zero, MaxTokens: 99,
			Messages: []sdk.Message{sdk.Text(sdk.RoleUser, "Hi <&>")},
			Tools: []sdk.ToolDefinition{
				{Name: "zeta", Description: "Z", Parameters: json.RawMessage(
					`{"type":"object","properties":{"z":{"const":1.10},"a":{"maximum":12345678901234567890}}}`)},
				{Name: "alpha"},
			},
			Output: json.RawMessage(`{"title":"Trip (answer)","type":"object","properties":{"b":{},"a":{}}}`),
		},
		"parallel_calls": {Model: "m", Messages: []sdk.Message{
			sdk.Text(sdk.RoleUser, "Both, please"),
			{Role: sdk.RoleAssistant, Seen: 1, Content: []sdk.Content{
				text("On it."), use("c1-0-aa", "find", `{"a":1}`), use("c1-1-bb", "find", `{"a":2}`),
			}},
			{Role: sdk.RoleUser, Content: []sdk.Content{
				result("c1-1-bb", "find", `{"two":2}`), result("c1-0-aa", "find", `{"one":1}`), text("And hurry"),
			}},
			{Role: sdk.RoleAssistant, Seen: 1, Content: []sdk.Content{use("c2-0-cc", "find", `{}`)}},
			{Role: sdk.RoleUser, Content: []sdk.Content{{
				Kind: sdk.ContentToolResult, CallID: "c2-0-cc", Tool: "find", Text: "no such thing", IsError: true,
			}}},
			sdk.Text(sdk.RoleUser, "one"), sdk.Text(sdk.RoleUser, "two"),
			{Role: sdk.RoleAssistant, Seen: 1},
			{Role: sdk.RoleAssistant, Content: []sdk.Content{text("a"), text("b")}},
		}},
		"misunderstood_calls": {Model: "m", Messages: []sdk.Message{{Role: sdk.RoleAssistant, Content: []sdk.Content{
			use("c1-0-aa", "f", `"{\"a\": 1}"`), use("c1-1-bb", "f", `"{\"a\": "`), use("c1-2-cc", "f", `""`),
			use("c1-3-dd", "f", ``), use("c1-4-ee", "f", `"[1]"`), use("c1-5-ff", "f", `"null"`),
		}}}},
		"media": {Model: "m", Messages: []sdk.Message{
			{Role: sdk.RoleUser, Seen: 2, Content: []sdk.Content{
				text("Look"), media(image), media(sdk.Media{MIME: "application/pdf", Data: "aGk="}),
			}},
			{Role: sdk.RoleUser, Content: []sdk.Content{
				text("New"), media(image), media(sdk.Media{MIME: "image/jpeg", URI: "https://example.com/a.jpg"}),
				media(sdk.Media{MIME: "application/pdf", Name: "bill.pdf", Data: "aGk="}),
				media(sdk.Media{MIME: "text/csv", Name: "t.csv", URI: "https://example.com/t.csv"}),
			}},
		}},
	}
}

func TestOpenAI_RequestBodies(t *testing.T) {
	for name, req := range requests() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var body []byte
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ = io.ReadAll(r.Body)
				answering(200, "application/json", plainAnswer)(w, r)
			})
			if _, err := p.Generate(t.Context(), req, nil); err != nil {
				t.Fatal(err)
			}
			var indented bytes.Buffer
			if err := json.Indent(&indented, body, "", "  "); err != nil {
				t.Fatal(err)
			}
			golden.Check(t, filepath.Join("testdata", name+".json"), append(indented.Bytes(), '\n'))
		})
	}
}

func TestOpenAI_Headers(t *testing.T) {
	t.Setenv("OPENAI_ORG_ID", "from-environment")
	t.Setenv("OPENAI_API_KEY", "from-environment")
	for _, tc := range []struct {
		name    string
		options llm.OpenAIOptions
		want    map[string]string
	}{
		{"given", llm.OpenAIOptions{APIKey: "k", Organization: "o", SendRun: true}, map[string]string{
			"Authorization": "Bearer k", "Openai-Organization": "o", "X-Agentd-Run": "trip%2F1%20%C3%BC",
		}},
		{"absent", llm.OpenAIOptions{}, map[string]string{
			"Authorization": "", "Openai-Organization": "", "X-Agentd-Run": "",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got http.Header
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got = r.Header
				answering(200, "application/json", plainAnswer)(w, r)
			}))
			t.Cleanup(server.Close)
			tc.options.BaseURL, tc.options.HTTPClient = server.URL, client(t)
			req := hello()
			req.Run = "trip/1 ü"
			if _, err := provider(t, tc.options).Generate(t.Context(), req, nil); err != nil {
				t.Fatal(err)
			}
			for header, want := range tc.want {
				if got.Get(header) != want {
					t.Errorf("%s: %q, want %q", header, got.Get(header), want)
				}
			}
		})
	}
}

func TestOpenAI_Reply(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(200, "application/json", `{"model":"m-2024","choices":[{"index":0,"finish_reason":"length",
		"message":{"role":"assistant","content":"Two.","tool_calls":[
			{"id":"call_x","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}},
			{"id":"call_y","type":"function","function":{"name":"g","arguments":"{\"cut"}}]}}],
		"usage":{"prompt_tokens":11,"completion_tokens":3,"total_tokens":14}}`))
	got, err := p.Generate(t.Context(), hello(), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := sdk.ModelReply{
		Text: "Two.", Model: "m", Truncated: true, Units: 14_000_000,
		Calls: []sdk.ToolRequest{{Name: "f", Arguments: `{"a": 1}`}, {Name: "g", Arguments: `{"cut`}},
		Usage: sdk.Usage{Prompt: 11, Completion: 3},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestOpenAI_RefusalIsText(t *testing.T) {
	t.Parallel()
	p := serve(t, answering(200, "application/json", `{"choices":[{"finish_reason":"stop",
		"message":{"content":null,"refusal":"I would rather not."}}]}`))
	got, err := p.Generate(t.Context(), hello(), nil)
	if err != nil || got.Text != "I would rather not." {
		t.Errorf("got %q, %v", got.Text, err)
	}
}

func TestOpenAI_Streams(t *testing.T) {
	t.Parallel()
	const head = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n"
	const tail = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}` + "\n\n" +
		`data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}` + "\n\ndata: [DONE]\n\n"
	call := func(delta string) string {
		return `data: {"choices":[{"index":0,"delta":{"tool_calls":[` + delta + `]}}]}` + "\n\n"
	}
	for _, tc := range []struct {
		name, stream string
		calls        []sdk.ToolRequest
		deltas       []sdk.Delta
	}{
		{
			"mixed fragments",
			call(`{"index":1,"id":"y","function":{"name":"g","arguments":""}}`) +
				call(`{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\""}}`) +
				call(`{"index":1,"function":{"arguments":"{}"}},{"index":0,"function":{"arguments":":1}"}}`),
			[]sdk.ToolRequest{{Name: "f", Arguments: `{"a":1}`}, {Name: "g", Arguments: `{}`}},
			[]sdk.Delta{{Tool: "g"}, {Tool: "f"}},
		},
		{
			"the same index for all",
			call(`{"index":0,"id":"x","function":{"name":"f","arguments":"{\"a\":1}"}}`) +
				call(`{"index":0,"id":"y","function":{"name":"f","arguments":"{\"a\":2}"}}`),
			[]sdk.ToolRequest{{Name: "f", Arguments: `{"a":1}`}, {Name: "f", Arguments: `{"a":2}`}},
			[]sdk.Delta{{Tool: "f"}, {Tool: "f"}},
		},
		{
			"name and id repeated",
			call(`{"index":0,"id":"x","function":{"name":"f","arguments":"{"}}`) +
				call(`{"index":0,"id":"x","function":{"name":"f","arguments":"}"}}`),
			[]sdk.ToolRequest{{Name: "f", Arguments: `{}`}},
			[]sdk.Delta{{Tool: "f"}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, answering(200, "text/event-stream", head+tc.stream+tail))
			var deltas []sdk.Delta
			got, err := p.Generate(t.Context(), hello(), func(d sdk.Delta) { deltas = append(deltas, d) })
			if err != nil {
				t.Fatal(err)
			}
			want := sdk.ModelReply{
				Model: "m", Calls: tc.calls, Usage: sdk.Usage{Prompt: 5, Completion: 2}, Units: 7_000_000,
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(tc.deltas, deltas); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestOpenAI_ContextErrorsPassThrough(t *testing.T) {
	t.Parallel()
	for _, streaming := range []bool{false, true} {
		asked, release := make(chan struct{}), make(chan struct{})
		p := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if streaming {
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}`+"\n\n")
				w.(http.Flusher).Flush()
			}
			close(asked)
			<-release
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-asked; cancel() }()
		var onDelta func(sdk.Delta)
		if streaming {
			onDelta = func(sdk.Delta) {}
		}
		_, err := p.Generate(ctx, hello(), onDelta)
		close(release)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("streaming %v: %v, want context.Canceled", streaming, err)
		}
		expired, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
		if _, err := p.Generate(expired, hello(), onDelta); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("streaming %v: %v, want context.DeadlineExceeded", streaming, err)
		}
		cancel()
	}
}

func TestOpenAI_BadSchemasAreAllReported(t *testing.T) {
	t.Parallel()
	req := hello()
	req.Tools = []sdk.ToolDefinition{{Name: "f", Parameters: json.RawMessage(`{`)}}
	req.Output = json.RawMessage(`nonsense`)
	_, err := provider(t, llm.OpenAIOptions{}).Generate(t.Context(), req, nil)
	if e := sdk.AsError(err); e.Code != sdk.CodeConfig || len(e.Faults) != 2 {
		t.Errorf("got %v", err)
	}
}

func TestOpenAI_RefusesAddressesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"localhost:8080", "ftp://example.com", "/v1", "http://user:hunter2@exa mple.com"} {
		_, err := llm.NewOpenAI(llm.OpenAIOptions{Name: "local", BaseURL: url})
		if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
