package catalog

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentd/internal/runner"
	"agentd/internal/schema"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The input is hashed and compared as it is, so it has one form, whether anything is filled in or not.
func TestCheckInput_IsCanonicalWithItsDefaults(t *testing.T) {
	t.Parallel()
	accepts, err := schema.Compile(json.RawMessage(`{"type": "object", "properties": {"city": {"type": "string"}, "beds": {"default": 2}}}`))
	if err != nil {
		t.Fatal(err)
	}
	check := checkInput(sdk.AgentSpec{Name: "desk"}, accepts)
	for given, want := range map[string]string{
		`{"city": "Bergen"}`:             `{"beds":2,"city":"Bergen"}`,
		`{ "city": "Bergen", "beds": 1}`: `{"beds":1,"city":"Bergen"}`,
	} {
		data, problem := check(wire.Event{Data: json.RawMessage(given)})
		if problem != nil || string(data) != want {
			t.Errorf("%s is %s, %v; want %s", given, data, problem, want)
		}
	}
}

// Templates of every turn go over the run's input, wherever they stand.
func TestTurns_TemplatesReadTheInput(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]sdk.AgentSpec{
		"loop":         {Guidance: &sdk.Guidance{Loop: "Answer for {{.Input.city}}."}},
		"capabilities": {Guidance: &sdk.Guidance{Capabilities: "You know {{.Input.city}}."}},
		"thinking":     {Guidance: &sdk.Guidance{Thinking: "Think of {{.Input.city}}."}},
		"overlay":      {Overlays: &sdk.Overlays{WorkingContext: "It rains in {{.Input.city}}."}},
	} {
		tools, err := toolbox.New(spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		turns, err := newTurns(spec, sdk.Hooks{}, tools)
		if err != nil {
			t.Fatal(err)
		}
		built, err := turns.build(t.Context(), runner.PromptInput{Run: "order 7", Input: json.RawMessage(`{"city":"Bergen"}`)})
		if said := fmt.Sprint(built.System, built.Sections); err != nil || !strings.Contains(said, "Bergen") {
			t.Errorf("%s: the model is told %q, %v", name, said, err)
		}
	}
}
