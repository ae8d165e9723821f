package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// Logged makes h write redacted records, with trace_id and span_id where the context has a span.
func Logged(h slog.Handler) slog.Handler { return logged{h} }

type logged struct{ slog.Handler }

// Handle implements slog.Handler.
func (l logged) Handle(ctx context.Context, r slog.Record) error {
	shown := slog.NewRecord(r.Time, r.Level, Redact(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		shown.AddAttrs(redactAttr(a))
		return true
	})
	if sc := spanOf(ctx); sc.IsValid() {
		shown.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()))
	}
	return l.Handler.Handle(ctx, shown)
}

// WithAttrs implements slog.Handler.
func (l logged) WithAttrs(attrs []slog.Attr) slog.Handler {
	shown := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		shown[i] = redactAttr(a)
	}
	return logged{l.Handler.WithAttrs(shown)}
}

// WithGroup implements slog.Handler.
func (l logged) WithGroup(name string) slog.Handler { return logged{l.Handler.WithGroup(name)} }

func redactAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		if Secret(a.Key) {
			return slog.String(a.Key, Redacted)
		}
		return slog.String(a.Key, Redact(v.String()))
	case slog.KindGroup:
		var members []any
		for _, m := range v.Group() {
			members = append(members, redactAttr(m))
		}
		return slog.Group(a.Key, members...)
	case slog.KindAny:
		return redactAny(a.Key, v.Any())
	default:
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// redactAny redacts what is logged as an error, as text, or as JSON.
func redactAny(key string, value any) slog.Attr {
	if Secret(key) {
		return slog.String(key, Redacted)
	}
	switch v := value.(type) {
	case nil:
		return slog.Any(key, nil)
	case error:
		return slog.String(key, Redact(v.Error()))
	case fmt.Stringer:
		return slog.String(key, Redact(v.String()))
	case []byte:
		return slog.String(key, Redact(string(v)))
	}
	text, err := json.Marshal(value)
	if err != nil {
		return slog.String(key, Redact(fmt.Sprintf("%+v", value)))
	}
	switch shown := Redact(string(text)); {
	case shown == string(text):
		return slog.Any(key, value)
	case json.Valid([]byte(shown)):
		return slog.Any(key, json.RawMessage(shown))
	}
	return slog.String(key, Redacted)
}

// spanOf is the span that what is done with ctx belongs to.
func spanOf(ctx context.Context) trace.SpanContext {
	if a := activationOf(ctx); a != nil && a.span != nil {
		return a.span.SpanContext()
	}
	return trace.SpanContextFromContext(ctx)
}
