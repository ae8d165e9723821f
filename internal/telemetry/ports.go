package telemetry

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"agentd/internal/broker"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Publisher shows what p publishes.
func (t *Telemetry) Publisher(p runner.Publisher, subjects wire.Subjects) runner.Publisher {
	if t == nil {
		return p
	}
	return publisher{p, t, subjects}
}

type publisher struct {
	runner.Publisher
	*Telemetry
	subjects wire.Subjects
}

// Publish implements runner.Publisher. A call is a TOOL span: what its service does is below it.
func (p publisher) Publish(ctx context.Context, subject string, event wire.Event) error {
	began := time.Now()
	kind := kindOf(p.subjects, subject)
	var span trace.Span
	if p.tracing() {
		ctx, span = p.publishing(ctx, subject, event)
		defer span.End()
	}
	err := p.Publisher.Publish(ctx, subject, event)
	p.metrics.published(ctx, kind, began, err)
	if err != nil && span != nil {
		p.failed(span, err)
	}
	return err
}

// publishing begins the span of a publish; that of a call has the id that its event carries.
func (p publisher) publishing(ctx context.Context, subject string, event wire.Event) (context.Context, trace.Span) {
	name := "publish " + event.Type
	attributes := []attribute.KeyValue{
		keySystem.String(systemNATS), keyMessagingOp.String("publish"), keyMessagingType.String("send"),
		keyDestination.String(destination(subject)), keyMessage.String(event.ID), keySession.String(event.Subject),
	}
	address, err := p.subjects.Parse(subject)
	if err != nil || address.Kind != wire.KindOut {
		attributes = append(attributes, keyKind.String(kindChain))
		return p.tracer.Start(within(ctx), name, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
	}
	tool := event.Type
	ref, _ := wire.ParseCallRef(event.ID)
	if a := activationOf(ctx); a != nil && a.tools[ref.ID] != "" {
		tool = a.tools[ref.ID]
	}
	attributes = append(attributes, toolAttributes(tool, ref.ID, event.Subject)...)
	attributes = append(attributes, attribute.String("gen_ai.tool.type", "extension"), keyType.String(event.Type))
	if p.content {
		attributes = append(attributes, p.arguments(event.Data)...)
	}
	own := wanted{span: remote(event.TraceParent, "").SpanID()}
	return p.tracer.Start(withIDs(within(ctx), own), operationTool+" "+tool,
		trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(attributes...))
}

// destination is a subject's first three tokens: what lies behind them differs from run to run.
func destination(subject string) string {
	tokens := strings.SplitN(subject, ".", 4)
	return strings.Join(tokens[:min(3, len(tokens))], ".")
}

// kindOf is the kind of a subject, such as "out".
func kindOf(subjects wire.Subjects, subject string) string {
	rest, _ := strings.CutPrefix(subject, subjects.Root()+".")
	kind, _, _ := strings.Cut(rest, ".")
	return kind
}

// published measures a publish.
func (i *instruments) published(ctx context.Context, kind string, began time.Time, err error) {
	attributes := []attribute.KeyValue{
		keySystem.String(systemNATS), keyMessagingOp.String("publish"), keyMessagingType.String("send"), keyDestination.String(kind),
	}
	if err != nil {
		attributes = append(attributes, keyError.String(errorType(err)))
	}
	i.publish.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(attributes...))
}

// Store measures what s does. name is the kind of store.
func (t *Telemetry) Store(s runner.Store, name string) runner.Store {
	if t == nil {
		return s
	}
	return store{s, t, name}
}

type store struct {
	runner.Store
	*Telemetry
	name string
}

// Ready returns nil when the store can do its work.
func (s store) Ready() error {
	if inner, ok := s.Store.(interface{ Ready() error }); ok {
		return inner.Ready()
	}
	return nil
}

func (s store) Head(ctx context.Context, run wire.RunKey) (runner.Record, error) {
	began := time.Now()
	rec, err := s.Store.Head(ctx, run)
	s.did(ctx, "head", began, err)
	return rec, err
}

func (s store) Entries(ctx context.Context, run wire.RunKey, after runner.Version) ([]runner.Record, error) {
	began := time.Now()
	recs, err := s.Store.Entries(ctx, run, after)
	s.did(ctx, "entries", began, err)
	return recs, err
}

func (s store) Part(ctx context.Context, run wire.RunKey, from uint64, most int) ([]runner.Record, error) {
	began := time.Now()
	recs, err := s.Store.Part(ctx, run, from, most)
	s.did(ctx, "part", began, err)
	return recs, err
}

func (s store) Append(ctx context.Context, run wire.RunKey, base runner.Version, next runner.Record) (runner.Version, error) {
	began := time.Now()
	v, err := s.Store.Append(ctx, run, base, next)
	s.did(ctx, "append", began, err)
	return v, err
}

func (s store) Barrier(ctx context.Context, run wire.RunKey, v runner.Version) error {
	began := time.Now()
	err := s.Store.Barrier(ctx, run, v)
	s.did(ctx, "barrier", began, err)
	return err
}

func (s store) did(ctx context.Context, operation string, began time.Time, err error) {
	outcome := outcomeOK
	switch {
	case err == nil, errors.Is(err, runner.ErrNotFound):
	case errors.Is(err, runner.ErrConflict):
		outcome = outcomeConflict
	default:
		outcome = outcomeError
	}
	s.metrics.store.Record(ctx, time.Since(began).Seconds(), metric.WithAttributes(
		keyStore.String(s.name), keyStoreOp.String(operation), keyOutcome.String(outcome)))
}

// deadLetters is handler.DeadLetters, which this package does not import.
type deadLetters interface {
	DeadLetter(ctx context.Context, d broker.Delivery, reason sdk.Code, detail string) error
}

// DeadLetters counts what d takes.
func (t *Telemetry) DeadLetters(d deadLetters) deadLetters {
	if t == nil {
		return d
	}
	return counted{d, t}
}

type counted struct {
	deadLetters
	*Telemetry
}

func (c counted) DeadLetter(ctx context.Context, d broker.Delivery, reason sdk.Code, detail string) error {
	err := c.deadLetters.DeadLetter(ctx, d, reason, detail)
	if err == nil {
		c.metrics.deadLetters.Add(ctx, 1, metric.WithAttributes(keyError.String(string(reason))))
	}
	return err
}

// Delivered notes that a consumer has delivered a message to a worker or a service, and how often it has.
func (t *Telemetry) Delivered(ctx context.Context, consumer string, times int) {
	if t != nil && times > 1 {
		t.metrics.redelivered.Add(ctx, 1, metric.WithAttributes(keyConsumer.String(consumer)))
	}
}
