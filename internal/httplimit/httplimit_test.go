package httplimit_test

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentd/internal/httplimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read is how much of a response is read, and the limit that it passed.
func read(t *testing.T, limits httplimit.Limits, h http.HandlerFunc) (n int, passed int64) {
	t.Helper()
	server := httptest.NewServer(h)
	defer server.Close()
	client := &http.Client{Transport: &httplimit.Transport{
		Base: &http.Transport{}, Limits: func(*http.Request) httplimit.Limits { return limits },
	}}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if large, ok := errors.AsType[*httplimit.TooLarge](err); ok {
		return len(data), large.Limit
	}
	if err != nil {
		t.Fatal(err)
	}
	return len(data), 0
}

func TestTransport_BoundsBodies(t *testing.T) {
	t.Parallel()
	answer := func(kind, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			_, _ = io.WriteString(w, body)
		}
	}
	const stream = "text/event-stream; charset=utf-8"
	for name, tt := range map[string]struct {
		limits  httplimit.Limits
		handler http.HandlerFunc
		n       int
		passed  int64
	}{
		"as much as may be":  {httplimit.Limits{Total: 8}, answer("application/json", "12345678"), 8, 0},
		"one byte more":      {httplimit.Limits{Total: 8}, answer("application/json", "123456789"), 0, 8},
		"a whole body":       {httplimit.Limits{Total: 99, Part: 8}, answer("application/json", "1\n\n2\n\n3\n\n4"), 0, 8},
		"events":             {httplimit.Limits{Total: 99, Part: 11}, answer(stream, "data: 1\n\ndata: 2\r\n\r\ndata: 3\n\n"), 29, 0},
		"an event":           {httplimit.Limits{Total: 99, Part: 11}, answer(stream, "data: 1\n\ndata: 23456\n\n"), 0, 11},
		"an event in lines":  {httplimit.Limits{Total: 99, Part: 11}, answer(stream, "data: 1\ndata: 2\n\n"), 0, 11},
		"events without end": {httplimit.Limits{Total: 99, Part: 9}, answer(stream, strings.Repeat("data: 1\n\n", 20)), 0, 99},
		"after decompression": {httplimit.Limits{Total: 1 << 20}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(make([]byte, 2<<20)) // 2 KB on the wire
			_ = z.Close()
		}, -1, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, passed := read(t, tt.limits, tt.handler)
			if passed != tt.passed || passed == 0 && n != tt.n {
				t.Errorf("%d bytes, limit %d; want %d, %d", n, passed, tt.n, tt.passed)
			}
		})
	}
}
