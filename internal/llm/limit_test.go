package llm_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentd/internal/llm"
	"agentd/sdk"
	"agentd/test/peak"
)

// endless writes text for as long as somebody reads, at most 1.5 GB.
func endless(status int, kind string, zip bool, begin, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		out := io.Writer(w)
		if zip {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			defer z.Close()
			out = z
		}
		w.WriteHeader(status)
		text := strings.Repeat(text, 1+(1<<16)/len(text))
		_, err := io.WriteString(out, begin)
		for left := 1500 << 20; left > 0 && err == nil; left -= len(text) {
			_, err = io.WriteString(out, text)
		}
	}
}

func chunk(delta string) string {
	return `data: {"choices":[{"index":0,"delta":` + delta + "}]}\n\n"
}

// calls begins n calls.
func calls(n int) string {
	var all strings.Builder
	for i := range n {
		all.WriteString(chunk(fmt.Sprintf(`{"tool_calls":[{"index":%d,"function":{"name":"x"}}]}`, i)))
	}
	return all.String()
}

func event(kind, data string) string { return "event: " + kind + "\ndata: " + data + "\n\n" }

// A provider that sends without end, or a little that becomes a lot, costs one call: the error says so, and nothing is kept.
func TestProvider_SendsWithoutEnd(t *testing.T) {
	t.Parallel()
	const stream, js = "text/event-stream", "application/json"
	long := strings.Repeat("x", 1000)
	const mib = 1 << 20
	begun := event("message_start", `{"type":"message_start","message":{}}`) + event("content_block_start", `{"type":"content_block_start","index":0,"content_block":{"type":"text"}}`)
	for name, tt := range map[string]struct {
		protocol string
		streamed bool
		handler  http.HandlerFunc
		limit    int
	}{
		"a zipped line":             {"openai", true, endless(200, stream, true, "data: ", long), 8 * mib},
		"an event of many lines":    {"openai", true, endless(200, stream, false, "", "data: "+long+"\n"), 8 * mib},
		"a zipped object":           {"openai", false, endless(200, js, true, `{"choices":[{"index":0,"message":{"content":"`, long), 8 * mib},
		"a zipped failure":          {"openai", true, endless(400, js, true, `{"error":{"message":"`, long), 8 * mib},
		"text":                      {"openai", true, endless(200, stream, false, "", chunk(`{"content":"`+long+`"}`)), 4 * mib},
		"arguments":                 {"openai", true, endless(200, stream, false, "", chunk(`{"tool_calls":[{"index":0,"function":{"arguments":"`+long+`"}}]}`)), 4 * mib},
		"calls":                     {"openai", true, endless(200, stream, false, "", calls(5000)), 4 * mib},
		"nothing":                   {"openai", true, endless(200, stream, false, "", chunk(`{"padding":"`+long+`"}`)), 64 * mib},
		"comments":                  {"openai", true, endless(200, stream, true, "", ": "+long+"\n\n"), 64 * mib},
		"a zipped line of claude":   {"anthropic", true, endless(200, stream, true, "data: ", long), 8 * mib},
		"text of claude":            {"anthropic", true, endless(200, stream, false, begun, event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+long+`"}}`)), 4 * mib},
		"blocks of claude":          {"anthropic", true, endless(200, stream, false, begun, event("content_block_start", `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","name":"x"}}`)), 4 * mib},
		"a zipped claude's refusal": {"anthropic", true, endless(400, js, true, `{"error":{"message":"`, long), 8 * mib},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peak.Memory(t, func(t *testing.T) {
				server := httptest.NewServer(tt.handler)
				defer server.Close()
				p, err := protocols[tt.protocol](server.URL, client(t))
				if err != nil {
					t.Fatal(err)
				}
				var listener func(sdk.Delta)
				if tt.streamed {
					listener = func(sdk.Delta) {}
				}
				_, err = p.Generate(t.Context(), hello(), listener)
				if !errors.Is(err, &sdk.Error{Code: sdk.CodeTooLarge}) {
					t.Errorf("nobody can tell that %v is about the size of the reply", err)
				}
				want := fmt.Sprintf("model provider \"vendor\" sent a reply that is larger than %d bytes; see max_bytes in docs/models.md", tt.limit)
				if e := sdk.AsError(err); e.Code != sdk.CodeModel || e.Message != want || e.Retryable {
					t.Errorf("error %v; want %s", err, want)
				}
			})
		})
	}
}

// Each model has a limit of its own.
func TestRegistry_BoundsResponsesByModel(t *testing.T) {
	t.Parallel()
	server := serverOf(t, answering(200, "application/json", plainAnswer+strings.Repeat(" ", 1000)))
	registry, err := llm.New(llm.Config{HTTPClient: client(t), Providers: []llm.ProviderConfig{{Name: "openai", BaseURL: server}}})
	if err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]sdk.Code{0: "", 100_000: "", 8000: sdk.CodeModel, 8: sdk.CodeModel, -1: sdk.CodeConfig} {
		p, err := registry.Provider(sdk.ModelSpec{Provider: "openai", Name: "m", MaxBytes: limit})
		if err == nil {
			_, err = p.Generate(t.Context(), hello(), nil)
		}
		got := sdk.Code("")
		if err != nil {
			got = sdk.AsError(err).Code
		}
		if got != want {
			t.Errorf("with max_bytes %d: %v; want %q", limit, err, want)
		}
	}
}
