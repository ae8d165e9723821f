package telemetry_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"agentd/internal/harness"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const clientTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// rig is a harness whose spans and metrics are kept.
type rig struct {
	*harness.Harness
	spans  *tracetest.InMemoryExporter
	reader *sdkmetric.ManualReader
}

func start(t *testing.T, content bool, o harness.Options) rig {
	t.Helper()
	r := rig{spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader()}
	shown, err := telemetry.Start(t.Context(), telemetry.Options{Spans: r.spans, Metrics: r.reader, Content: content})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shown.Close(); err != nil {
			t.Error(err)
		}
	})
	o.Telemetry = shown
	r.Harness = harness.Start(t, o)
	return r
}

func contract(name string, accepts string) sdk.Contract {
	return sdk.Contract{URI: "#/" + name, Type: name, Versions: map[string]sdk.ContractVersion{"1.0.0": {
		Accepts: json.RawMessage(accepts), Emits: map[string]json.RawMessage{name + ".done": json.RawMessage(`{"type":"object"}`)},
	}}}
}

// desk calls a service and has a tool of its own.
func desk() sdk.Agent {
	return sdk.Agent{
		Spec: sdk.AgentSpec{
			Name: "shop.desk", Version: "1.0.0", Contract: contract("desk", `{"type":"object"}`),
			Model:    sdk.ModelSpec{Provider: "acme", Name: "small"},
			Services: []sdk.ServiceTool{{Contract: contract("shop.find", `{"type":"object"}`), Version: "1.0.0", As: "find"}},
		},
		Tools: []sdk.Tool{{
			Definition: sdk.ToolDefinition{Name: "note", Parameters: json.RawMessage(`{"type":"object"}`)},
			Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				return json.RawMessage(`{"noted":true,"api_key":"abcdefgh"}`), nil
			},
		}},
	}
}

// runDesk runs one run that uses the tool and the service, and returns its spans when the workers have stopped.
func runDesk(t *testing.T, r rig, traceparent string) tracetest.SpanStubs {
	t.Helper()
	event := r.Init("shop.desk", map[string]any{"message": "hello", "password": "hunter22"})
	event.TraceParent, event.TraceState = traceparent, ""
	run := r.Send("shop.desk", event)
	r.Suspended(run, 1)
	r.settled()
	r.Call("shop.find").Answer("shop.find.done", map[string]any{"found": 1})
	if done := r.Done(run); done.Type != "desk.done" {
		t.Fatalf("the run ended with %s %s", done.Type, done.Data)
	}
	r.StopWorkers()
	return r.spans.GetSpans()
}

// settled waits until an activation's span has ended, which is after its run was suspended.
func (r rig) settled() {
	for !slices.ContainsFunc(r.spans.GetSpans(), func(s tracetest.SpanStub) bool {
		return value(s, "openinference.span.kind") == "AGENT"
	}) {
		<-time.After(time.Millisecond) // the test's deadline bounds it
	}
}

func script() *sdktest.Model {
	reply := sdktest.Ask(sdktest.Tool("note", map[string]any{"n": 1}), sdktest.Tool("find", map[string]any{"n": 2}))
	reply.Usage = sdk.Usage{Prompt: 11, Completion: 7}
	return sdktest.Script(reply, sdktest.Say("done"))
}

func value(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func named(t *testing.T, spans tracetest.SpanStubs, name string, n int) []tracetest.SpanStub {
	t.Helper()
	var found []tracetest.SpanStub
	for _, s := range spans {
		if s.Name == name {
			found = append(found, s)
		}
	}
	if len(found) != n {
		t.Fatalf("there are %d spans %q, want %d, among %v", len(found), name, n, names(spans))
	}
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

func names(spans tracetest.SpanStubs) []string {
	var all []string
	for _, s := range spans {
		all = append(all, s.Name)
	}
	return all
}

func TestTrace_IsOneAcrossASuspension(t *testing.T) {
	t.Parallel()
	r := start(t, false, harness.Options{Agents: []sdk.Agent{desk()}, Model: script(), Workers: 2})
	spans := runDesk(t, r, clientTrace)
	client := telemetry.Remote(clientTrace, "")
	for _, s := range spans {
		if s.SpanContext.TraceID() != client.TraceID() {
			t.Errorf("span %q is in another trace", s.Name)
		}
	}
	activations := named(t, spans, "invoke_agent shop.desk", 2)
	for _, a := range activations {
		if a.Parent.SpanID() != client.SpanID() || value(a, "openinference.span.kind") != "AGENT" {
			t.Errorf("activation %s is below %s and a %s", a.SpanContext.SpanID(), a.Parent.SpanID(), value(a, "openinference.span.kind"))
		}
	}
	if !activations[0].EndTime.Before(activations[1].StartTime) {
		t.Error("the first activation's span is open while the run is suspended")
	}
	model := named(t, spans, "chat small", 2)
	call, tool := named(t, spans, "execute_tool find", 1)[0], named(t, spans, "execute_tool note", 1)[0]
	for _, s := range []tracetest.SpanStub{model[0], call, tool} {
		if s.Parent.SpanID() != activations[0].SpanContext.SpanID() {
			t.Errorf("span %q is not below the first activation", s.Name)
		}
	}
	for span, kind := range map[*tracetest.SpanStub]string{&model[0]: "LLM", &call: "TOOL", &tool: "TOOL"} {
		if got := value(*span, "openinference.span.kind"); got != kind {
			t.Errorf("span %q is a %s, want %s", span.Name, got, kind)
		}
	}
	var links []string
	for _, l := range activations[1].Links {
		links = append(links, l.SpanContext.SpanID().String())
	}
	if !slices.Contains(links, call.SpanContext.SpanID().String()) {
		t.Errorf("the second activation links to %v, not to the call %s", links, call.SpanContext.SpanID())
	}
}

func TestTrace_OfACallIsThatOfItsEvent(t *testing.T) {
	t.Parallel()
	r := start(t, false, harness.Options{Agents: []sdk.Agent{desk()}, Model: script()})
	event := r.Init("shop.desk", map[string]any{"message": "hello"})
	event.TraceParent = clientTrace
	run := r.Send("shop.desk", event)
	r.Suspended(run, 1)
	call := r.Call("shop.find")
	call.Answer("shop.find.done", map[string]any{})
	r.Done(run)
	r.StopWorkers()
	span := named(t, r.spans.GetSpans(), "execute_tool find", 1)[0]
	if got := telemetry.Remote(call.Event.TraceParent, ""); got.SpanID() != span.SpanContext.SpanID() {
		t.Errorf("the event carries %s, the call's span is %s", call.Event.TraceParent, span.SpanContext.SpanID())
	}
	if call.Event.TraceParent != wire.EventTrace(clientTrace, call.Event.ID) {
		t.Errorf("the event carries %s, which does not follow from the journal", call.Event.TraceParent)
	}
}

func TestTrace_BeginsWithTheRunWhereTheInitEventHasNone(t *testing.T) {
	t.Parallel()
	r := start(t, false, harness.Options{Agents: []sdk.Agent{desk()}, Model: script()})
	spans := runDesk(t, r, "")
	activations := named(t, spans, "invoke_agent shop.desk", 2)
	if activations[0].Parent.IsValid() {
		t.Error("the first activation is not the root")
	}
	for _, s := range spans {
		if s.SpanContext.TraceID() != activations[0].SpanContext.TraceID() {
			t.Errorf("span %q is in another trace", s.Name)
		}
	}
	if activations[1].Parent.SpanID() != activations[0].SpanContext.SpanID() {
		t.Error("the second activation is not below the first")
	}
}

func TestSpans_ShowNoContentUnlessAsked(t *testing.T) {
	t.Parallel()
	for _, content := range []bool{false, true} {
		r := start(t, content, harness.Options{Agents: []sdk.Agent{desk()}, Model: script()})
		spans := runDesk(t, r, clientTrace)
		text, err := json.Marshal(spans)
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{"hunter22", "abcdefgh"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("content %t: the spans show %s", content, secret)
			}
		}
		for _, quoted := range []string{"hello", `noted`} {
			if got := strings.Contains(string(text), quoted); got != content {
				t.Errorf("content %t: the spans show %q: %t", content, quoted, got)
			}
		}
	}
}

func TestModelSpan_CountsTokens(t *testing.T) {
	t.Parallel()
	r := start(t, false, harness.Options{Agents: []sdk.Agent{desk()}, Model: script()})
	span := named(t, runDesk(t, r, clientTrace), "chat small", 2)[0]
	want := map[string]string{
		"llm.token_count.prompt": "11", "llm.token_count.completion": "7", "llm.token_count.total": "18",
		"gen_ai.usage.input_tokens": "11", "gen_ai.usage.output_tokens": "7", "gen_ai.operation.name": "chat",
		"gen_ai.provider.name": "acme", "gen_ai.request.model": "small", "llm.model_name": "small",
		"gen_ai.response.finish_reasons": `["tool_calls"]`,
	}
	got := map[string]string{}
	for key := range want {
		got[key] = value(span, key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if len(span.Events) != 1 || span.Events[0].Name != "api_call_start" {
		t.Errorf("events are %+v, want the begin with its budget", span.Events)
	}
}

// measured are the points of all metrics, by name and attributes.
func (r rig) measured(t *testing.T) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	points := map[string]float64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			add := func(set attribute.Set, v float64) {
				points[m.Name] += v
				points[m.Name+"{"+set.Encoded(attribute.DefaultEncoder())+"}"] += v
			}
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			case metricdata.Gauge[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			}
		}
	}
	return points
}

func TestMetrics_CountWhatHappened(t *testing.T) {
	t.Parallel()
	r := start(t, false, harness.Options{Agents: []sdk.Agent{desk()}, Model: script()})
	runDesk(t, r, "")
	points := r.measured(t)
	for name, want := range map[string]float64{
		"agentd.runs.started{gen_ai.agent.name=shop.desk}":                              1,
		"agentd.runs.finished{agentd.run.reason=completed,gen_ai.agent.name=shop.desk}": 1,
		"agentd.runs.suspended{gen_ai.agent.name=shop.desk}":                            1,
		"agentd.run.suspended.duration{gen_ai.agent.name=shop.desk}":                    1,
		"agentd.turns{gen_ai.agent.name=shop.desk}":                                     2,
		"gen_ai.client.operation.duration":                                              2,
		"gen_ai.client.token.usage":                                                     4,
		"gen_ai.execute_tool.duration{gen_ai.tool.name=note}":                           1,
		"agentd.activations.active":                                                     0,
	} {
		if got := points[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for _, name := range []string{
		"agentd.store.operation.duration{agentd.outcome=ok,agentd.store.name=jetstream,agentd.store.operation=append}",
		"agentd.journal.entry.size", "agentd.activation.duration", "messaging.client.operation.duration",
	} {
		if points[name] == 0 {
			t.Errorf("%s is not measured", name)
		}
	}
}

func TestMetrics_CountTheHitsOfJudges(t *testing.T) {
	t.Parallel()
	a := desk()
	a.Spec.Answers = &sdk.Answers{Require: []sdk.Requirement{{Name: "sure", When: `output.response != "perhaps"`, Retries: 1, Optional: true}}}
	r := start(t, false, harness.Options{Agents: []sdk.Agent{a}, Model: sdktest.Script(
		sdktest.Say(""), sdktest.Say("perhaps"), sdktest.Say("perhaps"))})
	r.Done(r.Run("shop.desk", map[string]any{"message": "hello"}))
	points := r.measured(t)
	for attributes, want := range map[string]float64{
		"agentd.judge=empty,agentd.judge.accepted=false": 1, "agentd.judge=sure,agentd.judge.accepted=false": 1,
		"agentd.judge=sure,agentd.judge.accepted=true": 1,
	} {
		if got := points["agentd.answers.judged{"+attributes+",gen_ai.agent.name=shop.desk}"]; got != want {
			t.Errorf("%s is %v, want %v; all are %v", attributes, got, want, points["agentd.answers.judged"])
		}
	}
}

func TestStart_IsOffUnlessTheEnvironmentAsks(t *testing.T) {
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
	} {
		t.Setenv(name, "")
	}
	off := func(why string, o telemetry.Options) {
		t.Helper()
		shown, err := telemetry.Start(t.Context(), o)
		if err != nil || shown != nil {
			t.Errorf("%s: telemetry is %v, %v", why, shown, err)
		}
	}
	off("nothing is set", telemetry.Options{})
	t.Setenv("OTEL_TRACES_EXPORTER", "none")
	off("the exporter is none", telemetry.Options{})
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	t.Setenv("OTEL_SDK_DISABLED", "true")
	off("the SDK is disabled", telemetry.Options{Scrape: true})
	t.Setenv("OTEL_SDK_DISABLED", "")
	t.Setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
	if _, err := telemetry.Start(t.Context(), telemetry.Options{}); err == nil || !strings.Contains(err.Error(), "carrier-pigeon") {
		t.Errorf("an unknown exporter: %v", err)
	}
}

func TestDeadLetters_AreCountedAndTheirSpanFails(t *testing.T) {
	t.Parallel()
	r := start(t, false, harness.Options{Agents: []sdk.Agent{desk()}, Model: script()})
	run := r.Run("shop.desk", map[string]any{})
	r.Suspended(run, 1)
	call := r.Call("shop.find")
	stray := wire.Event{
		ID: "stray", Source: "test", Type: "shop.find.done", Subject: run.Subject, Data: json.RawMessage(`{}`),
		ParentID: "nobody", TraceParent: clientTrace,
	}
	reply, _ := r.Conn().ReplySubject(call.Subject)
	r.Publish(reply[:len(reply)-1]+"0", stray) // of a call that nobody made
	r.DeadLetter()
	call.Answer("shop.find.done", map[string]any{})
	r.Done(run)
	r.StopWorkers()
	if points := r.measured(t); points["agentd.dead_letters"] != 1 {
		t.Errorf("%v dead letters are counted, want 1", points["agentd.dead_letters"])
	}
	failed := 0
	for _, s := range r.spans.GetSpans() {
		if value(s, "agentd.settlement") == "reject" && s.Status.Code == codes.Error {
			failed++
		}
	}
	if failed != 1 {
		t.Errorf("%d spans of activations failed, want 1", failed)
	}
}
