package contracts

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/sdk"
)

const (
	typeAsk  = "shop.ask"
	typeDone = "shop.done"
)

// version is a version whose two schemas are objects with these further members, written as JSON without braces.
func version(accepts, emits string) sdk.ContractVersion {
	return sdk.ContractVersion{
		Accepts: json.RawMessage(`{"type": "object"` + accepts + `}`),
		Emits:   map[string]json.RawMessage{typeDone: json.RawMessage(`{"type": "object"` + emits + `}`)},
	}
}

func shop(versions map[string]sdk.ContractVersion) sdk.Contract {
	return sdk.Contract{URI: "#/shop/ask", Type: typeAsk, Description: "Asks.", Versions: versions}
}

// Each row is one step of a schema, with the verdict on either side: what a caller sends, and what a reader gets.
func TestCompareVersions_SaysWhichFieldBreaksWhom(t *testing.T) {
	t.Parallel()
	prop := func(schema string) string { return `, "properties": {"a": ` + schema + `}` }
	const b, c, e = Breaking, Compatible, Editorial
	for _, row := range []struct {
		name, from, to string
		accepts, emits Severity
		path, message  string
	}{
		{"same", prop(`{"type": "string"}`), prop(`{"type":"string"}`), "", "", "", ""},
		{"order of members", `, "properties": {"a": {}}, "minProperties": 1`, `, "minProperties": 1.0, "properties": {"a": {}}`, "", "", "", ""},
		{"new property", ``, prop(`{}`), c, c, "$.a", "the property is new"},
		{"new required property", ``, prop(`{}`) + `, "required": ["a"]`, b, c, "$.a", "new and required"},
		{"now required", prop(`{}`), prop(`{}`) + `, "required": ["a"]`, b, c, "$.a", "it is required now"},
		{"no longer required", prop(`{}`) + `, "required": ["a"]`, prop(`{}`), c, b, "$.a", "no longer required"},
		{"removed property", prop(`{}`) + `, "required": ["a"]`, ``, b, b, "$.a", "removed"},
		{"forbidden property", prop(`{}`), prop(`false`), b, c, "$.a", "no value is allowed"},
		{"type narrowed", prop(`{"type": ["string", "null"]}`), prop(`{"type": "string"}`), b, c, "$.a", "from null or string to string"},
		{"type widened", prop(`{"type": "integer"}`), prop(`{"type": "number"}`), c, b, "$.a", "from integer to number"},
		{"type changed", prop(`{"type": "string", "minLength": 1}`), prop(`{"type": "integer", "minimum": 1}`), b, b, "$.a", "from string to integer"},
		{"type added", prop(`{}`), prop(`{"type": "string"}`), b, c, "$.a", "from any type to string"},
		{"enum value removed", prop(`{"enum": ["x", "y"]}`), prop(`{"enum": ["x"]}`), b, c, "$.a", `no longer allowed: "y"`},
		{"enum value added", prop(`{"enum": ["x"]}`), prop(`{"enum": ["y", "x"]}`), c, b, "$.a", `allowed now: "y"`},
		{"const is an enum of one", prop(`{"const": 1}`), prop(`{"enum": [1.0]}`), "", "", "", ""},
		{"enum added", prop(`{}`), prop(`{"enum": [1.5]}`), b, c, "$.a", "only 1.5 is allowed now"},
		{"enum gone", prop(`{"enum": [1]}`), prop(`{}`), c, b, "$.a", "not only 1"},
		{"maximum lowered", prop(`{"maximum": 30}`), prop(`{"maximum": 20}`), b, c, "$.a", "the maximum changes from 30 to 20"},
		{"maximum raised", prop(`{"maximum": 0.1}`), prop(`{"maximum": 0.2}`), c, b, "$.a", "from 0.1 to 0.2"},
		{"minimum exclusive", prop(`{"minimum": 1}`), prop(`{"exclusiveMinimum": 1}`), b, c, "$.a", "from 1 to 1 (exclusive)"},
		{"length", prop(`{}`), prop(`{"maxLength": 5}`), b, c, "$.a", "the maxLength changes from none to 5"},
		{"no least length", prop(`{}`), prop(`{"minLength": 0}`), "", "", "", ""},
		{"items fewer", prop(`{"maxItems": 5}`), prop(`{"maxItems": 4}`), b, c, "$.a", "maxItems"},
		{"multiples of more", prop(`{"multipleOf": 1}`), prop(`{"multipleOf": 0.5}`), c, b, "$.a", "multipleOf"},
		{"other multiples", prop(`{"multipleOf": 2}`), prop(`{"multipleOf": 3}`), b, b, "$.a", "multipleOf"},
		{"distinct items", prop(`{}`), prop(`{"uniqueItems": true}`), b, c, "$.a", "must differ"},
		{"pattern added", prop(`{}`), prop(`{"pattern": "x"}`), b, c, "$.a", "pattern is new"},
		{"other pattern", prop(`{"pattern": "x"}`), prop(`{"pattern": "y"}`), b, b, "$.a", "cannot be decided"},
		{"closed", ``, `, "additionalProperties": false`, b, c, "$", "no longer allowed"},
		{"opened", `, "additionalProperties": false`, ``, c, c, "$", "further properties are allowed now"},
		{"others typed", ``, `, "additionalProperties": {"type": "string"}`, b, c, "$.*", "string"},
		{
			"new property breaks the promise for others", `, "additionalProperties": {"type": "string"}`,
			prop(`{"type": "integer"}`) + `, "additionalProperties": {"type": "string"}`, b, b, "$.a", "from string to integer",
		},
		{"in items", prop(`{"items": {"properties": {"b": {"type": "string"}}}}`), prop(`{"items": {"properties": {"b": {}}}}`), c, b, "$.a[*].b", "any type"},
		{"in a tuple", prop(`{"prefixItems": [{}, {"minimum": 1}]}`), prop(`{"prefixItems": [{}, {"minimum": 2}]}`), b, c, "$.a[1]", "minimum"},
		{"behind a reference", prop(`{"$ref": "#/$defs/x"}`) + `, "$defs": {"x": {"type": "string"}}`, prop(`{"type": "string"}`), "", "", "", ""},
		{
			"what is referred to", prop(`{"$ref": "#/$defs/x"}`) + `, "$defs": {"x": {"minimum": 1}}`,
			prop(`{"$ref": "#/$defs/x"}`) + `, "$defs": {"x": {"minimum": 2}}`, b, c, "$.a", "minimum",
		},
		{
			"recursive", prop(`{"items": {"$ref": "#"}}`) + `, "maxProperties": 2`,
			prop(`{"items": {"$ref": "#"}}`) + `, "maxProperties": 1`, b, c, "$", "maxProperties",
		},
		{"allOf grows", `, "allOf": [{"minProperties": 1}]`, `, "allOf": [{"maxProperties": 9}, {"minProperties": 1}]`, b, c, "$", "a further condition"},
		{"in allOf", `, "allOf": [{"minProperties": 2}]`, `, "allOf": [{"minProperties": 1}]`, c, b, "$", "minProperties"},
		{"anyOf grows", prop(`{"anyOf": [{"type": "string"}]}`), prop(`{"anyOf": [{"type": "null"}, {"type": "string"}]}`), c, b, "$.a", "further alternatives"},
		{"anyOf shrinks", prop(`{"anyOf": [{"const": 1}, {"const": 2}]}`), prop(`{"anyOf": [{"const": 2}]}`), b, c, "$.a", "fewer alternatives"},
		{"oneOf grows", prop(`{"oneOf": [{"const": 1}]}`), prop(`{"oneOf": [{"const": 1}, {"const": 2}]}`), b, b, "$.a", "cannot be decided"},
		{"oneOf explained", prop(`{"oneOf": [{"const": 1}]}`), prop(`{"oneOf": [{"const": 1, "title": "one"}]}`), "", "", "", ""},
		{"not", prop(`{"not": {"const": 1}}`), prop(`{}`), c, b, "$.a", "not is gone"},
		{"condition", ``, `, "if": {"required": ["x"]}, "then": {"required": ["y"]}`, b, c, "$", "if/then/else is new"},
		{"names by pattern", `, "patternProperties": {"^x": {}}`, `, "patternProperties": {"^y": {}}`, b, b, "$", "patternProperties"},
		{"default of what is required", prop(`{"default": 1}`) + `, "required": ["a"]`, prop(`{}`) + `, "required": ["a"]`, b, e, "$.a", "default"},
		{"other default", prop(`{"default": 1}`), prop(`{"default": 2}`), c, e, "$.a", "default"},
		{"description", prop(`{"description": "x"}`), prop(`{"description": "y", "title": "z"}`), e, e, "$.a", "other title, description"},
		{"unchecked format", prop(`{"format": "date"}`), prop(`{"format": "time"}`), e, e, "$.a", "date (not checked)"},
		{
			"checked format", prop(`{}`) + `, "$schema": "http://json-schema.org/draft-07/schema#"`,
			prop(`{"format": "date"}`) + `, "$schema": "http://json-schema.org/draft-07/schema#"`, b, c, "$.a", "from none to date",
		},
		{"dialect", `, "$schema": "http://json-schema.org/draft-07/schema#"`, ``, e, e, "$", "the dialect changes"},
		{"draft 4 bounds", prop(`{"minimum": 1}`) + `, "$schema": "http://json-schema.org/draft-04/schema#"`, prop(`{"minimum": 1, "exclusiveMinimum": true}`) + `, "$schema": "http://json-schema.org/draft-04/schema#"`, b, c, "$.a", "exclusive"},
		{"dynamic reference", prop(`{"$dynamicRef": "#x"}`) + `, "$defs": {"x": {"$dynamicAnchor": "x"}}`, prop(`{"$dynamicRef": "#x"}`) + `, "$defs": {"x": {"$dynamicAnchor": "x", "type": "null"}}`, b, b, "$", "cannot be told apart"},
		{"does not compile", ``, `, "$ref": "http://elsewhere/x"`, b, b, "$", "does not compile"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			for side, want := range map[string]Severity{sideAccepts: row.accepts, sideEmits + " " + typeDone: row.emits} {
				from, to := version(row.from, ``), version(row.to, ``)
				if side != sideAccepts {
					from, to = version(``, row.from), version(``, row.to)
				}
				changes := CompareVersions(from, to)
				if want == "" {
					if len(changes) > 0 {
						t.Errorf("%s: %+v", side, changes)
					}
					continue
				}
				if len(changes) == 0 {
					t.Errorf("%s: no change", side)
					continue
				}
				got := changes[0] // the worst
				if got.Severity != want || got.Side != side || got.Path != row.path || !strings.Contains(got.Message, row.message) {
					t.Errorf("%s: %+v", side, changes)
				}
				if who := map[bool]string{true: breaksCallers, false: breaksReaders}[side == sideAccepts]; want == Breaking && got.Breaks != who {
					t.Errorf("%s breaks %q", side, got.Breaks)
				}
			}
		})
	}
}

func TestCompareVersions_EmittedTypes(t *testing.T) {
	t.Parallel()
	from, to := version(``, ``), version(``, ``)
	to.Emits = map[string]json.RawMessage{"shop.found": to.Emits[typeDone]}
	changes := CompareVersions(from, to)
	if len(changes) != 2 {
		t.Fatalf("%+v", changes)
	}
	for _, c := range changes {
		if c.Severity != Breaking || c.Breaks != breaksReaders {
			t.Errorf("%+v", c)
		}
	}
}

func summary(changes []Change) []string {
	lines := []string{}
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s %s>%s %s %s [%s] %s", c.Severity, c.From, c.To, c.Side, c.Path, c.Breaks, c.Message))
	}
	return lines
}

func TestCompare_HoldsVersionsToTheirRange(t *testing.T) {
	t.Parallel()
	plain := version(``, ``)
	number := version(`, "properties": {"a": {"type": "number"}}`, ``)
	integer := version(`, "properties": {"a": {"type": "integer"}}`, ``)
	const narrowed = "the type changes from number to integer: a call that was valid may be refused"
	for _, row := range []struct {
		name                string
		published, proposed map[string]sdk.ContractVersion
		want                []string
	}{
		{
			"the same",
			map[string]sdk.ContractVersion{"1.0.0": plain},
			map[string]sdk.ContractVersion{"1.0.0": plain},
			[]string{},
		},
		{
			"removed",
			map[string]sdk.ContractVersion{"1.0.0": plain, "1.1.0": plain},
			map[string]sdk.ContractVersion{"1.1.0": plain},
			[]string{"breaking 1.0.0>   [agents and waiting runs pinned to it] version 1.0.0 is removed"},
		},
		{
			"other content, even a compatible one",
			map[string]sdk.ContractVersion{"1.0.0": integer},
			map[string]sdk.ContractVersion{"1.0.0": number},
			[]string{"breaking 1.0.0>1.0.0 accepts $.a [agents and waiting runs pinned to it] the type changes from integer to number; " +
				"version 1.0.0 is published and never changes: make it 1.1.0"},
		},
		{
			"other content that breaks",
			map[string]sdk.ContractVersion{"1.0.0": number, "2.0.0": plain},
			map[string]sdk.ContractVersion{"1.0.0": integer, "2.0.0": plain},
			[]string{"breaking 1.0.0>1.0.0 accepts $.a [callers] " + narrowed + "; version 1.0.0 is published and never changes: make it 2.0.1"},
		},
		{
			"what judges nothing",
			map[string]sdk.ContractVersion{"1.0.0": plain},
			map[string]sdk.ContractVersion{"1.0.0": version(`, "x-note": 1`, ``)},
			[]string{"breaking 1.0.0>1.0.0   [agents and waiting runs pinned to it] what judges no value is other than it was; " +
				"version 1.0.0 is published and never changes: make it 1.0.1"},
		},
		{
			"breaking minor",
			map[string]sdk.ContractVersion{"1.0.0": number},
			map[string]sdk.ContractVersion{"1.0.0": number, "1.1.0": integer},
			[]string{
				"breaking 1.0.0>1.1.0 accepts $.a [callers] " + narrowed + "; after 1.0.0 that needs version 2.0.0",
				"compatible >1.1.0   [] version 1.1.0 is new",
			},
		},
		{
			"breaking minor before 1.0",
			map[string]sdk.ContractVersion{"0.1.0": number},
			map[string]sdk.ContractVersion{"0.1.0": number, "0.1.1": integer, "0.2.0": plain},
			[]string{
				"breaking 0.1.0>0.1.1 accepts $.a [callers] " + narrowed + "; after 0.1.0 that needs version 0.2.0",
				"compatible >0.1.1   [] version 0.1.1 is new",
				"compatible >0.2.0   [] version 0.2.0 is new",
				"compatible 0.1.1>0.2.0 accepts $.a [callers] the property is removed; no range of 0.1.1 takes in 0.2.0",
			},
		},
		{
			"breaking major",
			map[string]sdk.ContractVersion{"1.0.0": number},
			map[string]sdk.ContractVersion{"1.0.0": number, "2.0.0": integer},
			[]string{
				"compatible >2.0.0   [] version 2.0.0 is new",
				"compatible 1.0.0>2.0.0 accepts $.a [callers] " + narrowed + "; no range of 1.0.0 takes in 2.0.0",
			},
		},
		{
			"breaking pre-release",
			map[string]sdk.ContractVersion{"1.0.0": number},
			map[string]sdk.ContractVersion{"1.0.0": number, "1.1.0-rc.1": integer},
			[]string{
				"compatible >1.1.0-rc.1   [] version 1.1.0-rc.1 is new",
				"compatible 1.0.0>1.1.0-rc.1 accepts $.a [callers] " + narrowed + "; no range of 1.0.0 takes in 1.1.0-rc.1",
			},
		},
		{
			"a version between",
			map[string]sdk.ContractVersion{"1.0.0": integer, "1.2.0": integer},
			map[string]sdk.ContractVersion{"1.0.0": integer, "1.1.0": number, "1.2.0": integer},
			[]string{
				"breaking 1.1.0>1.2.0 accepts $.a [callers] " + narrowed + "; after 1.1.0 that needs version 2.0.0",
				"compatible >1.1.0   [] version 1.1.0 is new",
				"compatible 1.0.0>1.1.0 accepts $.a [] the type changes from integer to number",
			},
		},
		{
			"addition in a patch",
			map[string]sdk.ContractVersion{"1.0.0": plain},
			map[string]sdk.ContractVersion{"1.0.0": plain, "1.0.1": number},
			[]string{
				"compatible >1.0.1   [] version 1.0.1 is new",
				"compatible 1.0.0>1.0.1 accepts $.a [] the property is new",
				"compatible 1.0.0>1.0.1   [] version 1.0.1 adds to 1.0.0: by the rules of semantic versions it would be 1.1.0",
			},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(row.want, summary(Compare(shop(row.published), shop(row.proposed)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCompare_Identity(t *testing.T) {
	t.Parallel()
	a := shop(map[string]sdk.ContractVersion{"1.0.0": version(``, ``)})
	b := a
	b.URI, b.Type, b.Domain, b.Description = "#/shop/other", "shop.other", "eu", "Asks more."
	b.Labels.Destructive = true
	got := map[string]Severity{}
	for _, c := range Compare(a, b) {
		got[c.Path] = c.Severity
	}
	want := map[string]Severity{"$.uri": Breaking, "$.type": Breaking, "$.domain": Breaking, "$.description": Editorial, "$.labels": Compatible}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

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
func TestCompareVersions_NoBreakageWithoutAVerdict(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := objects(t, 2)
		raw := json.RawMessage(compactJSON(from))
		before := compileDrawn(t, raw)
		for range 8 {
			rawNow := json.RawMessage(compactJSON(mutate(t, from)))
			changes := compareSchemas(sideAccepts, raw, rawNow)
			if hasBreaking(changes) {
				continue
			}
			after := compileDrawn(t, rawNow)
			for range 10 {
				data := json.RawMessage(compactJSON(drawFitting(t, from)))
				if before.Validate(data) == nil && after.Validate(data) != nil {
					t.Fatalf("%s\nfits %s\nbut not %s\nchanges %+v", data, raw, rawNow, changes)
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
