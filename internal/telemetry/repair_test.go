package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"agentd/internal/core"
	"agentd/internal/telemetry"
)

// Repairs belong to no message, and so to no activation.
func TestObserver_SeesRepairs(t *testing.T) {
	t.Parallel()
	shown, err := telemetry.Start(t.Context(), telemetry.Options{Spans: tracetest.NewInMemoryExporter()})
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	o := shown.Observer()
	if parent := o.Loaded(t.Context(), &core.Head{Agent: "desk", Status: core.StatusWaiting}, 1); parent != "" {
		t.Errorf("a repair begins the trace %q", parent)
	}
	o.Appended(t.Context(), &core.Entry{Rev: 1, Change: core.Change{Kind: core.KindStarted, Head: core.Head{Agent: "desk", Turns: 1}}}, 10)
}
