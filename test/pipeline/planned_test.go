package pipeline

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/harness"
	"agentd/internal/llm"
	"agentd/internal/llm/mockllm"
	"agentd/sdk"
)

// planScript is what the models of an agent say that plans: three sums at once, then what fails, then another plan for what is left.
const planScript = `
conversations:
  - match: {model: planner, system: An earlier plan was left with this}
    replies: [{text: 'plan.add_step(step=5, after=[1, 2, 3], text="Note the sums")'}]
  - match: {model: planner, contains: three sums}
    replies:
      - text: |
          plan.add_step(step=1, tool="calc_add", text="Add 1 and 1")
          plan.add_step(step=2, tool="calc_add", text="Add 2 and 2")
          plan.add_step(step=3, tool="calc_add", text="Add 3 and 3")
          plan.add_step(step=4, tool="print", after=[1, 2, 3], text="Print the sums")
  - {match: {model: router, contains: "Step: Add 1"}, replies: [{calls: [{name: calc_add, arguments: {a: 1, b: 1}}]}]}
  - {match: {model: router, contains: "Step: Add 2"}, replies: [{calls: [{name: calc_add, arguments: {a: 2, b: 2}}]}]}
  - {match: {model: router, contains: "Step: Add 3"}, replies: [{calls: [{name: calc_add, arguments: {a: 3, b: 3}}]}]}
  - {match: {model: router, contains: "Step: Print"}, replies: [{calls: [{name: print, arguments: {}}]}]}
  - {match: {model: router, contains: "Step: Note"}, replies: [{calls: [{name: note, arguments: {}}]}]}
  - {match: {model: writer, last: The plan is carried out}, replies: [{text: "The sums are noted, not printed."}]}
`

// scripted is agentd mock-llm with a script.
func scripted(t *testing.T, name string, script []byte) sdk.Provider {
	t.Helper()
	parsed, err := mockllm.ParseScript(name, script)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(mockllm.New(parsed))
	t.Cleanup(server.Close)
	model, err := llm.NewOpenAI(llm.OpenAIOptions{BaseURL: server.URL + "/v1", HTTPClient: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// A plan is made and carried out against agentd mock-llm: steps that need nothing of each other are made at once, their worker is lost while
// they wait, one step fails and has another plan made, and the run finishes with every call made once.
func TestPlan_LosesAWorkerAndFinishes(t *testing.T) {
	t.Parallel()
	model := scripted(t, "script.yaml", []byte(planScript))
	spec := desk()
	role := func(name string) *sdk.ModelSpec { return &sdk.ModelSpec{Provider: spec.Model.Provider, Name: name} }
	spec.Mode, spec.Plan = sdk.ModePlan, &sdk.PlanSpec{Planner: role("planner"), Router: role("router"), Synthesizer: role("writer")}
	tool := func(name string, err error) sdk.Tool {
		return sdk.Tool{
			Definition: sdk.ToolDefinition{Name: name, Description: "A test's " + name + ".", Parameters: []byte(`{"type":"object"}`)},
			Run:        func(context.Context, sdk.ToolCall) (json.RawMessage, error) { return json.RawMessage("{}"), err },
		}
	}
	h := harness.Start(t, harness.Options{
		Agents: []sdk.Agent{{Spec: spec, Tools: []sdk.Tool{tool("note", nil), tool("print", sdk.Errorf(sdk.CodeTool, "no paper"))}}}, Model: model,
	})
	run := h.Run("desk", map[string]string{"message": "Note three sums"})
	calls := []*harness.Call{h.Call("calc.add"), h.Call("calc.add"), h.Call("calc.add")}
	h.StopWorkers()
	calls[0].Answer("calc.added", sum(2))
	h.Restart()
	calls[1].Answer("calc.added", sum(4))
	calls[2].Answer("calc.added", sum(6))
	h.Done(run)
	h.NoCall("calc.add")

	plan := h.State(run).Plan
	var steps []string
	for _, s := range plan.Steps {
		steps = append(steps, string(s.Status)+" "+s.Called+": "+s.Text)
	}
	want := []string{
		"done calc_add: Add 1 and 1", "done calc_add: Add 2 and 2", "done calc_add: Add 3 and 3", "failed print: Print the sums", "done note: Note the sums",
	}
	if diff := cmp.Diff(want, steps); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	var kinds []string
	for _, e := range h.Journal(run) {
		if slices.Contains([]string{core.KindPlanned, core.KindRouted, core.KindReplied}, e.Kind) {
			kinds = append(kinds, e.Kind)
		}
	}
	if diff := cmp.Diff([]string{"planned", "routed", "routed", "planned", "routed", "replied"}, kinds); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
