package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestSchema_ApplyDefaults(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, members, data, want string }{
		{"nothing to do", `"properties": {"a": {}}`, ` {"b" : 1} `, ` {"b" : 1} `},
		{"nothing missing", `"properties": {"a": {"default": 1}}`, ` {"a" : 2e0} `, ` {"a" : 2e0} `},
		{"missing", `"properties": {"b": {"default": [1, 2.50]}, "a": {"default": null}}`, `{"x": 1.0}`, `{"x":1.0,"a":null,"b":[1,2.50]}`},
		{"null is present", `"properties": {"a": {"default": 1}}`, `{"a": null}`, `{"a": null}`},
		{
			"precision", `"properties": {"a": {"default": 9007199254740993}}`, `{"b": 0.10000000000000000001}`,
			`{"b":0.10000000000000000001,"a":9007199254740993}`,
		},
		{"names and texts as they are", `"properties": {"<é>": {"default": "<&"}}`, `{"\u00e9": "\u00e9"}`, `{"é":"\u00e9","<é>":"<&"}`},
		{"nested", `"properties": {"o": {"properties": {"a": {"default": 1}}}}`, `{"o": {}}`, `{"o":{"a":1}}`},
		{"absent objects stay absent", `"properties": {"o": {"properties": {"a": {"default": 1}}}}`, `{}`, `{}`},
		{"inside a default", `"properties": {"o": {"default": {}, "properties": {"a": {"default": 1}}}}`, `{}`, `{"o":{"a":1}}`},
		{
			"items", `"properties": {"l": {"items": {"properties": {"a": {"default": 1}}}}}`, `{"l": [{}, 5, {"a": 2}, null]}`,
			`{"l":[{"a":1},5,{"a": 2},null]}`,
		},
		{"another type is left alone", `"properties": {"o": {"properties": {"a": {"default": 1}}}}`, `{"o": [{}]}`, `{"o": [{}]}`},
		{
			"by reference", `"definitions": {"d": {"properties": {"a": {"default": 1}}}}, "properties": {"o": {"$ref": "#/definitions/d"}}`,
			`{"o": {}}`, `{"o":{"a":1}}`,
		},
		{"a default by reference", `"definitions": {"d": {"default": 1}}, "properties": {"o": {"$ref": "#/definitions/d"}}`, `{}`, `{"o":1}`},
		{
			"recursive data", `"properties": {"v": {"default": 0}, "next": {"$ref": "#"}}`, `{"next": {"next": {}}}`,
			`{"next":{"next":{"v":0},"v":0},"v":0}`,
		},
		{
			"a recursive default ends", `"definitions": {"n": {"default": {}, "properties": {"next": {"$ref": "#/definitions/n"}}}}, "properties": {"n": {"$ref": "#/definitions/n"}}`,
			`{}`, `{"n":{"next":{}}}`,
		},
		{"allOf", `"allOf": [{"properties": {"a": {"default": 1}}}, {"properties": {"a": {"default": 2}, "b": {"default": 3}}}]`, `{}`, `{"a":1,"b":3}`},
		{"anyOf is not followed", `"anyOf": [{"properties": {"a": {"default": 1}}}]`, `{}`, `{}`},
		{
			"other properties", `"properties": {"a": {}}, "patternProperties": {"^x": {"properties": {"p": {"default": 1}}}}, "additionalProperties": {"properties": {"q": {"default": 2}}}`,
			`{"a": {}, "x1": {}, "y": {}}`, `{"a":{},"x1":{"p":1},"y":{"q":2}}`,
		},
		{"no object", `"properties": {"a": {"default": 1}}`, `"text"`, `"text"`},
	}
	for _, dialect := range dialects {
		for _, tt := range tests {
			t.Run(dialect+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				s := mustCompile(t, in(dialect, tt.members))
				got, err := s.ApplyDefaults(json.RawMessage(tt.data))
				if err != nil || string(got) != tt.want {
					t.Errorf("got %s, %v; want %s", got, err, tt.want)
				}
			})
		}
	}
}

func TestSchema_ApplyDefaultsKnowsTheDialect(t *testing.T) {
	t.Parallel()
	const beside = `"definitions": {"d": {}}, "properties": {"a": {"$ref": "#/definitions/d", "default": 1}, "b": {"default": 2}}`
	const around = `"definitions": {"d": {"properties": {"b": {"default": 2}}}}, "$ref": "#/definitions/d", "properties": {"a": {"default": 1}}`
	tests := []struct{ dialect, members, data, want string }{
		{metaschemas[draft7], beside, `{}`, `{"b":2}`},
		{metaschemas[draft2020], beside, `{}`, `{"a":1,"b":2}`},
		{metaschemas[draft7], around, `{}`, `{"b":2}`},
		{metaschemas[draft2020], around, `{}`, `{"a":1,"b":2}`},
		{
			metaschemas[draft7], `"items": [{"properties": {"a": {"default": 1}}}], "additionalItems": {"properties": {"b": {"default": 2}}}`,
			`[{}, {}]`, `[{"a":1},{"b":2}]`,
		},
		{
			metaschemas[draft2020], `"prefixItems": [{"properties": {"a": {"default": 1}}}], "items": {"properties": {"b": {"default": 2}}}`,
			`[{}, {}]`, `[{"a":1},{"b":2}]`,
		},
	}
	for _, tt := range tests {
		got, err := mustCompile(t, in(tt.dialect, tt.members)).ApplyDefaults(json.RawMessage(tt.data))
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.members, got, err, tt.want)
		}
	}
}

// What is not JSON stays as it is, without any default, and is refused when it is validated.
func TestSchema_ApplyDefaultsLeavesWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, json.RawMessage(`{"properties": {"a": {"default": 1}, "l": {"items": {"properties": {"a": {"default": 1}}}}}}`))
	for _, data := range []string{`{`, `{"a"`, `{"b": 1`, `{"l": [}`, `[`, `{"l": [{"a": }]}`} {
		got, err := s.ApplyDefaults(json.RawMessage(data))
		if err != nil || string(got) != data {
			t.Errorf("%s became %s, %v", data, got, err)
		}
		if len(s.Validate(got)) == 0 {
			t.Errorf("%s is taken for valid", data)
		}
	}
}

// sample is a schema with sound defaults, and data that fits it but for what a default may replace.
type sample struct{ schema, data string }

// drawSample draws an object schema: every property may have a default that fits its own schema, and is left out of the
// data only if it has one or is not required.
func drawSample(t *rapid.T, depth int) sample {
	var properties, required, data []string
	for i := range rapid.IntRange(0, 3).Draw(t, "properties") {
		name := fmt.Sprintf("p%d", i)
		s := drawValue(t, depth)
		schema := s.schema
		hasDefault := rapid.Bool().Draw(t, "default")
		if hasDefault {
			schema = strings.TrimSuffix(schema, "}") + `,"default":` + s.data + `}`
		}
		mandatory := rapid.Bool().Draw(t, "required")
		if mandatory {
			required = append(required, fmt.Sprintf("%q", name))
		}
		if !hasDefault && mandatory || rapid.Bool().Draw(t, "present") {
			data = append(data, fmt.Sprintf("%q:%s", name, s.data))
		}
		properties = append(properties, fmt.Sprintf("%q:%s", name, schema))
	}
	members := []string{`"type":"object"`, `"properties":{` + strings.Join(properties, ",") + `}`, `"additionalProperties":false`}
	if len(required) > 0 {
		members = append(members, `"required":[`+strings.Join(required, ",")+`]`)
	}
	return sample{"{" + strings.Join(members, ",") + "}", "{" + strings.Join(data, ",") + "}"}
}

func drawValue(t *rapid.T, depth int) sample {
	kinds := 2
	if depth > 0 {
		kinds = 4
	}
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		return sample{`{"type":"integer"}`, fmt.Sprint(rapid.Int64().Draw(t, "integer"))}
	case 2:
		return sample{`{"type":"string"}`, compactJSON(rapid.String().Draw(t, "string"))}
	case 3:
		return drawSample(t, depth-1)
	default:
		item := drawSample(t, depth-1)
		items := strings.TrimSuffix(strings.Repeat(item.data+",", rapid.IntRange(0, 2).Draw(t, "items")), ",")
		return sample{`{"type":"array","items":` + item.schema + `}`, `[` + items + `]`}
	}
}

// With defaults applied data is valid, has everything it had before, and applying them again changes nothing.
func TestSchema_ApplyDefaultsMakesValid(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		drawn := drawSample(t, 2)
		dialect := rapid.SampledFrom(dialects).Draw(t, "dialect")
		s, err := compile(in(dialect, drawn.schema[1:len(drawn.schema)-1]))
		if err != nil {
			t.Fatalf("%s: %v", drawn.schema, err)
		}
		filled, err := s.ApplyDefaults(json.RawMessage(drawn.data))
		if err != nil {
			t.Fatal(err)
		}
		if faults := s.Validate(filled); len(faults) > 0 {
			t.Fatalf("%s of %s by %s: %v", filled, drawn.data, drawn.schema, faults)
		}
		before, _ := decode([]byte(drawn.data))
		after, _ := decode(filled)
		if !keeps(after, before) {
			t.Fatalf("%s lost something of %s", filled, drawn.data)
		}
		again, err := s.ApplyDefaults(filled)
		if err != nil || string(again) != string(filled) {
			t.Fatalf("again: %s, then %s, %v", filled, again, err)
		}
	})
}

// keeps reports whether everything of before is in after.
func keeps(after, before any) bool {
	switch before := before.(type) {
	case map[string]any:
		fields, _ := after.(map[string]any)
		for name, value := range before {
			if have, ok := fields[name]; !ok || !keeps(have, value) {
				return false
			}
		}
		return true
	case []any:
		items, _ := after.([]any)
		if len(items) != len(before) {
			return false
		}
		for i := range before {
			if !keeps(items[i], before[i]) {
				return false
			}
		}
		return true
	default:
		return reflect.DeepEqual(after, before)
	}
}
