// Package telemetry shows what agentd does: traces and metrics by OpenTelemetry, and what may be shown of contents.
//
// It is configured by the standard OTEL_* variables alone. Traces are on when OTEL_TRACES_EXPORTER or an OTLP endpoint is
// set, metrics when OTEL_METRICS_EXPORTER, an OTLP endpoint or Options.Scrape is; OTEL_SDK_DISABLED turns everything off.
// Contents of prompts, arguments and results are recorded only with OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true,
// redacted.
//
// A nil *Telemetry is off, and everything that it wraps is returned as it was: off costs nothing.
//
// Nothing is open while a run is suspended. Each activation is a span of its own (OpenInference AGENT) in the trace of the
// run's init event, linked to the calls it waited for and to their answers; model calls (LLM), tools and calls of services
// (TOOL) are its children. The span of a call has the id that the call's event carries (wire.EventTrace), so a service's span
// is below it, whatever worker published the event.
package telemetry
