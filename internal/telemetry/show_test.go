package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"agentd/internal/core"
	"agentd/internal/runner"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/wire"
)

func TestRedact_HidesSecretsAndNothingElse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"password":"hunter2"}`:                          `{"password":"[redacted]"}`,
		`{"user":"ada","api_key": "k-1\"2","n":3}`:        `{"user":"ada","api_key": "[redacted]","n":3}`,
		`{"inner":"{\"client_secret\":\"abc\",\"n\":1}"}`: `{"inner":"{\"client_secret\":\"[redacted]\",\"n\":1}"}`,
		`Authorization: Bearer abc.def`:                   `Authorization: [redacted]`,
		`connect nats://ada:pw@host:4222 refused`:         `connect nats://[redacted]@host:4222 refused`,
		`key sk-proj-abcdefghijklmnop1234 is wrong`:       `key [redacted] is wrong`,
		`dial tcp 10.0.0.1:4222: password=hunter2 wrong`:  `dial tcp 10.0.0.1:4222: password=[redacted] wrong`,
		`{"tokens": 512, "max_tokens": "many"}`:           `{"tokens": 512, "max_tokens": "many"}`,
		`the secret of good bread is time`:                `the secret of good bread is time`,
		`run trip-1: tool book_trip failed`:               `run trip-1: tool book_trip failed`,
	} {
		if got := telemetry.Redact(text); got != want {
			t.Errorf("Redact(%s)\n got %s\nwant %s", text, got, want)
		}
	}
}

func TestSecret_KnowsNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"Authorization": true, "x-api-key": true, "db_password": true, "Set-Cookie": true, "token": true,
		"subject": false, "tokens": false, "Content-Type": false, "ce-id": false, "key": false,
	} {
		if got := telemetry.Secret(name); got != want {
			t.Errorf("Secret(%q) is %t", name, got)
		}
	}
}

func TestLogged_RedactsAndNamesTheTrace(t *testing.T) {
	t.Parallel()
	shown, err := telemetry.Start(t.Context(), telemetry.Options{Spans: tracetest.NewInMemoryExporter()})
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	o := shown.Observer()
	ctx := o.Begin(t.Context(), &runner.Message{Event: wire.Event{ID: "1", Source: "test", TraceParent: clientTrace}})
	o.Loaded(ctx, &core.Head{}, 0)
	var out bytes.Buffer
	log := slog.New(telemetry.Logged(slog.NewJSONHandler(&out, nil)))
	log.With("url", "redis://u:pw@host").WarnContext(ctx, "broken", "error", errors.New("password=x1y2 is wrong"), "api_key", "v",
		slog.Group("inner", "token", "t"), "headers", map[string]string{"Authorization": "Bearer abcdefgh", "Accept": "*/*"},
		"body", []byte(`{"password":"x1y2"}`), "secret", []string{"x1y2"}, "names", []string{"a", "b"})
	var line map[string]any
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"url": "redis://[redacted]@host", "error": "password=[redacted] is wrong", "api_key": "[redacted]",
		"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
	if inner, _ := line["inner"].(map[string]any); inner["token"] != telemetry.Redacted {
		t.Errorf("the group is %v", inner)
	}
	if text := out.String(); strings.Contains(text, "x1y2") || strings.Contains(text, "abcdefgh") {
		t.Errorf("secrets are logged: %s", text)
	}
	if diff := cmp.Diff([]any{"a", "b"}, line["names"]); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if line["span_id"] == "" || line["span_id"] == nil {
		t.Error("no span is named")
	}
	o.End(ctx, runner.Verdict{}, nil)
}

// A tool that asks a person has not failed, in its span and in the metrics.
func TestTool_ThatAsksHasNotFailed(t *testing.T) {
	t.Parallel()
	exporter, reader := tracetest.NewInMemoryExporter(), sdkmetric.NewManualReader()
	shown, err := telemetry.Start(t.Context(), telemetry.Options{Spans: exporter, Metrics: reader})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shown.Close(); err != nil {
			t.Error(err)
		}
	})
	o := shown.Observer()
	for name, end := range map[string]error{
		"asks": sdk.AskPerson(sdk.Question{Question: "Which size?"}, nil), "fails": sdk.Errorf(sdk.CodeTool, "broken"),
	} {
		tool := sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return nil, end }}
		if _, err := o.Tool(t.Context(), tool, sdk.ToolCall{Tool: name}); !errors.Is(err, end) {
			t.Errorf("%s ends with %v", name, err)
		}
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	measured := map[string]string{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "gen_ai.execute_tool.duration" {
				for _, p := range h.DataPoints {
					tool, _ := p.Attributes.Value("gen_ai.tool.name")
					problem, _ := p.Attributes.Value("error.type")
					measured[tool.AsString()] = problem.AsString()
				}
			}
		}
	}
	if diff := cmp.Diff(map[string]string{"asks": "", "fails": "tool_failed"}, measured); diff != "" {
		t.Errorf("errors in the metrics -want +got:\n%s", diff)
	}
	marked := map[string]bool{}
	for _, s := range exporter.GetSpans() {
		marked[s.Name] = s.Status.Code == codes.Error
	}
	if diff := cmp.Diff(map[string]bool{"execute_tool asks": false, "execute_tool fails": true}, marked); diff != "" {
		t.Errorf("spans that are errors -want +got:\n%s", diff)
	}
}

// nothing is a store and a publisher that do nothing.
type nothing struct {
	runner.Store
	runner.Publisher
}

func (nothing) Head(context.Context, wire.RunKey) (runner.Record, error) {
	return runner.Record{}, runner.ErrNotFound
}
func (nothing) Publish(context.Context, string, wire.Event) error { return nil }
func (nothing) Generate(context.Context, sdk.ModelRequest, func(sdk.Delta)) (sdk.ModelReply, error) {
	return sdk.ModelReply{}, nil
}

// hot is what an activation does over and over.
func hot(tb testing.TB, shown *telemetry.Telemetry) func() {
	var ports nothing
	store, publisher := shown.Store(ports, "none"), shown.Publisher(ports, wire.DefaultSubjects())
	model, err := shown.Models(func(sdk.ModelSpec) (sdk.Provider, error) { return ports, nil })(sdk.ModelSpec{})
	if err != nil {
		tb.Fatal(err)
	}
	observer := runner.New(runner.Options{Observer: shown.Observer()}).Observer
	m, head, entry := &runner.Message{}, &core.Head{}, &core.Entry{}
	tool := sdk.Tool{Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return nil, nil }}
	event, run := wire.Event{ID: "1", Type: "x"}, wire.NewRunKey("r")
	ctx := tb.Context()
	call := &wire.Event{}
	return func() {
		ctx := observer.Begin(ctx, m)
		observer.Loaded(ctx, head, 0)
		_, _ = store.Head(ctx, run)
		_, _ = model.Generate(ctx, sdk.ModelRequest{}, nil)
		observer.Appended(ctx, entry, 100)
		_, _ = observer.Tool(ctx, tool, sdk.ToolCall{})
		_ = publisher.Publish(ctx, "agentd.out.x", event)
		observer.End(ctx, runner.Verdict{}, nil)
		handling, _, end := shown.Serve(ctx, call)
		end(handling, nil)
	}
}

func TestOff_AllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, hot(t, nil)); n != 0 {
		t.Errorf("an activation allocates %v times for telemetry that is off", n)
	}
}

func BenchmarkOff(b *testing.B) {
	do := hot(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}

func BenchmarkTraced(b *testing.B) {
	shown, err := telemetry.Start(b.Context(), telemetry.Options{Spans: tracetest.NewNoopExporter(), Scrape: true})
	if err != nil {
		b.Fatal(err)
	}
	defer shown.Close()
	do := hot(b, shown)
	b.ReportAllocs()
	for b.Loop() {
		do()
	}
}
