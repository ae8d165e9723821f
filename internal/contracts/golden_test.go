package contracts

import (
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares what the code says with what is on file.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update rewrites it):\n%s", file, diff)
	}
}

func mustLoad(t testing.TB, file string) sdk.Contract {
	t.Helper()
	c, err := Load(file)
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
	spec := sdk.AgentSpec{Name: "clerk", Builtin: BuiltinTools()}
	for _, file := range []string{
		"testdata/tools/draft-07.yaml", "testdata/tools/draft-04.yaml", "testdata/tools/2020-12.yaml", "testdata/tools/closed.yaml",
		"../../examples/traveldesk/contracts/flights.yaml", "../../examples/traveldesk/contracts/hotels.yaml",
	} {
		spec.Services = append(spec.Services, sdk.ServiceTool{Contract: mustLoad(t, file), Version: "1.0.0"})
	}
	b := mustTools(t, spec)
	golden(t, "testdata/tools/definitions.golden.json", indented(t, b.Definitions()))
	for _, d := range b.Definitions() {
		s := mustCompile(t, d.Parameters) // as 2020-12, which has no dialect of its own
		if !s.IsObject() || s.tree.root.object[keyRef] != nil {
			t.Errorf("%s: parameters %s", d.Name, d.Parameters)
		}
	}
}
