package pipeline

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// An answer that comes after its call timed out does not answer the call that is open now, and changes nothing that the
// model was told.
func TestLateAnswer_DoesNotChangeTheHistory(t *testing.T) {
	t.Parallel()
	spec := desk()
	patient := spec.Services[0]
	patient.Contract = contract("calc.multiply", "", `{"type":"object"}`, "calc.multiplied", `{"type":"object"}`)
	spec.Services[0].TimeoutMillis = 100
	spec.Services = append(slices.Clone(spec.Services), patient)
	model := sdktest.Script(
		sdktest.Ask(add(1, 2)), sdktest.Ask(sdktest.Tool("calc_multiply", map[string]int{"a": 3, "b": 4})), sdktest.Say("twelve"),
	)
	onStores(t, func(t *testing.T, start func(harness.Options) (*harness.Harness, vandal)) {
		h, _ := start(harness.Options{Agents: []sdk.Agent{{Spec: spec}}, Model: model})
		r := h.Run("desk", hello())
		late := h.Call("calc.add")
		open := h.Call("calc.multiply")
		before := h.Suspended(r, 1)
		late.Answer("calc.added", sum(3))
		sneaky := late.Response("calc.multiplied", map[string]int{"product": 99})
		sneaky.ID = "sneaky"
		h.PublishAgain(late, sneaky)
		sound(t, h.Conn(), h.Worker().Store) // when everything is settled
		if got := h.State(r); got.Rev != before.Rev {
			t.Errorf("the late answers led to %d entries", got.Rev-before.Rev)
		}
		open.Answer("calc.multiplied", map[string]int{"product": 12})
		wantResponse(t, h.Done(r), "twelve")
		h.Void("calc.add")
		again := late.Response("calc.added", sum(4))
		again.ID = "again"
		h.PublishAgain(late, again)

		var results []string
		for _, m := range h.Messages(r) {
			for _, c := range m.Content {
				if c.Kind == sdk.ContentToolResult {
					results = append(results, c.Text)
				}
			}
		}
		if len(results) != 2 || !containsCode(results[0], sdk.CodeDeadline) {
			t.Fatalf("the model was told %v", results)
		}
		if diff := cmp.Diff(`{"product":12}`, results[1]); diff != "" {
			t.Errorf("second result (-want +got):\n%s", diff)
		}
		sound(t, h.Conn(), h.Worker().Store)
	})
}
