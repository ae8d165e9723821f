package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names agentd's instruments and spans.
const scope = "agentd"

// envContent is the variable of the GenAI conventions that has contents recorded.
const envContent = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

// flushTimeout bounds how long a stopping program waits for its last spans and metrics to be taken.
const flushTimeout = 5 * time.Second

// Options say who reports.
type Options struct {
	// Service is the service.name unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES has one.
	// Empty is the program's name.
	Service string
	// Scrape makes Handler serve metrics to Prometheus.
	Scrape bool
	// Spans and Metrics take what is recorded, at once, in place of what the environment names. Nil are the environment's.
	Spans   sdktrace.SpanExporter
	Metrics sdkmetric.Reader
	// Content has contents recorded whatever the environment says.
	Content bool
	// Logger is told what could not be exported; nil is nobody.
	Logger *slog.Logger
}

// Telemetry records spans and metrics. Nil records nothing. Safe for concurrent use.
type Telemetry struct {
	tracer  trace.Tracer
	meter   metric.Meter
	metrics instruments
	// content has prompts, arguments and results recorded.
	content bool
	// scrape is nil unless metrics are served.
	scrape http.Handler
	log    *slog.Logger
	close  []func(context.Context) error
}

// Start sets telemetry up as the environment says. It returns nil when everything is off. The error is what in the
// environment cannot be used.
func Start(ctx context.Context, o Options) (*Telemetry, error) {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	traces, metrics := o.Spans != nil || exported("TRACES"), o.Metrics != nil || exported("METRICS")
	if !traces && !metrics && !o.Scrape {
		return nil, nil
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	about, err := describe(ctx, o)
	if err != nil {
		return nil, err
	}
	t := &Telemetry{content: o.Content || strings.EqualFold(os.Getenv(envContent), "true"), log: o.Logger}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { o.Logger.Warn("telemetry could not be exported", "error", err) }))
	err = errors.Join(t.startTraces(ctx, traces, o.Spans, about), t.startMetrics(ctx, metrics, o, about))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start telemetry: %w", err), t.Close())
	}
	return t, nil
}

// exported reports whether a signal has somewhere to go. The specification's default, an OTLP receiver on this machine, is
// not assumed: most have none.
func exported(signal string) bool {
	if exporter, ok := os.LookupEnv("OTEL_" + signal + "_EXPORTER"); ok && exporter != "" {
		return exporter != "none"
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_"+signal+"_ENDPOINT") != ""
}

func describe(ctx context.Context, o Options) (*resource.Resource, error) {
	about, err := resource.New(ctx,
		resource.WithAttributes(
			semconv.ServiceName(cmp.Or(o.Service, filepath.Base(os.Args[0]))), semconv.ServiceVersion(version()), semconv.ServiceInstanceID(newInstance()),
		),
		resource.WithHost(), resource.WithTelemetrySDK(), resource.WithFromEnv(),
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return about, nil
}

// version is that of the program, as far as its build knows.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}

func (t *Telemetry) startTraces(ctx context.Context, on bool, to sdktrace.SpanExporter, about *resource.Resource) error {
	if !on {
		return nil
	}
	export := sdktrace.WithSyncer(to)
	if to == nil {
		exporter, err := autoexport.NewSpanExporter(ctx)
		if err != nil {
			return fmt.Errorf("OTEL_TRACES_EXPORTER=%s: %w", os.Getenv("OTEL_TRACES_EXPORTER"), err)
		}
		export = sdktrace.WithBatcher(exporter)
	}
	// Sampler and batches are as OTEL_TRACES_SAMPLER and OTEL_BSP_* say.
	provider := sdktrace.NewTracerProvider(export, sdktrace.WithResource(about), sdktrace.WithIDGenerator(ids{}))
	t.tracer = provider.Tracer(scope)
	t.close = append(t.close, provider.Shutdown)
	return nil
}

func (t *Telemetry) startMetrics(ctx context.Context, on bool, o Options, about *resource.Resource) error {
	options := []sdkmetric.Option{sdkmetric.WithResource(about)}
	if on {
		reader := o.Metrics
		if reader == nil {
			var err error
			if reader, err = autoexport.NewMetricReader(ctx); err != nil {
				return fmt.Errorf("OTEL_METRICS_EXPORTER=%s: %w", os.Getenv("OTEL_METRICS_EXPORTER"), err)
			}
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	if o.Scrape {
		registry := prometheus.NewRegistry()
		reader, err := otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
		if err != nil {
			return err
		}
		options = append(options, sdkmetric.WithReader(reader))
		t.scrape = promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	}
	if !on && !o.Scrape {
		return t.instrument(noMeter)
	}
	provider := sdkmetric.NewMeterProvider(options...)
	t.close = append(t.close, provider.Shutdown)
	return t.instrument(provider.Meter(scope))
}

// Handler serves the metrics to Prometheus, or is nil.
func (t *Telemetry) Handler() http.Handler {
	if t == nil {
		return nil
	}
	return t.scrape
}

// Close exports what is left, for 5 s at most.
func (t *Telemetry) Close() error {
	if t == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	var faults []error
	for _, stop := range t.close {
		faults = append(faults, stop(ctx))
	}
	if err := errors.Join(faults...); err != nil {
		// A receiver that is away must not turn a clean stop into a failure.
		t.log.Warn("the last spans and metrics could not be exported", "error", err)
	}
	return nil
}

func (t *Telemetry) tracing() bool { return t != nil && t.tracer != nil }
