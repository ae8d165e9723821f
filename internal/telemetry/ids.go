package telemetry

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// ids numbers spans at random, but for those whose ids are decided by what is in a journal.
type ids struct{}

// wanted are ids for the next span that is begun with a context. A zero one is chosen at random.
type wanted struct {
	trace trace.TraceID
	span  trace.SpanID
}

type wantedKey struct{}

func withIDs(ctx context.Context, w wanted) context.Context {
	return context.WithValue(ctx, wantedKey{}, w)
}

// NewIDs implements sdktrace.IDGenerator.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	w, _ := ctx.Value(wantedKey{}).(wanted)
	if !w.trace.IsValid() {
		rand.Read(w.trace[:]) // never fails
	}
	return w.trace, w.spanID()
}

// NewSpanID implements sdktrace.IDGenerator.
func (ids) NewSpanID(ctx context.Context, _ trace.TraceID) trace.SpanID {
	w, _ := ctx.Value(wantedKey{}).(wanted)
	return w.spanID()
}

func (w wanted) spanID() trace.SpanID {
	if !w.span.IsValid() {
		rand.Read(w.span[:])
	}
	return w.span
}

// rootIDs are those of a run whose init event has no trace. They follow from the event, so that a redelivery of it goes on
// with the same trace.
func rootIDs(source, id string) wanted {
	sum := sha256.Sum256([]byte("agentd trace\x00" + source + "\x00" + id))
	sum[0] |= 1 // zeros are none
	sum[16] |= 1
	return wanted{trace.TraceID(sum[:16]), trace.SpanID(sum[16:24])}
}

func newInstance() string {
	var b [8]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// remote is the span that an event's attributes name, if they do.
func remote(traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// traceparent is how events name a span.
func traceparent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-%02x", sc.TraceID(), sc.SpanID(), byte(sc.TraceFlags()))
}
