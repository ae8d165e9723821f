package telemetry_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// windows are the tokens of all prompts together, by what they are for.
func (r rig) windows(t *testing.T) map[string]int64 {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	parts := map[string]int64{}
	for _, s := range all.ScopeMetrics {
		for _, m := range s.Metrics {
			if m.Name != "agentd.prompt.tokens" {
				continue
			}
			for _, p := range m.Data.(metricdata.Histogram[int64]).DataPoints {
				part, _ := p.Attributes.Value("agentd.prompt.part")
				parts[part.AsString()] += p.Sum
			}
		}
	}
	return parts
}

// What the tokens of a model's window are for is measured, each part, and all parts are the window.
func TestMetrics_TellWhatAWindowIsFor(t *testing.T) {
	t.Parallel()
	const window = 8000
	a := desk()
	a.Spec.Model.ContextWindow = window
	r := start(t, false, harness.Options{Agents: []sdk.Agent{a}, Model: sdktest.Script(sdktest.Say("done"))})
	r.Done(r.Run("shop.desk", map[string]any{"message": "hello"}))
	r.StopWorkers()
	parts, sum := r.windows(t), int64(0)
	for part, tokens := range parts {
		if sum += tokens; tokens == 0 && (part == "tools" || part == "history" || part == "output" || part == "safety" || part == "remaining") {
			t.Errorf("nothing of the window is for %s", part)
		}
	}
	if len(parts) != 8 || sum != window {
		t.Errorf("the parts of a window of %d are %v", window, parts)
	}
}

func TestMetrics_CountTheHitsOfGuards(t *testing.T) {
	t.Parallel()
	a := desk()
	a.Tools = []sdk.Tool{{
		Definition: sdk.ToolDefinition{Name: "break", Parameters: json.RawMessage(`{"type":"object"}`)},
		Run:        func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return nil, errors.New("it broke") },
	}}
	a.Spec.Guards = &sdk.Guards{Errors: 2, Failures: 3}
	fails := sdktest.Ask(sdktest.Tool("break", map[string]any{}))
	r := start(t, false, harness.Options{Agents: []sdk.Agent{a}, Model: sdktest.Script(fails, fails, fails, fails, sdktest.Say("done"))})
	r.Done(r.Run("shop.desk", map[string]any{"message": "hello"}))
	r.StopWorkers()
	points := r.measured(t)
	for guard, want := range map[string]float64{"errors": 2, "failures": 1, "duplicates": 0} {
		if got := points["agentd.guards{agentd.guard="+guard+",gen_ai.agent.name=shop.desk}"]; got != want {
			t.Errorf("%s is %v, want %v", guard, got, want)
		}
	}
}
