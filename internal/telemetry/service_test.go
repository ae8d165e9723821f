package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"agentd/internal/telemetry"
	"agentd/sdk/wire"
)

func traced(t *testing.T) (*telemetry.Telemetry, *tracetest.InMemoryExporter) {
	t.Helper()
	spans := tracetest.NewInMemoryExporter()
	shown, err := telemetry.Start(t.Context(), telemetry.Options{Spans: spans})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shown.Close(); err != nil {
			t.Error(err)
		}
	})
	return shown, spans
}

func TestServe_IsBelowTheCallAndNamedInTheAnswer(t *testing.T) {
	t.Parallel()
	shown, spans := traced(t)
	call := &wire.Event{ID: "c1", Type: "shop.find", Subject: "trip", TraceParent: clientTrace}
	for _, answer := range []*wire.Event{{Type: "shop.find.done"}, {Type: wire.ErrorType("shop.find")}, nil} {
		ctx, traceparent, end := shown.Serve(t.Context(), call)
		named := telemetry.Remote(traceparent, "")
		end(ctx, answer)
		span := spans.GetSpans()[0]
		spans.Reset()
		if span.Parent.SpanID() != telemetry.Remote(clientTrace, "").SpanID() || named.SpanID() != span.SpanContext.SpanID() {
			t.Errorf("the span %s is below %s, and the answer names %s", span.SpanContext.SpanID(), span.Parent.SpanID(), named.SpanID())
		}
		if failed := span.Status.Code == codes.Error; failed != (answer == nil || answer.Type != "shop.find.done") {
			t.Errorf("answer %+v: the span failed: %t", answer, failed)
		}
	}
	var off *telemetry.Telemetry
	if _, got, _ := off.Serve(t.Context(), call); got != clientTrace {
		t.Errorf("without telemetry the answer carries %s, want what the call carried", got)
	}
}

func TestClient_StartsTheRunInItsTrace(t *testing.T) {
	t.Setenv("TRACEPARENT", clientTrace)
	t.Setenv("TRACESTATE", "vendor=1")
	shown, spans := traced(t)
	event := wire.Event{ID: "1"}
	_, end := shown.Client(t.Context(), "desk", &event)
	end(nil)
	span := spans.GetSpans()[0]
	if span.Parent.SpanID() != telemetry.Remote(clientTrace, "").SpanID() {
		t.Errorf("the client's span is below %s", span.Parent.SpanID())
	}
	if got := telemetry.Remote(event.TraceParent, ""); got.SpanID() != span.SpanContext.SpanID() || event.TraceState != "vendor=1" {
		t.Errorf("the event carries %s %s", event.TraceParent, event.TraceState)
	}
	var off *telemetry.Telemetry
	plain := wire.Event{ID: "2"}
	_, end = off.Client(t.Context(), "desk", &plain)
	end(nil)
	if plain.TraceParent != clientTrace {
		t.Errorf("without telemetry the event carries %q, want that of the environment", plain.TraceParent)
	}
}
