package pipeline

import (
	"context"
	"encoding/json"
	"testing"

	"agentd/internal/harness"
	"agentd/internal/runner"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// A long conversation costs no more a step in the end than in the beginning: what is written is what is new.
func TestJournal_BytesAStepAreFlat(t *testing.T) {
	t.Parallel()
	t.Run("plain", func(t *testing.T) { bytesAreFlat(t, desk(), 1) })
	t.Run("guarded", func(t *testing.T) {
		spec, answers, guards := desk(), sdk.SmallModel(), sdk.SmallModelGuards
		guards.ReadOnly = []string{"look"}
		spec.Answers, spec.Guards = &answers, &guards
		bytesAreFlat(t, spec, 50) // by then guards know as many calls as they keep
	})
}

// bytesAreFlat compares what 50 steps of an agent write, from the step begin on and at the end.
func bytesAreFlat(t *testing.T, spec sdk.AgentSpec, begin int) {
	t.Parallel()
	const steps, part = 200, 50
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		spec := spec
		spec.Limits.Interactions = steps + 1
		tool := sdk.Tool{
			Definition: sdk.ToolDefinition{Name: "look", Parameters: json.RawMessage(`{"type":"object"}`)},
			Run: func(context.Context, sdk.ToolCall) (json.RawMessage, error) {
				return json.RawMessage(`{"seen":"the same as ever, and as much of it"}`), nil
			},
		}
		h, _ := start(harness.Options{
			Agents: []sdk.Agent{{Spec: spec, Tools: []sdk.Tool{tool}}},
			Model: sdktest.ModelFunc(func(_ context.Context, req sdk.ModelRequest) (sdk.ModelReply, error) {
				if req.Interactions.Current == steps {
					return sdktest.Say("enough"), nil
				}
				return sdktest.Ask(sdktest.Tool("look", map[string]int{"at": steps + req.Interactions.Current})), nil
			}),
		})
		r := h.Run("desk", hello())
		wantResponse(t, h.Done(r), "enough")
		records, err := h.Worker().Store.Entries(t.Context(), r.Key, runner.Version{})
		if err != nil {
			t.Fatal(err)
		}
		// Every step writes the same number of entries, between the first and the last one of the run.
		each := (len(records) - 2) / steps
		if each < 1 || each > 3 {
			t.Fatalf("%d entries for %d steps", len(records), steps)
		}
		bytes := func(from int) (sum int) {
			for _, rec := range records[1+from*each : 1+(from+part)*each] {
				sum += len(rec.Data)
			}
			return sum
		}
		first, last := bytes(begin), bytes(steps-part)
		if low, high := first*9/10, first*11/10; last < low || last > high {
			t.Errorf("%d steps wrote %d bytes at first, and %d in the end", part, first, last)
		}
		t.Logf("%d bytes a step at first, %d in the end", first/part, last/part)
	})
}
