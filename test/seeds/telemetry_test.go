package seeds_test

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"agentd/internal/broker"
	"agentd/internal/broker/streams"
	"agentd/internal/harness"
	"agentd/internal/telemetry"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// aTrace is what the init events of these rows carry.
const aTrace, aTraceID = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "4bf92f3577b34da6a3ce929d0e0e4736"

// traced runs a run that uses an internal tool and a service, by two workers, and returns its events and what was recorded: of metrics
// the sums, by their names and the types of tokens.
func traced(t *testing.T) (call *harness.Call, done wire.Event, spans tracetest.SpanStubs, sums map[string]float64) {
	t.Helper()
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
	reply := sdktest.Ask(sdktest.Tool("note", n(1)), sdktest.Tool("shop_find", n(1)))
	reply.Usage = sdk.Usage{Prompt: 30, Completion: 12}
	a := desk(service("shop.find"))
	a.Tools = []sdk.Tool{echo("note")}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{a}, Model: sdktest.Script(reply, sdktest.Say("done")), Workers: 2, Telemetry: shown,
	})
	event := other(h, "desk", "hats", message("hello"))
	event.TraceParent, event.TraceState = aTrace, "vendor=1"
	r := h.Send("desk", event)
	h.Suspended(r, 1)
	await(t, "the first activation ends", func() bool { return len(ofKind(exporter.GetSpans(), "AGENT")) > 0 })
	call = h.Call("shop.find")
	call.Answer("shop.find.done", value("it"))
	done = succeeds(t, h, r, `{"response": "done"}`)
	h.StopWorkers()
	spans = exporter.GetSpans()
	return call, done, spans, sumsOf(t, reader)
}

// sumsOf are the sums of all histograms, by their names and the types of tokens.
func sumsOf(t *testing.T, reader sdkmetric.Reader) map[string]float64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	add := func(name string, attributes attribute.Set, sum float64) {
		kind, _ := attributes.Value("gen_ai.token.type")
		sums[strings.TrimSpace(name+" "+kind.AsString())] += sum
	}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, float64(p.Sum))
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(m.Name, p.Attributes, p.Sum)
				}
			}
		}
	}
	return sums
}

// attributeOf is the value of a span's attribute as text.
func attributeOf(s tracetest.SpanStub, key string) string {
	i := slices.IndexFunc(s.Attributes, func(a attribute.KeyValue) bool { return string(a.Key) == key })
	if i < 0 {
		return ""
	}
	return s.Attributes[i].Value.String()
}

// ofKind are the spans of an OpenInference kind, in order.
func ofKind(spans tracetest.SpanStubs, kind string) []tracetest.SpanStub {
	var found []tracetest.SpanStub
	for _, s := range spans {
		if attributeOf(s, "openinference.span.kind") == kind {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	return found
}

// agentSpan is row A2.
func agentSpan(t *testing.T) {
	_, _, spans, _ := traced(t)
	agents, models, tools := ofKind(spans, "AGENT"), ofKind(spans, "LLM"), ofKind(spans, "TOOL")
	equal(t, "spans of activations, models and tools", []int{len(agents), len(models), len(tools)}, []int{2, 2, 2})
	children := []tracetest.SpanStub{models[0], tools[0], tools[1]}
	for _, s := range children {
		if s.Parent.SpanID() != agents[0].SpanContext.SpanID() {
			t.Errorf("%s is not below the first activation", s.Name)
		}
	}
	if models[1].Parent.SpanID() != agents[1].SpanContext.SpanID() {
		t.Error("the second model call is not below the second activation")
	}
	var counts []string
	for _, key := range []string{"llm.token_count.prompt", "llm.token_count.completion", "llm.token_count.total"} {
		counts = append(counts, attributeOf(models[0], key))
	}
	equal(t, "token counts", counts, []string{"30", "12", "42"})
	equal(t, "tools", []string{attributeOf(tools[0], "tool.name"), attributeOf(tools[1], "tool.name")}, []string{"shop_find", "note"}) // the call leaves before tools run
}

// tracePropagation is row B20.
func tracePropagation(t *testing.T) {
	call, done, spans, _ := traced(t)
	inTrace(t, "the call", call.Event)
	equal(t, "the call's trace, with the span that docs/wire.md has", call.Event.TraceParent, "00-"+aTraceID+"-85a99167e078d2db-01")
	equal(t, "the terminal event's trace", done.TraceParent, aTrace)
	inTrace(t, "the terminal event", done)
	agents := ofKind(spans, "AGENT")
	for _, s := range spans {
		equal(t, "trace of "+s.Name, s.SpanContext.TraceID().String(), aTraceID)
	}
	if !agents[0].EndTime.Before(agents[1].StartTime) {
		t.Error("a span is open while the run is suspended")
	}
	waitedFor := slices.ContainsFunc(agents[1].Links, func(l sdktrace.Link) bool {
		return "00-"+aTraceID+"-"+l.SpanContext.SpanID().String()+"-01" == call.Event.TraceParent
	})
	if !waitedFor {
		t.Error("the resumed run does not link to the call that it waited for")
	}
	t.Run("every event", everyEventHasTheTrace)
}

// inTrace sees that an event is in the trace of its run's init event, and carries the state of that.
func inTrace(t *testing.T, what string, e wire.Event) {
	t.Helper()
	if !strings.HasPrefix(e.TraceParent, "00-"+aTraceID+"-") || e.TraceState != "vendor=1" {
		t.Errorf("%s %s has the trace %q and its state %q", what, e.Type, e.TraceParent, e.TraceState)
	}
}

// everyEventHasTheTrace is row B20 for whatever a run sends: a request for permission, a question, a turn of a conversation, what takes
// back the call that a cancelled run has open, and its end.
func everyEventHasTheTrace(t *testing.T) {
	a := gated(asks(sdk.PermissionHold, "shop_find"), service("shop.find"))
	a.Spec.Builtin = []string{"ask_question", "converse"}
	h := start(t, sdktest.Script(find(1), sdktest.Ask(sdktest.Tool("ask_question", map[string]any{"question": "Really?"})),
		sdktest.Ask(sdktest.Tool("converse", message("As you like.")))), a)
	init := h.Init("desk", message("hello"))
	init.TraceParent, init.TraceState = aTrace, "vendor=1"
	r := h.Send("desk", init)
	decide(request(t, h), sdk.PermissionDecision{Decision: sdk.DecisionDeny})
	h.Call(sdk.TypeQuestion).Answer("agentd.question.answered", map[string]any{"answer": "yes"})
	h.Call(sdk.TypeConversationTurn)
	h.Cancel(r, "enough")
	h.Done(r)
	var types []string
	for _, zone := range []streams.Zone{streams.Out, streams.Done} {
		err := h.Conn().Scan(t.Context(), zone, "agentd.>", 1, func(m broker.Stored) (bool, error) {
			e, err := wire.DecodeEvent(m.Headers, m.Data)
			if err == nil {
				types = append(types, e.Type)
				inTrace(t, m.Subject, e)
			}
			return true, err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	equal(t, "events", types, []string{
		"agentd.permission.request", "sys.agentd.permission.request.void", "agentd.question.ask",
		"agentd.conversation.turn", "sys.agentd.conversation.turn.void", "sys.test.desk.error",
	})
}

// spansAndMetrics is row T69.
func spansAndMetrics(t *testing.T) {
	_, _, spans, sums := traced(t)
	var operations []string
	for _, s := range spans {
		if o := attributeOf(s, "gen_ai.operation.name"); o != "" {
			operations = append(operations, o)
		}
	}
	slices.Sort(operations)
	equal(t, "operations", operations, []string{"chat", "chat", "execute_tool", "execute_tool", "invoke_agent", "invoke_agent"})
	model := ofKind(spans, "LLM")[0]
	for key, want := range map[string]string{
		"gen_ai.provider.name": "script", "gen_ai.request.model": "desk",
		"gen_ai.usage.input_tokens": "30", "gen_ai.usage.output_tokens": "12",
	} {
		equal(t, key, attributeOf(model, key), want)
	}
	// The script's second reply has one token of each type.
	equal(t, "tokens", []float64{sums["gen_ai.client.token.usage input"], sums["gen_ai.client.token.usage output"]}, []float64{30 + 1, 12 + 1})
	for _, name := range []string{"gen_ai.client.operation.duration", "gen_ai.execute_tool.duration"} {
		if seconds := sums[name]; seconds <= 0 || seconds > 60 {
			t.Errorf("%s has the sum %v s", name, seconds)
		}
	}
}

// tokenAccounting is row F47.
func tokenAccounting(t *testing.T) {
	reply := sdktest.Ask(sdktest.Tool("note", n(1)))
	reply.Usage = sdk.Usage{Prompt: 30, Completion: 12}
	end := sdktest.Say("done")
	end.Usage = sdk.Usage{Prompt: 50, Completion: 3}
	a := desk()
	a.Tools, a.Spec.Limits.Interactions, a.Spec.Model.MaxTokens = []sdk.Tool{echo("note")}, 7, 900
	h := start(t, sdktest.Script(reply, end), a)

	var mu sync.Mutex
	var events []string
	watched := make(chan struct{}, 1)
	init := h.Init("desk", message("hello"))
	stop, err := h.Conn().WatchLive("desk", wire.NewRunKey(init.Subject), func(l wire.Live) {
		mu.Lock()
		defer mu.Unlock()
		if l.Type == wire.LiveTurnStarted || l.Type == wire.LiveUsage {
			var compact map[string]any
			if err := json.Unmarshal(l.Data, &compact); err != nil {
				t.Error(err)
			}
			delete(compact, "model")
			data, _ := json.Marshal(compact) // it was JSON
			events = append(events, l.Type+" "+string(data))
		}
		if l.Type == "run.finished" {
			watched <- struct{}{}
		}
	}, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	succeeds(t, h, h.Send("desk", init), `{"response": "done"}`)
	await(t, "the end is announced", func() bool { return len(watched) == 1 })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	equal(t, "events", events, []string{
		`turn.started {"interactions":{"current":0,"max":7},"max_tokens":900,"used":{"completion":0,"prompt":0}}`,
		`model.usage {"completion":12,"prompt":30,"run":{"completion":12,"prompt":30},"total":42}`,
		`turn.started {"interactions":{"current":1,"max":7},"max_tokens":900,"used":{"completion":12,"prompt":30}}`,
		`model.usage {"completion":3,"prompt":50,"run":{"completion":15,"prompt":80},"total":53}`,
	})
}
