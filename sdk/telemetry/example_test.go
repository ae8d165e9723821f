package telemetry_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"

	"agentd/sdk/telemetry"
	"agentd/sdk/wire"
)

// A program gives what Start returns to its services: service.Server{Observer: shown}.Run(ctx, weather). Of each call they tell it what
// is told here by hand.
func Example() {
	var got sync.Map
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got.Store(r.URL.Path, true) }))
	defer collector.Close()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT" // the environment's, of a program
	if err := os.Setenv(endpoint, collector.URL); err != nil {
		fmt.Println(err)
	}
	defer func() { _ = os.Unsetenv(endpoint) }()

	ctx := context.Background()
	shown, err := telemetry.Start(ctx, slog.Default())
	if err != nil {
		fmt.Println(err)
		return
	}
	const caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	handling, parent, end := shown.Serve(ctx, &wire.Event{ID: "c1-0-x", Type: "weather.forecast", TraceParent: caller})
	end(handling, &wire.Event{Type: "weather.forecast.done"})
	trace, callers := strings.Split(parent, "-"), strings.Split(caller, "-")
	fmt.Println("the caller's trace:", trace[1] == callers[1], "the caller's span:", trace[2] == callers[2])
	if err := shown.Close(); err != nil { // which sends what is left
		fmt.Println(err)
	}
	for _, path := range []string{"/v1/traces", "/v1/metrics"} {
		_, sent := got.Load(path)
		fmt.Println(path, sent)
	}
	// Output:
	// the caller's trace: true the caller's span: false
	// /v1/traces true
	// /v1/metrics true
}
