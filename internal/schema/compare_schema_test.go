package schema

import (
	"encoding/json"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// schemas draws a schema of objects. Others than the declared properties are refused, because new properties are not held
// against a schema that admits them.
func schemas(t *rapid.T, depth int) map[string]any {
	s := map[string]any{}
	maybe := func(keyword string, value any) {
		if rapid.Bool().Draw(t, "has "+keyword) {
			s[keyword] = value
		}
	}
	some := func(label string, values ...string) []any {
		var list []any
		for _, v := range values {
			if rapid.Bool().Draw(t, label+v) {
				list = append(list, v)
			}
		}
		return list
	}
	switch rapid.IntRange(0, 3+depth).Draw(t, "form") {
	case 0:
		s["type"] = "string"
		maybe("maxLength", rapid.IntRange(0, 2).Draw(t, "max"))
		maybe("minLength", rapid.IntRange(0, 2).Draw(t, "min"))
	case 1:
		s["type"] = rapid.SampledFrom([]string{"integer", "number"}).Draw(t, "type")
		maybe("exclusiveMinimum", rapid.IntRange(-1, 2).Draw(t, "min"))
		maybe("minimum", rapid.IntRange(-1, 2).Draw(t, "min"))
		maybe("maximum", rapid.IntRange(0, 3).Draw(t, "max"))
		maybe("multipleOf", rapid.SampledFrom([]float64{0.5, 1, 2}).Draw(t, "multiple"))
	case 2:
		if values := some("value ", "", "x", "xyz"); values != nil {
			s["enum"] = values
		}
	case 3:
		if types := some("type ", "string", "integer", "null", "array"); types != nil {
			s["type"] = types
		}
		maybe("uniqueItems", true)
		maybe("maxItems", rapid.IntRange(0, 2).Draw(t, "max"))
	case 4:
		s["type"] = "array"
		s["items"] = schemas(t, depth-1)
		maybe("minItems", rapid.IntRange(0, 2).Draw(t, "min"))
	case 5:
		s[rapid.SampledFrom([]string{"anyOf", "allOf", "oneOf"}).Draw(t, "of")] = []any{schemas(t, depth-1), schemas(t, depth-1)}
	default:
		s = objects(t, depth-1)
	}
	return s
}

func objects(t *rapid.T, depth int) map[string]any {
	properties, required := map[string]any{}, []any{}
	for _, name := range []string{"a", "b"} {
		if rapid.Bool().Draw(t, "has "+name) {
			properties[name] = schemas(t, depth)
			if rapid.Bool().Draw(t, "requires "+name) {
				required = append(required, name)
			}
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// drawFitting draws a value that comes close to fitting a schema: what does not come close tells little.
func drawFitting(t *rapid.T, schema map[string]any) any {
	for _, keyword := range []string{"anyOf", "allOf", "oneOf"} {
		if parts, ok := schema[keyword].([]any); ok {
			return drawFitting(t, rapid.SampledFrom(parts).Draw(t, "part").(map[string]any))
		}
	}
	if values, ok := schema["enum"].([]any); ok {
		return rapid.SampledFrom(values).Draw(t, "value")
	}
	kind := schema["type"]
	if types, ok := kind.([]any); ok {
		kind = rapid.SampledFrom(types).Draw(t, "type")
	}
	switch kind {
	case "string":
		return rapid.SampledFrom([]string{"", "x", "xy", "xyz"}).Draw(t, "text")
	case "integer", "number":
		return rapid.SampledFrom([]float64{-1, 0, 0.5, 1, 1.5, 2, 3, 4}).Draw(t, "number")
	case "array":
		items := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			if of, ok := schema["items"].(map[string]any); ok {
				items = append(items, drawFitting(t, of))
			} else {
				items = append(items, rapid.SampledFrom([]any{"x", 1}).Draw(t, "item"))
			}
		}
		return items
	case "object":
		object := map[string]any{}
		properties := schema["properties"].(map[string]any)
		for _, name := range sortedKeys(properties) {
			if rapid.IntRange(0, 3).Draw(t, "has "+name) > 0 {
				object[name] = drawFitting(t, properties[name].(map[string]any))
			}
		}
		return object
	default:
		return nil
	}
}

// A step that breaks no caller refuses no call that was valid.
func TestCompare_NoBreakageWithoutAVerdict(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := objects(t, 2)
		raw := json.RawMessage(compactJSON(from))
		before := compileDrawn(t, raw)
		for range 8 {
			rawNow := json.RawMessage(compactJSON(mutate(t, from)))
			differences := Compare(Accepted, raw, rawNow)
			if slices.ContainsFunc(differences, func(d Difference) bool { return d.Severity == Breaking }) {
				continue
			}
			after := compileDrawn(t, rawNow)
			for range 10 {
				data := json.RawMessage(compactJSON(drawFitting(t, from)))
				if before.Validate(data) == nil && after.Validate(data) != nil {
					t.Fatalf("%s\nfits %s\nbut not %s\nchanges %+v", data, raw, rawNow, differences)
				}
			}
		}
	})
}

func compileDrawn(t *rapid.T, raw json.RawMessage) *Schema {
	s, err := Compile(raw)
	if err != nil {
		t.Fatalf("compile %s: %v", raw, err)
	}
	return s
}

// mutate changes numbers, and leaves out or adds members, here and there.
func mutate(t *rapid.T, value any) any {
	now := func(label string) bool { return rapid.IntRange(0, 9).Draw(t, label) == 0 }
	switch value := value.(type) {
	case map[string]any:
		changed := map[string]any{}
		for _, name := range sortedKeys(value) {
			changed[name] = mutate(t, value[name])
			switch name {
			case "type", "additionalProperties", "properties":
			default:
				if now("drop " + name) {
					delete(changed, name)
				}
			}
		}
		if value["type"] == "object" && now("require") {
			changed["required"] = []any{"a"}
		}
		return changed
	case []any:
		changed := []any{}
		for _, item := range value {
			if !now("drop item") {
				changed = append(changed, mutate(t, item))
			}
		}
		if len(changed) == 0 {
			return value
		}
		return changed
	case int:
		if value > 0 && now("number") {
			return value + rapid.IntRange(-1, 1).Draw(t, "by")
		}
		return value
	default:
		return value
	}
}

// Whatever the dialect, what a model is shown judges as the contract does: by 2020-12, in which providers read it.
func TestSchema_ForModelsJudgesTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		accepts := objects(t, 2)
		d := rapid.SampledFrom([]dialect{draft7, draft2019, draft2020}).Draw(t, "dialect")
		accepts["$schema"] = metaschemas[d]
		original := compileDrawn(t, json.RawMessage(compactJSON(accepts)))
		shown, err := original.ForModels()
		if err != nil {
			t.Fatal(err)
		}
		definition := compileDrawn(t, shown.Parameters)
		for range 10 {
			data := json.RawMessage(compactJSON(drawFitting(t, accepts)))
			if (original.Validate(data) == nil) != (definition.Validate(data) == nil) {
				t.Fatalf("%s is judged otherwise by %s than by %s", data, shown.Parameters, compactJSON(accepts))
			}
		}
	})
}
