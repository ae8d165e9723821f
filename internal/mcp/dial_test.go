package mcp

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"agentd/sdk"
)

func TestCheckAddress_OnlyPublicUnlessLocal(t *testing.T) {
	t.Parallel()
	for address, public := range map[string]bool{
		"93.184.216.34:443": true, "[2606:2800:220:1::1]:443": true,
		"127.0.0.1:80": false, "[::1]:80": false, "10.1.2.3:443": false, "172.16.0.1:443": false, "192.168.1.1:443": false,
		"169.254.169.254:80": false, "[fe80::1]:80": false, "[fc00::1]:80": false, "[::ffff:10.0.0.1]:80": false,
		"[::ffff:169.254.169.254]:80": false, "100.64.0.1:80": false, "0.0.0.0:80": false, "[::]:80": false, "224.0.0.1:80": false,
	} {
		err := checkAddress(address, false)
		if (err == nil) != public {
			t.Errorf("%s: %v, want public %t", address, err, public)
		}
		if err != nil && !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) {
			t.Errorf("%s: %v", address, err)
		}
		if err := checkAddress(address, true); err != nil {
			t.Errorf("%s as a local host: %v", address, err)
		}
	}
	if err := checkAddress("nonsense", true); err == nil {
		t.Error("something that is not an address is dialled")
	}
}

// The address is checked when it is dialled: a host that is listed and means a loopback address is not reached.
func TestHTTPClient_ChecksWhatANameMeans(t *testing.T) {
	t.Parallel()
	var reached atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Store(true) }))
	t.Cleanup(server.Close)
	url := strings.Replace(server.URL, "127.0.0.1", "localhost", 1)
	get := func(p Policy) error {
		client := p.httpClient("localhost")
		defer client.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(request)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	if err := get(Policy{Hosts: []string{"localhost"}}); !errors.Is(err, &sdk.Error{Code: sdk.CodePermissionDenied}) || reached.Load() {
		t.Errorf("error %v, reached %t", err, reached.Load())
	}
	if err := get(Policy{LocalHosts: []string{"localhost"}}); err != nil || !reached.Load() {
		t.Errorf("error %v, reached %t", err, reached.Load())
	}
}

// A redirect would carry the configured headers to a host that nobody has listed.
func TestHTTPClient_FollowsNoRedirect(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/", http.StatusTemporaryRedirect))
	t.Cleanup(server.Close)
	p := Policy{LocalHosts: []string{"127.0.0.1"}}
	client := p.httpClient("127.0.0.1")
	t.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
		t.Errorf("status %s, %v", resp.Status, err)
	}
}

// The URL of a server may hold a secret: neither its errors nor the log, with all that the library says of itself, repeat it.
func TestServer_DoesNotTellItsURL(t *testing.T) {
	t.Parallel()
	config := serveRaw(t, func(w http.ResponseWriter, _ *http.Request, m fakeMessage) {
		if m.Method != endsSession {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			err = conn.Close() // the client gets no answer
		}
		if err != nil {
			t.Error(err)
		}
	})
	config.URL += "/mcp?key=private"
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, tt := range []struct{ url, says, logged string }{
		{config.URL, "", "failed to send close request"},
		{away.URL + "/mcp?key=private", "refused", ""},
	} {
		log.Reset()
		config.URL = tt.url
		s, err := NewServer(config, logger)
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Tools(t.Context())
		if e := s.Close(); e != nil {
			t.Error(e)
		}
		if text := fmt.Sprint(err); !strings.Contains(text, tt.says) || strings.Contains(text, "private") {
			t.Errorf("%s; want %q, without the URL's secret", text, tt.says)
		}
		if text := log.String(); !strings.Contains(text, tt.logged) || strings.Contains(text, "private") {
			t.Errorf("logged %s; want %q, without the URL's secret", text, tt.logged)
		}
	}
}

func TestNewServer_RefusesHostsThatAreNotListed(t *testing.T) {
	t.Parallel()
	policy := Policy{Hosts: []string{"mcp.example.com"}, LocalHosts: []string{"box"}}
	for url, fault := range map[string]string{
		"https://mcp.example.com/mcp":       "",
		"https://mcp.example.com:8443/mcp":  "",
		"http://box:8080/":                  "",
		"https://box/":                      "",
		"http://mcp.example.com/?key=pw":    "want https",
		"https://evil.example.com/":         "evil.example.com is not allowed",
		"https://mcp.example.com.evil.org/": "is not allowed",
		"https://me:pw@mcp.example.com/":    "credentials belong into headers",
		"ftp://box/":                        "want https",
		"/mcp":                              "its url has no host",
		"http://[":                          "its url cannot be read",
	} {
		_, err := NewServer(ServerConfig{Name: "x", URL: url, Policy: policy}, slog.New(slog.DiscardHandler))
		switch {
		case fault == "" && err != nil:
			t.Errorf("%s: %v", url, err)
		case fault != "" && (err == nil || !strings.Contains(err.Error(), fault) || !strings.Contains(err.Error(), "MCP server x")):
			t.Errorf("%s: error %v, want %q", url, err, fault)
		}
		if err != nil && strings.Contains(err.Error(), "pw") {
			t.Errorf("%s: the error has the password: %v", url, err)
		}
	}
}
