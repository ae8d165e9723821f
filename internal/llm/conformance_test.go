package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
)

const secretKey = "my-secret-key"

// protocols are the providers that the suite runs against, by the address of a server.
var protocols = map[string]func(url string, client *http.Client) (sdk.Provider, error){
	"openai": func(url string, client *http.Client) (sdk.Provider, error) {
		return llm.NewOpenAI(llm.OpenAIOptions{Name: "vendor", BaseURL: url + "/v1", APIKey: secretKey, SendRun: true, HTTPClient: client})
	},
	"anthropic": func(url string, client *http.Client) (sdk.Provider, error) {
		return llm.NewAnthropic(llm.AnthropicOptions{Name: "vendor", BaseURL: url, APIKey: secretKey, SendRun: true, HTTPClient: client})
	},
}

// conform runs a test with each provider, asking a server of h.
func conform(t *testing.T, h http.Handler, test func(t *testing.T, p sdk.Provider)) {
	t.Helper()
	for name, newProvider := range protocols {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(h)
			t.Cleanup(server.Close)
			p, err := newProvider(server.URL, client(t))
			if err != nil {
				t.Fatal(err)
			}
			test(t, p)
		})
	}
}

// scriptedBy is a server that answers from a script.
func scriptedBy(t *testing.T, script string) http.Handler {
	t.Helper()
	s, err := mockllm.ParseScript("script.yaml", []byte(script))
	if err != nil {
		t.Fatal(err)
	}
	return mockllm.New(s)
}

func TestProvider_TextCallsAndUsage(t *testing.T) {
	t.Parallel()
	conform(t, scriptedBy(t, `
conversations: [{match: {run: r-1}, replies: [{
  text: I look them up now., usage: {prompt: 11, completion: 7},
  calls: [{name: find, arguments: {to: Lisbon, "n": 1.50}}, {name: weather}]}]}]`), func(t *testing.T, p sdk.Provider) {
		req := hello()
		req.Run = "r-1"
		req.Tools = []sdk.ToolDefinition{{Name: "find", Parameters: json.RawMessage(`{"type":"object"}`)}, {Name: "weather"}}
		want := sdk.ModelReply{
			Text: "I look them up now.", Model: "m", Usage: sdk.Usage{Prompt: 11, Completion: 7}, Units: 18_000_000,
			Calls: []sdk.ToolRequest{{Name: "find", Arguments: `{"to":"Lisbon","n":1.50}`}, {Name: "weather", Arguments: "{}"}},
		}
		whole, err := p.Generate(t.Context(), req, nil)
		if diff := cmp.Diff(want, whole); diff != "" || err != nil {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
		var live string
		var begun []string
		streamed, err := p.Generate(t.Context(), req, func(d sdk.Delta) {
			live += d.Text
			if d.Tool != "" {
				begun = append(begun, d.Tool)
			}
		})
		if diff := cmp.Diff(want, streamed); diff != "" || err != nil {
			t.Errorf("streamed: error %v (-want +got):\n%s", err, diff)
		}
		if live != want.Text || !cmp.Equal(begun, []string{"find", "weather"}) {
			t.Errorf("live: text %q, tools %q", live, begun)
		}
	})
}

func TestProvider_WhyAReplyEnds(t *testing.T) {
	t.Parallel()
	conform(t, scriptedBy(t, `
conversations:
  - {match: {first: long}, replies: [{text: Once upon, finish: length}]}
  - {match: {first: rude}, replies: [{finish: content_filter}]}
  - {match: {first: cut}, replies: [{text: Half of this is lost on the way., faults: [{cut: true, times: -1}]}]}`),
		func(t *testing.T, p sdk.Provider) {
			ask := func(text string) (sdk.ModelReply, error) {
				req := hello()
				req.Messages[0] = sdk.Text(sdk.RoleUser, text)
				return p.Generate(t.Context(), req, func(sdk.Delta) {})
			}
			if reply, err := ask("long"); err != nil || !reply.Truncated || reply.Text != "Once upon" {
				t.Errorf("cut by its length: %+v, %v", reply, err)
			}
			if _, err := ask("rude"); sdk.AsError(err).Code != sdk.CodeModel || sdk.AsError(err).Retryable {
				t.Errorf("filtered: %v", err)
			}
			if _, err := ask("cut"); sdk.AsError(err).Code != sdk.CodeUnavailable || !sdk.AsError(err).Retryable {
				t.Errorf("a broken connection: %v", err)
			}
		})
}

func TestProvider_ErrorClasses(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]sdk.Error{
		400: {Code: sdk.CodeModel}, 413: {Code: sdk.CodeModel}, 422: {Code: sdk.CodeModel}, 451: {Code: sdk.CodeModel},
		401: {Code: sdk.CodeConfig}, 402: {Code: sdk.CodeConfig}, 403: {Code: sdk.CodeConfig}, 404: {Code: sdk.CodeConfig},
		405: {Code: sdk.CodeConfig},
		429: {Code: sdk.CodeRateLimited, Retryable: true, RetryAfter: 3 * time.Second},
		408: {Code: sdk.CodeUnavailable, Retryable: true}, 500: {Code: sdk.CodeUnavailable, Retryable: true},
		503: {Code: sdk.CodeUnavailable, Retryable: true}, 529: {Code: sdk.CodeUnavailable, Retryable: true},
	} {
		h := func(w http.ResponseWriter, _ *http.Request) {
			if status == http.StatusTooManyRequests {
				w.Header().Set("Retry-After", "3")
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"type":"error","error":{"type":"x","message":"your key `+secretKey+` is odd"}}`)
		}
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			conform(t, http.HandlerFunc(h), func(t *testing.T, p sdk.Provider) {
				_, err := p.Generate(t.Context(), hello(), nil)
				got, ok := errors.AsType[*sdk.Error](err)
				if !ok || got.Code != want.Code || got.Retryable != want.Retryable || got.RetryAfter != want.RetryAfter {
					t.Fatalf("status %d: %#v", status, err)
				}
				if strings.Contains(err.Error(), secretKey) || !strings.Contains(got.Message, `"vendor"`) {
					t.Errorf("status %d: %s", status, err)
				}
			})
		})
	}
}

func TestProvider_AnotherKindOfServer(t *testing.T) {
	t.Parallel()
	conform(t, answering(200, "text/html", "<html>Welcome</html>"), func(t *testing.T, p sdk.Provider) {
		_, err := p.Generate(t.Context(), hello(), nil)
		if e := sdk.AsError(err); e.Code != sdk.CodeConfig || !strings.Contains(e.Message, "base URL") {
			t.Errorf("got %v", err)
		}
	})
}

// A redirect would carry the key and the prompt to a host that nobody has configured.
func TestProvider_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status   int
		location func(other string) string
		says     string
	}{
		"with the body":    {307, func(other string) string { return other + "/v1?token=secret" }, "redirects to"},
		"for good":         {308, func(other string) string { return other }, "redirects to"},
		"as another":       {302, func(other string) string { return strings.Replace(other, "//", "//user:secret@", 1) }, "redirects to"},
		"to nowhere":       {301, func(string) string { return "" }, "status 301"},
		"from the gateway": {304, func(string) string { return "" }, "status 304"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := serverOf(t, func(_ http.ResponseWriter, r *http.Request) {
				t.Errorf("another host is asked, with the key %q and %q", r.Header.Get("X-Api-Key"), r.Header.Get("Authorization"))
			})
			h := func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", tt.location(other))
				w.WriteHeader(tt.status)
			}
			conform(t, http.HandlerFunc(h), func(t *testing.T, p sdk.Provider) {
				_, err := p.Generate(t.Context(), hello(), nil)
				checkFailure(t, err, sdk.CodeConfig, []string{tt.says, "base URL"})
				if at, _ := url.Parse(other); tt.says == "redirects to" && !strings.Contains(sdk.AsError(err).Message, at.Host) {
					t.Errorf("nobody reads where it points: %v", err)
				}
			})
		})
	}
}

func TestProvider_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	var cancels sync.Map // by run, because the providers are tested at once
	h := func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a server notices that a client goes once it has read its request
		if cancel, ok := cancels.Load(r.Header.Get(llm.RunHeader)); ok {
			cancel.(context.CancelFunc)()
		}
		<-r.Context().Done()
	}
	conform(t, http.HandlerFunc(h), func(t *testing.T, p sdk.Provider) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		question := hello()
		question.Run = path.Base(t.Name())
		cancels.Store(question.Run, cancel)
		if _, err := p.Generate(ctx, question, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}

func TestProvider_NoSchema(t *testing.T) {
	t.Parallel()
	conform(t, http.NotFoundHandler(), func(t *testing.T, p sdk.Provider) {
		req := hello()
		req.Tools, req.Output = []sdk.ToolDefinition{{Name: "a", Parameters: json.RawMessage(`{`)}}, json.RawMessage(`}`)
		_, err := p.Generate(t.Context(), req, nil)
		if e := sdk.AsError(err); e.Code != sdk.CodeConfig || len(e.Faults) != 2 {
			t.Errorf("got %v", err)
		}
	})
}

// TestProvider_HistoryOfAnother continues a conversation that another model began: its thinking is left out, ids of calls
// are kept, and each result follows its call.
func TestProvider_HistoryOfAnother(t *testing.T) {
	t.Parallel()
	conform(t, scriptedBy(t, `
conversations: [{expect: [
  {role: system, content: Be brief.},
  {role: user, content: Both},
  {role: assistant, content: On it., tool_calls: [
    {id: c1-0-aa, type: function, function: {name: find, arguments: '{"a":1}'}},
    {id: c1-1-bb, type: function, function: {name: mcp_gone, arguments: '{}'}}]},
  {role: tool, tool_call_id: c1-0-aa, content: '{"one":1}'},
  {role: tool, tool_call_id: c1-1-bb, content: 'no such tool'},
  {role: assistant, content: Done.}]}]`), func(t *testing.T, p sdk.Provider) {
		req := sdk.ModelRequest{Model: "m", System: "Be brief.", Messages: []sdk.Message{
			sdk.Text(sdk.RoleUser, "Both"),
			{Role: sdk.RoleAssistant, Seen: 1, Content: []sdk.Content{
				{Kind: sdk.ContentThinking, Text: "hm", Signature: "sig", Model: "other/n"},
				{Kind: sdk.ContentRedacted, Signature: "sig", Model: "other/n"},
				text("On it."), use("c1-0-aa", "find", `{"a":1}`), use("c1-1-bb", "mcp.gone", ``),
			}},
			{Role: sdk.RoleUser, Content: []sdk.Content{result("c1-0-aa", "find", `{"one":1}`)}},
			{Role: sdk.RoleUser, Content: []sdk.Content{{
				Kind: sdk.ContentToolResult, CallID: "c1-1-bb", Tool: "mcp.gone", Text: "no such tool", IsError: true,
			}}},
		}}
		reply, err := p.Generate(t.Context(), req, nil)
		if err != nil || reply.Text != "Done." {
			t.Errorf("reply %q, error %v", reply.Text, err)
		}
	})
}
