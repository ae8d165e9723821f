package contracts

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
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

// What a model is told of its arguments. It must be able to act on every line, and the same fault has the same words
// whichever validator found it. The files differ in one place: where no alternative is of the value's type, gojsonschema
// tells of the closest one only.
func TestSchema_FaultsOnFile(t *testing.T) {
	t.Parallel()
	read := func(file string, into any) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	var schema map[string]json.RawMessage
	var documents []json.RawMessage
	read("testdata/faults/order.json", &schema)
	read("testdata/faults/data.json", &documents)
	for _, d := range []dialect{draft7, draft2019, draft2020} {
		schema["$schema"] = json.RawMessage(compactJSON(metaschemas[d]))
		s := mustCompile(t, json.RawMessage(compactJSON(schema)))
		var told strings.Builder
		for _, data := range documents {
			fmt.Fprintf(&told, "%s\n", data)
			faults := lines(s.Validate(data))
			if len(faults) == 0 {
				faults = []string{"fits"}
			}
			fmt.Fprintf(&told, "    %s\n\n", strings.Join(faults, "\n    "))
		}
		file := "testdata/faults/faults.golden.txt"
		if d.legacy() {
			file = "testdata/faults/faults.draft-07.golden.txt"
		}
		t.Run(metaschemas[d], func(t *testing.T) { golden(t, file, []byte(told.String())) })
	}
}

// What the author of a contract is told.
func TestLoad_FaultsOnFile(t *testing.T) {
	t.Parallel()
	_, err := Load("testdata/faults/broken.yaml")
	if err == nil {
		t.Fatal("the file is taken")
	}
	golden(t, "testdata/faults/broken.golden.txt", []byte(err.Error()+"\n"))
}
