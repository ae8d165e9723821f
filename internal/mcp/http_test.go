package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/sdk"
)

// serveRaw is a server of the older protocol over HTTP with a session and the tool pay. What it is sent beside what every server
// knows goes to handle.
func serveRaw(t *testing.T, handle func(http.ResponseWriter, *http.Request, fakeMessage)) ServerConfig {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m fakeMessage
		if body, err := io.ReadAll(r.Body); err != nil || len(body) > 0 && json.Unmarshal(body, &m) != nil {
			t.Errorf("the client sends %s, %v", body, err)
		}
		if r.Method == http.MethodDelete {
			m.Method = endsSession
		}
		w.Header().Set("Mcp-Session-Id", "session")
		switch {
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case m.Method == "server/discover":
			http.Error(w, "an older server", http.StatusBadRequest)
		case m.Method == "initialize":
			reply(w, m, `{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"raw","version":"1"}}`)
		case m.Method == "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		case m.Method == "tools/list":
			reply(w, m, `{"tools":[{"name":"pay","inputSchema":{"type":"object"}}]}`)
		default:
			handle(w, r, m)
		}
	}))
	t.Cleanup(h.Close)
	return ServerConfig{Name: "raw", URL: h.URL, Policy: Policy{LocalHosts: []string{"127.0.0.1"}}}
}

// endsSession is the method of a message that stands for the request that ends a session; a response has none.
const endsSession = "DELETE"

func reply(w http.ResponseWriter, m fakeMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

const paid = `{"content":[{"type":"text","text":"paid"}]}`

// A call is made again when the server has forgotten its session, but for one that is made once: nobody knows whether it was.
func TestServer_MakesAnAtMostOnceCallOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		once  []string
		code  sdk.Code
		calls int64
	}{"at least once": {nil, "", 2}, "at most once": {[]string{"pay"}, sdk.CodeOutcomeUnknown, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			config := serveRaw(t, func(w http.ResponseWriter, _ *http.Request, m fakeMessage) {
				if m.Method == "tools/call" && calls.Add(1) == 1 {
					http.Error(w, "no such session", http.StatusNotFound)
					return
				}
				reply(w, m, paid)
			})
			config.AtMostOnce = c.once
			text, err := call(t, tools(t, start(t, config))["pay"], sdk.ToolCall{})
			if code(err) != c.code || calls.Load() != c.calls {
				t.Errorf("after %d calls: %s, %v; want %d and %q", calls.Load(), text, err, c.calls, c.code)
			}
		})
	}
}

// A session that is known to be gone is opened before the next call, which is not lost to it.
func TestServer_OpensASessionThatIsGoneBeforeACall(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := serveRaw(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) {
		switch {
		case m.Method == "notifications/cancelled":
			w.WriteHeader(http.StatusNotFound)
		case m.Method == "tools/call" && ctx.Err() == nil:
			cancel()
			<-r.Context().Done()
		default:
			reply(w, m, paid)
		}
	})
	config.AtMostOnce = []string{"pay"}
	s := start(t, config)
	pay := tools(t, s)["pay"]
	if _, err := pay.Run(ctx, sdk.ToolCall{ID: "c1-0-first", Args: json.RawMessage(`{}`)}); !errors.Is(err, context.Canceled) {
		t.Errorf("the first call ends with %v", err)
	}
	s.conn.givenUp.Wait()
	if text, err := call(t, pay, sdk.ToolCall{}); err != nil || text != `{"text":"paid"}` {
		t.Errorf("the next call ends with %s, %v", text, err)
	}
}

// A server may ask as often as it likes, one after the other.
func TestServer_OverHTTPAsksAgainAndAgain(t *testing.T) {
	t.Parallel()
	pongs := make(chan struct{})
	config := serveRaw(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) {
		switch m.Method {
		case endsSession:
			return
		case "":
			w.WriteHeader(http.StatusAccepted)
			pongs <- struct{}{}
			return
		}
		for range 4 * maxRequests {
			ping(w)
			select {
			case <-pongs:
			case <-r.Context().Done():
				return
			}
		}
		fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", m.ID, paid)
	})
	if text, err := call(t, tools(t, start(t, config))["pay"], sdk.ToolCall{}); err != nil || text != `{"text":"paid"}` {
		t.Errorf("the call ends with %s, %v", text, err)
	}
}

// A server that has more requests under way than are answered at once is lost; one that has as many is not.
func TestServer_OverHTTPIsLostWhenItAsksTooMuch(t *testing.T) {
	t.Parallel()
	pongs := make(chan struct{}, 2*maxRequests)
	ask := make(chan struct{})
	config := serveRaw(t, func(w http.ResponseWriter, r *http.Request, m fakeMessage) {
		switch m.Method {
		case endsSession:
			return
		case "": // it is never taken
			pongs <- struct{}{}
			<-r.Context().Done()
			return
		}
		for range maxRequests {
			ping(w)
		}
		<-ask
		ping(w)
		<-r.Context().Done()
	})
	s := start(t, config)
	pay := tools(t, s)["pay"]
	ended := make(chan error, 1)
	go func() {
		_, err := pay.Run(t.Context(), sdk.ToolCall{ID: "c1-0-test", Args: json.RawMessage(`{}`)})
		ended <- err
	}()
	for range maxRequests {
		receive(t, pongs)
	}
	if s.conn.lost.Load() {
		t.Errorf("the connection is lost with %d requests under way", maxRequests)
	}
	close(ask)
	if err := receive(t, ended); code(err) != sdk.CodeUnavailable || s.conn.alive() || len(pongs) > 0 {
		t.Errorf("the call ends with %v; the connection lives: %t; %d more answers came", err, s.conn.alive(), len(pongs))
	}
}

// ping writes a request to the stream of a call.
func ping(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n\n")
	w.(http.Flusher).Flush()
}

// A call returns when its context ends, also while the connection before takes its time to end. It is waited for then.
func TestServer_CallDoesNotWaitForAFormerConnection(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ends := make(chan struct{})
	config := serveRaw(t, func(w http.ResponseWriter, _ *http.Request, m fakeMessage) {
		if m.Method == endsSession {
			cancel()
			<-ends
			return
		}
		reply(w, m, paid)
	})
	s := start(t, config)
	s.older.Store(true) // else a first connection is let go of for another
	pay := tools(t, s)["pay"]
	former := s.conn
	former.lost.Store(true)
	ended := make(chan error, 1)
	go func() {
		_, err := pay.Run(ctx, sdk.ToolCall{ID: "c1-0-first", Args: json.RawMessage(`{}`)})
		ended <- err
	}()
	err := receive(t, ended)
	if code(err) != sdk.CodeUnavailable || s.conn != former {
		t.Errorf("the call ends with %v; there is another connection: %t", err, s.conn != former)
	}
	close(ends)
	if text, err := call(t, pay, sdk.ToolCall{}); err != nil || text != `{"text":"paid"}` {
		t.Errorf("the next call ends with %s, %v", text, err)
	}
}

// docs/mcp.md says what the limits are.
func TestDocs_HaveTheLimits(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(string(page)), " ")
	for _, sentence := range []string{
		fmt.Sprintf("A server may list %d,%03d tools in %d MiB.", maxTools/1000, maxTools%1000, maxList>>20),
		fmt.Sprintf("A response or a message of a server may have %d MiB", maxMessage>>20),
		fmt.Sprintf("At most %d requests of a server are under way at once", maxRequests),
		fmt.Sprintf("leaves its stdin unread for %d s", int(writeTimeout.Seconds())),
	} {
		if !strings.Contains(text, sentence) {
			t.Errorf("docs/mcp.md does not say %q", sentence)
		}
	}
}
