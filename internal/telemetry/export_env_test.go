package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"agentd/internal/telemetry"
	"agentd/sdk/wire"
)

func TestStart_SendsWhereTheEnvironmentSays(t *testing.T) {
	var mu sync.Mutex
	sent := map[string]bool{}
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent[r.URL.Path] = true
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	shown, err := telemetry.Start(t.Context(), telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, stop := shown.Client(t.Context(), "desk", &wire.Event{ID: "1"})
	stop(nil)
	ctx, _, end := shown.Serve(t.Context(), &wire.Event{ID: "c", Type: "x"})
	end(ctx, nil)
	if err := shown.Close(); err != nil { // which sends what is left
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !sent["/v1/traces"] || !sent["/v1/metrics"] {
		t.Errorf("sent were %v, want traces and metrics", sent)
	}
}

func TestClose_OfAReceiverThatIsAwayIsNoFailure(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	shown, err := telemetry.Start(t.Context(), telemetry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, end := shown.Client(t.Context(), "desk", &wire.Event{ID: "1"})
	end(nil)
	if err := shown.Close(); err != nil {
		t.Errorf("a worker would not stop cleanly: %v", err)
	}
}
