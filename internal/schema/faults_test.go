package schema

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"agentd/internal/golden"
)

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
		t.Run(metaschemas[d], func(t *testing.T) { golden.Check(t, "testdata/faults/faults.golden.txt", []byte(told.String())) })
	}
}
