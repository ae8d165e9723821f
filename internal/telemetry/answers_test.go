package telemetry_test

import (
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// answered are the histograms of agentd.call.duration by type and outcome: how many attempts, and their seconds.
func (r rig) answered(t *testing.T) map[string]metricdata.HistogramDataPoint[float64] {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	found := map[string]metricdata.HistogramDataPoint[float64]{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != "agentd.call.duration" {
				continue
			}
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				name := func(key attribute.Key) string {
					v, _ := p.Attributes.Value(key)
					return v.AsString()
				}
				found[name("agentd.call.type")+" "+name("agentd.outcome")] = p
			}
		}
	}
	return found
}

func TestMetrics_TellHowServicesAnswer(t *testing.T) {
	t.Parallel()
	const timeout = 200 // milliseconds
	object := `{"type":"object"}`
	agent := sdk.Agent{Spec: sdk.AgentSpec{
		Name: "desk", Version: "1.0.0", Contract: contract("desk", object), Model: sdk.ModelSpec{Provider: "acme", Name: "small"},
		Services: []sdk.ServiceTool{
			{Contract: contract("quick", object), Version: "1.0.0"},
			{Contract: contract("shaky", object), Version: "1.0.0", Retry: &sdk.Retry{Attempts: 2, BackoffMillis: 1}},
			{Contract: contract("silent", object), Version: "1.0.0", TimeoutMillis: timeout},
		},
	}}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("quick", map[string]any{}), sdktest.Tool("shaky", map[string]any{}), sdktest.Tool("silent", map[string]any{})),
		sdktest.Say("done"))
	r := start(t, false, harness.Options{Agents: []sdk.Agent{agent}, Model: model, Workers: 2})
	run := r.Run("desk", map[string]any{})
	r.Call("quick").Answer("quick.done", map[string]any{})
	r.Call("shaky").Fail(wire.Problem{ErrorName: "E", ErrorMessage: "not now", Code: sdk.CodeUnavailable, Retryable: true})
	r.Call("shaky").Answer("shaky.done", map[string]any{})
	if done := r.Done(run); done.Type != "desk.done" {
		t.Fatalf("the run ended with %s %s", done.Type, done.Data)
	}
	r.StopWorkers()
	answered := r.answered(t)
	for _, want := range []string{"quick ok", "shaky error", "shaky ok", "silent timeout"} {
		if n := answered[want].Count; n != 1 {
			t.Errorf("%d attempts were %s, want 1", n, want)
		}
	}
	if len(answered) != 4 {
		t.Errorf("attempts ended in %d ways: %v", len(answered), answered)
	}
	if took := answered["silent timeout"].Sum; took < timeout/1000. {
		t.Errorf("a call that nobody answered took %v s, less than its timeout", took)
	}
}
