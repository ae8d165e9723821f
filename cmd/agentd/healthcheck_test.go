package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentd/cmd/agentd/internal/cli"
)

func TestHealthcheck_SaysWhetherAWorkerIsReady(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no connection to NATS", http.StatusServiceUnavailable)
	})
	worker := httptest.NewServer(mux)
	defer worker.Close()
	address := worker.Listener.Addr().String()
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--http", address, "--live"}, cli.ExitOK, "ok"},
		{[]string{"--http", address}, cli.ExitFailure, "not ready: no connection to NATS"},
		{[]string{"--http", "127.0.0.1:1"}, cli.ExitFailure, "refused"},
		{[]string{"--http", "8080"}, cli.ExitUsage, "want an address such as :8080"},
	} {
		var out, problems bytes.Buffer
		code := execute(t.Context(), append([]string{"healthcheck"}, c.args...), cli.Streams{Out: &out, Err: &problems})
		if code != c.code || !strings.Contains(out.String()+problems.String(), c.says) {
			t.Errorf("healthcheck %v exits with %d: %s%s", c.args, code, &out, &problems)
		}
	}
}
