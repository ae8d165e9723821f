package llm_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"agentd/internal/llm"
	"agentd/sdk"
)

func TestOpenAI_ErrorClasses(t *testing.T) {
	t.Parallel()
	const js = "application/json"
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		code    sdk.Code
		// says are parts of the message.
		says []string
	}{
		{
			"bad request", answering(400, js, `{"error":{"message":"Unknown field x","type":"invalid_request_error"}}`),
			sdk.CodeModel,
			[]string{"400", "Unknown field x"},
		},
		{
			"bad key", answering(401, js, `{"error":{"message":"Incorrect API key provided: my-secret-key."}}`),
			sdk.CodeConfig,
			[]string{"API key", "[key]"},
		},
		{
			"partly masked key", answering(401, js, `{"error":{"message":"Incorrect: sk-secr****t-key, see docs"}}`),
			sdk.CodeConfig,
			[]string{"Incorrect: [key], see docs"},
		},
		{"forbidden", answering(403, js, `{"error":"no access"}`), sdk.CodeConfig, []string{"allow", `"m"`, "no access"}},
		{
			"no model", answering(404, js, `{"detail":"model not found"}`),
			sdk.CodeConfig,
			[]string{`no model "m"`, "base URL", "model not found"},
		},
		{
			"policy", answering(403, js, `{"error":{"message":"not this","code":"content_filter"}}`),
			sdk.CodeModel,
			[]string{"not this"},
		},
		{"unprocessable", answering(422, js, `{"message":"bad\n  schema"}`), sdk.CodeModel, []string{"422", "bad schema"}},
		{"plain text", answering(413, "text/plain", "too large"), sdk.CodeModel, []string{"413", "too large"}},
		{"page", answering(403, "text/html", "<html>go away</html>"), sdk.CodeConfig, []string{"allow"}},
		{"long", answering(400, js, `{"error":{"message":"`+strings.Repeat("é ", 900)+`"}}`), sdk.CodeModel, []string{"…"}},
		{"odd fields", answering(400, js, `{"error":{"message":["x"],"code":7}}`), sdk.CodeModel, []string{"400"}},
		{
			"rate", answering(429, js, `{"error":{"message":"slow down","code":"rate_limit_exceeded"}}`),
			sdk.CodeRateLimited,
			[]string{"slow down"},
		},
		{
			"no credit", answering(429, js, `{"error":{"message":"pay","type":"insufficient_quota"}}`),
			sdk.CodeConfig,
			[]string{"credit", "pay"},
		},
		{"timeout", answering(408, js, `{}`), sdk.CodeUnavailable, []string{"408"}},
		{"conflict", answering(409, js, `{}`), sdk.CodeUnavailable, []string{"409"}},
		{"broken", answering(500, js, `{"error":{"message":"oops"}}`), sdk.CodeUnavailable, []string{"500", "oops"}},
		{"gateway", answering(502, "text/html", "<html>"), sdk.CodeUnavailable, []string{"502"}},
		{"overloaded", answering(529, js, ``), sdk.CodeUnavailable, []string{"529"}},
		{"no choices", answering(200, js, `{"choices":[]}`), sdk.CodeUnavailable, []string{"without an answer"}},
		{"not JSON", answering(200, js, `{"choices":[{`), sdk.CodeUnavailable, []string{"broke off"}},
		{"web page", answering(200, "text/html", "<html>"), sdk.CodeConfig, []string{"text/html", "base URL"}},
		{
			"filter", answering(200, js, `{"choices":[{"finish_reason":"content_filter","message":{"content":"I"}}]}`),
			sdk.CodeModel,
			[]string{"content filter"},
		},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", js)
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"choices":[`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, sdk.CodeUnavailable, []string{"broke off"}},
		{
			"no answer at all", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			sdk.CodeUnavailable,
			[]string{"could not be reached"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, tc.handler)
			_, err := p.Generate(t.Context(), hello(), nil)
			checkFailure(t, err, tc.code, tc.says)
		})
	}
}

func checkFailure(t *testing.T, err error, code sdk.Code, says []string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	e := sdk.AsError(err)
	retryable := code == sdk.CodeRateLimited || code == sdk.CodeUnavailable
	if e.Code != code || e.Retryable != retryable {
		t.Errorf("got %s (retryable %v), want %s: %v", e.Code, e.Retryable, code, err)
	}
	for _, part := range says {
		if !strings.Contains(e.Message, part) {
			t.Errorf("message %q does not say %q", e.Message, part)
		}
	}
	if len([]rune(e.Message)) > 600 {
		t.Errorf("the message has %d characters", len([]rune(e.Message)))
	}
	if strings.Contains(err.Error(), "secret") || strings.Contains(e.Message, "go away") {
		t.Errorf("the error leaks: %v", err)
	}
}

func TestOpenAI_StreamErrorClasses(t *testing.T) {
	t.Parallel()
	const first = `data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}` + "\n\n"
	stream := func(rest string) http.HandlerFunc { return answering(200, "text/event-stream", first+rest) }
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		code    sdk.Code
		says    []string
	}{
		{"ends early", stream(""), sdk.CodeUnavailable, []string{"broke off"}},
		{"done without a reason", stream("data: [DONE]\n\n"), sdk.CodeUnavailable, []string{"broke off"}},
		{"not JSON", stream("data: {\n\n"), sdk.CodeUnavailable, []string{"broke off"}},
		{
			"server error", stream(`data: {"error":{"message":"oops","type":"server_error"}}` + "\n\n"),
			sdk.CodeUnavailable,
			[]string{"oops"},
		},
		{
			"rate", stream(`data: {"error":{"message":"slow","code":"rate_limit_exceeded"}}` + "\n\n"),
			sdk.CodeRateLimited,
			[]string{"slow"},
		},
		{
			"refused", stream(`data: {"error":{"message":"too long","code":"context_length_exceeded"}}` + "\n\n"),
			sdk.CodeModel,
			[]string{"too long"},
		},
		{
			"filter", stream(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"content_filter"}]}` + "\n\n"),
			sdk.CodeModel,
			[]string{"content filter"},
		},
		{"web page", answering(200, "text/html", "<html>"), sdk.CodeConfig, []string{"text/html", "base URL"}},
		{"status", answering(503, "text/plain", "busy"), sdk.CodeUnavailable, []string{"503", "busy"}},
		{"cut", func(w http.ResponseWriter, r *http.Request) {
			stream("data: {")(w, r)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, sdk.CodeUnavailable, []string{"broke off"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, tc.handler)
			_, err := p.Generate(t.Context(), hello(), func(sdk.Delta) {})
			checkFailure(t, err, tc.code, tc.says)
		})
	}
}

func TestOpenAI_NobodyListens(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	p := provider(t, llm.OpenAIOptions{BaseURL: server.URL + "/v1?key=private", HTTPClient: client(t)})
	_, err := p.Generate(t.Context(), hello(), nil)
	checkFailure(t, err, sdk.CodeUnavailable, []string{"could not be reached"})
	if strings.Contains(err.Error(), "private") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("%v; want why, without the URL's secret", err)
	}
}

func TestOpenAI_RetryAfter(t *testing.T) {
	t.Parallel()
	date := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		name    string
		status  int
		headers map[string]string
		want    time.Duration
	}{
		{"seconds", 429, map[string]string{"Retry-After": "7"}, 7 * time.Second},
		{"fraction", 429, map[string]string{"Retry-After": "0.5"}, 500 * time.Millisecond},
		{"milliseconds first", 429, map[string]string{"Retry-After": "1", "Retry-After-Ms": "250"}, 250 * time.Millisecond},
		{"date", 429, map[string]string{
			"Date": date.Format(http.TimeFormat), "Retry-After": date.Add(90 * time.Second).Format(http.TimeFormat),
		}, 90 * time.Second},
		{"past date", 429, map[string]string{
			"Date": date.Format(http.TimeFormat), "Retry-After": date.Add(-time.Hour).Format(http.TimeFormat),
		}, 0},
		{"a date that never comes", 429, map[string]string{"Retry-After": "Fri, 31 Dec 9999 23:59:59 GMT"}, 24 * time.Hour},
		{"also when overloaded", 503, map[string]string{"Retry-After": "3"}, 3 * time.Second},
		{"negative", 429, map[string]string{"Retry-After": "-3"}, 0},
		{"not a number", 429, map[string]string{"Retry-After": "NaN"}, 0},
		{"endless", 429, map[string]string{"Retry-After": "1e300"}, 24 * time.Hour},
		{"nonsense", 429, map[string]string{"Retry-After": "soon"}, 0},
		{"none", 429, nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := serve(t, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range tc.headers {
					w.Header().Set(k, v)
				}
				answering(tc.status, "application/json", `{"error":{"message":"wait"}}`)(w, r)
			})
			_, err := p.Generate(t.Context(), hello(), nil)
			if e := sdk.AsError(err); e.RetryAfter != tc.want || !e.Retryable {
				t.Errorf("got %s (retryable %v), want %s", e.RetryAfter, e.Retryable, tc.want)
			}
		})
	}
}
