package toolbox

import (
	"bytes"
	"encoding/json"
	"testing"

	"agentd/internal/contracts"
	"agentd/internal/golden"
	"agentd/internal/schema"
	"agentd/sdk"
)

func mustLoad(t testing.TB, file string) sdk.Contract {
	t.Helper()
	c, err := contracts.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func indented(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(text, '\n')
}

// What models are shown of contracts in all dialects, and of agentd's own tools. Every provider must take it, and a change
// of one byte costs every running conversation its prompt cache.
func TestTools_DefinitionsOnFile(t *testing.T) {
	t.Parallel()
	spec := sdk.AgentSpec{Name: "clerk", Builtin: BuiltinNames()}
	for _, file := range []string{
		"testdata/tools/draft-07.yaml", "testdata/tools/draft-04.yaml", "testdata/tools/2020-12.yaml", "testdata/tools/closed.yaml",
		"../../examples/traveldesk/contracts/flights.yaml", "../../examples/traveldesk/contracts/hotels.yaml",
	} {
		spec.Services = append(spec.Services, sdk.ServiceTool{Contract: mustLoad(t, file), Version: "1.0.0"})
	}
	b := mustTools(t, spec)
	golden.Check(t, "testdata/tools/definitions.golden.json", indented(t, b.Definitions()))
	for _, d := range b.Definitions() {
		s, err := schema.Compile(d.Parameters) // as 2020-12, which has no dialect of its own
		if err != nil || !s.IsObject() || bytes.HasPrefix(d.Parameters, []byte(`{"$ref"`)) {
			t.Errorf("%s: %v, parameters %s", d.Name, err, d.Parameters)
		}
	}
}
