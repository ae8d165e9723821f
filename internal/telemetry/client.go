package telemetry

import (
	"context"
	"os"

	"go.opentelemetry.io/otel/trace"

	"agentd/sdk/wire"
)

// Client begins the span of whoever starts the run of an init event, and puts the event into its trace. Its parent is what
// TRACEPARENT and TRACESTATE name, which the event gets where telemetry is off. end is called when nobody follows the run
// any more.
func (t *Telemetry) Client(ctx context.Context, agent string, event *wire.Event) (_ context.Context, end func(error)) {
	parent := remote(os.Getenv("TRACEPARENT"), os.Getenv("TRACESTATE"))
	if parent.IsValid() {
		event.TraceParent, event.TraceState = traceparent(parent), parent.TraceState().String()
	}
	if !t.tracing() {
		return ctx, func(error) {}
	}
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, parent), "run "+agent,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
			keyKind.String(kindChain), keyAgent.String(agent), keySession.String(event.Subject),
			keySystem.String(systemNATS), keyMessagingOp.String("publish"), keyMessagingType.String("send"),
			keyMessage.String(event.ID)))
	event.TraceParent = traceparent(span.SpanContext())
	return ctx, func(err error) {
		if err != nil {
			t.failed(span, err)
		}
		span.End()
	}
}
