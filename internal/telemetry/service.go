package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// Serve begins to handle a call of a service: a span below the one that the call's event names. The returned context has it,
// for what the handler does. parent is the trace that the answer carries: that of the service's own span, or what the call carried. end
// ends the handling; its answer is nil when the call was not answered.
func (t *Telemetry) Serve(ctx context.Context, call *wire.Event) (_ context.Context, parent string, end func(context.Context, *wire.Event)) {
	if t == nil {
		return ctx, call.TraceParent, unobserved
	}
	s := serving{t: t, call: call, began: time.Now()}
	if !t.tracing() {
		return ctx, call.TraceParent, s.end
	}
	attributes := []attribute.KeyValue{
		keyKind.String(kindChain), keySession.String(call.Subject), keyConversation.String(call.Subject),
		keySystem.String(systemNATS), keyMessagingOp.String("process"), keyMessagingType.String("process"),
		keyDestination.String(call.Type), keyMessage.String(call.ID), keyAgent.String(call.Agent), keyType.String(call.Type),
	}
	if t.content {
		attributes = append(attributes, keyInput.String(shown(string(call.Data))), keyInputMime.String(mimeJSON))
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, remote(call.TraceParent, call.TraceState))
	ctx, s.span = t.tracer.Start(ctx, "process "+call.Type,
		trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(attributes...))
	if own := s.span.SpanContext(); own.IsValid() {
		return ctx, traceparent(own), s.end
	}
	return ctx, call.TraceParent, s.end
}

func unobserved(context.Context, *wire.Event) {}

// serving is the handling of one call by a service.
type serving struct {
	t     *Telemetry
	span  trace.Span // nil without traces
	call  *wire.Event
	began time.Time
}

func (s serving) end(ctx context.Context, answer *wire.Event) {
	outcome := outcomeError
	switch {
	case answer == nil:
		outcome = "unanswered"
	case answer.Type != wire.ErrorType(s.call.Type):
		outcome = outcomeOK
	}
	s.t.metrics.calls.Record(ctx, time.Since(s.began).Seconds(), metric.WithAttributes(
		keyType.String(s.call.Type), keyOutcome.String(outcome)))
	if s.span == nil {
		return
	}
	s.span.SetAttributes(keyOutcome.String(outcome))
	if outcome != outcomeOK {
		s.t.failed(s.span, sdk.Errorf(sdk.CodeTool, "%s", outcome))
	}
	if answer != nil && s.t.content {
		s.span.SetAttributes(keyOutput.String(shown(string(answer.Data))), keyOutputMime.String(mimeJSON))
	}
	s.span.End()
}
