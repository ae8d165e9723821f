package llm_test

import (
	"net/http"
	"testing"

	"agentd/internal/llm"
	"agentd/sdk"
)

// Compatible servers end lines otherwise, send comments and nulls, and members of other types: what can be read is.
func TestOpenAI_ReadsWhatItCan(t *testing.T) {
	t.Parallel()
	const chunks = ": keep-alive\r\n\r\nevent: chunk\r\n" +
		`data:{"error":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}],"usage":null}` + "\r\n\r\n" +
		`data: {"choices":[{"index":0,"delta":{"content":"lo","refusal":null,"tool_calls":null},` + "\n" +
		`data: "finish_reason":"stop","logprobs":[]}],"usage":{"prompt_tokens":2,"completion_tokens":"many"}}` + "\n\n" +
		"data: [DONE]\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" again\"}}]}\n\n"
	whole := `{"choices":[{"index":"first","finish_reason":"stop","message":{"content":"Hello","refusal":[]}}],` +
		`"usage":{"prompt_tokens":2,"completion_tokens":"many"}}`
	for name, tt := range map[string]struct {
		contentType, body string
		onDelta           func(sdk.Delta)
	}{
		"streamed": {"text/event-stream", chunks, func(sdk.Delta) {}},
		"whole":    {"application/json; charset=utf-8", whole, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reply, err := serve(t, answering(200, tt.contentType, tt.body)).Generate(t.Context(), hello(), tt.onDelta)
			if err != nil || reply.Text != "Hello" || reply.Usage.Prompt != 2 {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
}

// An event of a stream that is not closed is not whole, and what cannot be read as JSON is a reply that broke off.
func TestOpenAI_BrokenStreams(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"not closed": `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n",
		"no JSON":    "data: {\"choices\":[\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := serve(t, answering(200, "text/event-stream", body)).Generate(t.Context(), hello(), func(sdk.Delta) {})
			if e := sdk.AsError(err); e.Code != sdk.CodeUnavailable || !e.Retryable {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A base URL keeps its query, and may end with a slash.
func TestOpenAI_BaseURL(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	base := serverOf(t, answering(200, "application/json", plainAnswer))
	p := provider(t, llm.OpenAIOptions{BaseURL: base + "/v1/?api-version=2", HTTPClient: recording(t, asked)})
	if _, err := p.Generate(t.Context(), hello(), nil); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; got != base+"/v1/chat/completions?api-version=2" {
		t.Errorf("asked %s", got)
	}
}

// recording is a client that tells where it asks.
func recording(t *testing.T, asked chan<- string) *http.Client {
	t.Helper()
	c := client(t)
	base := c.Transport
	c.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		asked <- r.URL.String()
		return base.RoundTrip(r)
	})
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
