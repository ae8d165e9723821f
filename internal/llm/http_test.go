package llm_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

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

// What breaks, or does not come, after a model has ended its reply costs at most what it used: who asks again pays twice, or gets another text.
func TestProvider_AReplyThatIsThereIsTaken(t *testing.T) {
	t.Parallel()
	const answer = `data: {"choices":[{"index":0,"delta":{"content":"Hello"}}]}` + "\n\n"
	const end = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"
	const used = `data: {"choices":[],"usage":{"prompt_tokens":2,"completion_tokens":3}}` + "\n\n"
	const claude = `data: {"type":"message_start","message":{"usage":{"input_tokens":2}}}` + "\n\n" +
		`data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hello"}}` + "\n\n"
	const claudeEnd = `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":3}}` + "\n\n"
	for name, tt := range map[string]struct {
		protocol, stream string
		usage            sdk.Usage
		code             sdk.Code
	}{
		"after its end":             {"openai", answer + end, sdk.Usage{}, ""},
		"in the middle of its end":  {"openai", answer + end + used[:20], sdk.Usage{}, ""},
		"after its usage":           {"openai", answer + end + used, sdk.Usage{Prompt: 2, Completion: 3}, ""},
		"before its end":            {"openai", answer + end[:20], sdk.Usage{}, sdk.CodeUnavailable},
		"before the end of claude":  {"anthropic", claude, sdk.Usage{}, sdk.CodeUnavailable},
		"after the end of claude":   {"anthropic", claude + claudeEnd, sdk.Usage{Prompt: 2, Completion: 3}, ""},
		"after an error of claude":  {"anthropic", claude + claudeEnd + `data: {"type":"error"}` + "\n\n", sdk.Usage{}, sdk.CodeUnavailable},
		"after an error of another": {"openai", answer + end + `data: {"error":{}}` + "\n\n", sdk.Usage{}, sdk.CodeUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := streaming(t, tt.protocol, io.MultiReader(strings.NewReader(tt.stream), iotest.ErrReader(io.ErrUnexpectedEOF)))
			reply, err := p.Generate(t.Context(), hello(), func(sdk.Delta) {})
			if tt.code != "" {
				checkFailure(t, err, tt.code, nil)
			} else if err != nil || reply.Text != "Hello" || reply.Usage != tt.usage {
				t.Errorf("got %+v, %v", reply, err)
			}
		})
	}
}

// A server may keep the connection after the last event.
func TestAnthropic_ReadsToTheLastEvent(t *testing.T) {
	t.Parallel()
	const stream = `data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
	readOn := readFunc(func([]byte) (int, error) {
		t.Error("a message that has ended is read on")
		return 0, io.EOF
	})
	if _, err := streaming(t, "anthropic", io.MultiReader(strings.NewReader(stream), readOn)).Generate(t.Context(), hello(), nil); err != nil {
		t.Error(err)
	}
}

// streaming is a provider whose server answers with a stream of that body.
func streaming(t *testing.T, protocol string, body io.Reader) sdk.Provider {
	t.Helper()
	p, err := protocols[protocol]("http://vendor.example", &http.Client{Transport: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: io.NopCloser(body)}, nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }
