package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// tenKilobytes is an order that fits orderSchema.
func tenKilobytes(b *testing.B) json.RawMessage {
	b.Helper()
	var lines []string
	for i := range 80 {
		lines = append(lines, fmt.Sprintf(`{"article": "ART-%06d", "amount": %d, "price": %d.25, "kind": "goods", "note": %q}`,
			i, i+1, i*3, strings.Repeat("x", 40)))
	}
	data := json.RawMessage(`{"customer": "c-1", "lines": [` + strings.Join(lines, ",") + `]}`)
	if len(data) < 10_000 || len(data) > 11_000 {
		b.Fatalf("%d bytes", len(data))
	}
	return data
}

const orderSchema = `"type": "object",
  "properties": {
    "customer": {"type": "string", "pattern": "^c-"},
    "lines": {"type": "array", "minItems": 1, "maxItems": 1000, "items": {
      "type": "object",
      "properties": {
        "article": {"type": "string", "pattern": "^ART-[0-9]{6}$"}, "amount": {"type": "integer", "minimum": 1},
        "price": {"type": "number", "minimum": 0}, "kind": {"enum": ["goods", "service"]}, "note": {"type": "string", "maxLength": 200}
      },
      "required": ["article", "amount", "price", "kind"], "additionalProperties": false
    }}
  },
  "required": ["customer", "lines"], "additionalProperties": false}`

// BenchmarkValidate is what judging a payload of 10 KB costs, in the dialect of each validator.
func BenchmarkValidate(b *testing.B) {
	data := tenKilobytes(b)
	for _, d := range []dialect{draft7, draft2020} {
		schema := json.RawMessage(fmt.Sprintf(`{"$schema": %q, %s`, metaschemas[d], orderSchema))
		s := mustCompile(b, schema)
		name := metaschemas[d][strings.Index(metaschemas[d], "draft"):]
		b.Run(strings.TrimSuffix(strings.ReplaceAll(name, "/", "-"), "-schema"), func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			before := Compilations()
			for b.Loop() {
				if _, err := Compile(schema); err != nil { // as whoever handles a message does
					b.Fatal(err)
				}
				if faults := s.Validate(data); len(faults) > 0 {
					b.Fatal(faults)
				}
			}
			b.ReportMetric(float64(Compilations()-before)/float64(b.N), "compilations/op")
		})
	}
}
