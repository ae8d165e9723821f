package schema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
	"agentd/test/peak"
)

// doubled is a schema of n levels, each of which refers to the next one twice.
func doubled(n int, applicator string) string {
	var defs []string
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"a%d": {%q: [{"$ref": "#/$defs/a%d"}, {"$ref": "#/$defs/a%d"}]}`, i, applicator, i+1, i+1))
	}
	return fmt.Sprintf(`"type": "object", "$ref": "#/$defs/a0", "$defs": {%s, "a%d": {"required": ["nothing"]}}`, strings.Join(defs, ", "), n)
}

// A schema of which too much applies to one value is refused before it judges anything.
func TestCompile_RefusesSchemasThatExplode(t *testing.T) {
	t.Parallel()
	for _, applicator := range []string{keyAnyOf, keyOneOf, keyAllOf} {
		t.Run(applicator, func(t *testing.T) {
			t.Parallel()
			peak.Memory(t, func(t *testing.T) {
				raw := json.RawMessage("{" + doubled(40, applicator) + "}")
				s, err := Compile(raw)
				if err == nil {
					t.Fatal("it compiles, and judges:", s.Validate(json.RawMessage(`{}`)))
				}
				want := []string{"$.$defs.a28: expected at most 10000 schemas that apply to one value, " +
					"got 16381, with every reference and branch followed"}
				if diff := cmp.Diff(want, lines(sdk.AsError(err).Faults)); diff != "" || sdk.AsError(err).Code != sdk.CodeConfig {
					t.Errorf("%d bytes: %v %s", len(raw), err, diff)
				}
			})
		})
	}
}

// The same in the older dialects.
func TestCompile_RefusesLegacySchemasThatExplode(t *testing.T) {
	t.Parallel()
	peak.Memory(t, func(t *testing.T) {
		members := strings.ReplaceAll(doubled(40, keyAnyOf), `"type": "object", "$ref": "#/$defs/a0"`, `"type": "object", "allOf": [{"$ref": "#/$defs/a0"}]`)
		s, err := Compile(in(metaschemas[draft7], members))
		if err == nil {
			t.Fatal("it compiles, and judges:", s.Validate(json.RawMessage(`{}`)))
		}
		if got := lines(sdk.AsError(err).Faults); len(got) != 1 || !strings.Contains(got[0], "expected at most 10000 schemas") {
			t.Error(got)
		}
	})
}

// nested is an object in an object, n times.
func nested(n int) json.RawMessage {
	return json.RawMessage(strings.Repeat(`{"a": `, n) + "{}" + strings.Repeat("}", n))
}

// What a schema refuses that refers to itself twice doubles with every level of the document.
func TestSchema_JudgesNoDocumentThatTakesTooLong(t *testing.T) {
	t.Parallel()
	const tooMuch = "$: expected a document that its schema judges with at most 100000 checks, " +
		"got one that takes more: it is too large, or too deep for alternatives that refer to each other"
	many := json.RawMessage("[" + strings.Repeat("1,", 440_000) + "1]")
	for name, tt := range map[string]struct {
		members string
		data    json.RawMessage
	}{
		"recursion":     {`"properties": {"a": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}, "required": ["z"]`, nested(40)},
		"property":      {`"additionalProperties": {"$ref": "#"}, "propertyNames": {"minLength": 2}, "allOf": [{"additionalProperties": {"$ref": "#"}}]`, nested(40)},
		"items":         {`"items": {"type": "string"}`, many},
		"alternatives":  {`"items": {"oneOf": [{"type": "string"}, {"type": "object"}, {"type": "array"}]}`, many},
		"equal items":   {`"uniqueItems": true`, many},
		"a long enum":   {`"items": {"enum": ["` + strings.Repeat("x", 100_000) + `", "y"]}`, json.RawMessage("[" + strings.Repeat("1,", 2000) + "1]")},
		"many required": {`"items": {"required": [` + names(10_000) + `]}`, json.RawMessage("[" + strings.Repeat("{},", 400) + "{}]")},
		"an expression": {`"items": {"pattern": "^(a?){1000}$"}`, json.RawMessage(`["` + strings.Repeat("a", 800_000) + `"]`)},
	} {
		for _, d := range []dialect{draft7, draft2020} {
			t.Run(fmt.Sprintf("%s/%d", name, d), func(t *testing.T) {
				t.Parallel()
				peak.Memory(t, func(t *testing.T) {
					faults := mustCompile(t, in(metaschemas[d], tt.members)).Validate(tt.data)
					if diff := cmp.Diff([]string{tooMuch}, lines(faults)); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

func names(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"n%d"`, i)
	}
	return strings.Join(list, ", ")
}

func emptySchemas(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`"n%d": {}`, i)
	}
	return list
}

// As much as may be judged is judged, and every fault of it fits into memory.
func TestSchema_JudgesWhatFits(t *testing.T) {
	t.Parallel()
	deep := json.RawMessage(strings.Repeat(`{"a": `, 60) + "[" + strings.Repeat("1,", 24_000) + "1]" + strings.Repeat("}", 60))
	for name, tt := range map[string]struct {
		members, last string
		data          json.RawMessage
	}{
		"items": {`"items": {"type": "string"}`, "$: expected no further faults, got 89951 more, not listed", json.RawMessage("[" + strings.Repeat("1,", 90_000) + "1]")},
		"deep":  {`"properties": {"a": {"$ref": "#"}}, "items": {"type": "string"}`, "$: expected no further faults, got 23951 more, not listed", deep},
	} {
		for _, d := range []dialect{draft7, draft2020} {
			t.Run(fmt.Sprintf("%s/%d", name, d), func(t *testing.T) {
				t.Parallel()
				peak.Memory(t, func(t *testing.T) {
					got := lines(mustCompile(t, in(metaschemas[d], tt.members)).Validate(tt.data))
					if len(got) != 51 || got[50] != tt.last {
						t.Errorf("%d faults, the last %v", len(got), got[len(got)-1:])
					}
				})
			})
		}
	}
}

// A tree of alternatives, as expressions are described, judges what people write.
func TestSchema_JudgesRecursiveAlternatives(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, in("", `"$defs": {"e": {"anyOf": [{"type": "number"},
		{"properties": {"add": {"items": {"$ref": "#/$defs/e"}}}, "required": ["add"], "additionalProperties": false},
		{"properties": {"not": {"$ref": "#/$defs/e"}}, "required": ["not"], "additionalProperties": false}]}}, "$ref": "#/$defs/e"`))
	data := json.RawMessage(`{"add": [1, {"not": {"add": [{"add": [1, {"not": 3}]}, {"not": {"not": {"not": 4}}}]}}, 5]}`)
	if faults := s.Validate(data); len(faults) > 0 {
		t.Error(faults)
	}
}

// Defaults that have properties with defaults multiply.
func TestSchema_AppliesNoDefaultsWithoutEnd(t *testing.T) {
	t.Parallel()
	var defs []string
	for i := range 40 {
		next := fmt.Sprintf(`{"$ref": "#/$defs/a%d", "default": {}}`, i+1)
		defs = append(defs, fmt.Sprintf(`"a%d": {"properties": {"x": %s, "y": %s}}`, i, next, next))
	}
	s := mustCompile(t, in("", `"$ref": "#/$defs/a0", "$defs": {`+strings.Join(defs, ", ")+`, "a40": {}}`))
	peak.Memory(t, func(t *testing.T) {
		_, err := s.ApplyDefaults(json.RawMessage(`{}`))
		want := []string{"$: expected at most 10000 defaults of 917504 bytes, nested 64 deep, got more: defaults multiply"}
		if diff := cmp.Diff(want, lines(sdk.AsError(err).Faults)); diff != "" {
			t.Error(diff)
		}
	})
}

// Some schemas are refused for what it would take to read them.
func TestCompile_RefusesWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	const expression = `expected a regular expression of at most 4096 bytes that comes to 10000 characters with its repetitions ` +
		`written out, and to 100000 with all others of the schema`
	long := strings.Repeat("ab", 2100)
	var patterns []string
	for i := range 200 {
		patterns = append(patterns, fmt.Sprintf(`"%c%d{900}": {}`, 'a'+i%26, i))
	}
	for name, tt := range map[string]struct{ members, want string }{
		"values":       {`"required": [` + strings.Repeat("1,", 100_000) + `1]`, "$: expected a schema of at most 20000 JSON values, got more"},
		"a repetition": {`"pattern": "(abcdefghijkl){1000}"`, `$.pattern: ` + expression + `, got string "(abcdefghijkl){1000}"`},
		"a text":       {`"pattern": "` + long + `"`, `$.pattern: ` + expression + `, got string "` + long[:72] + "…"},
		"a name":       {`"patternProperties": {"(abcdefghijkl){1000}": {}}`, `$.patternProperties["(abcdefghijkl){1000}"]: ` + expression + `, got string "(abcdefghijkl){1000}"`},
		"schemas":      {`"properties": {` + strings.Join(emptySchemas(5000), ",") + `}`, "$: expected at most 5000 schemas in it, got 5001"},
		"all together": {`"patternProperties": {` + strings.Join(patterns, ",") + `}`, expression},
	} {
		for _, d := range []dialect{draft7, draft2020} {
			t.Run(fmt.Sprintf("%s/%d", name, d), func(t *testing.T) {
				t.Parallel()
				peak.Memory(t, func(t *testing.T) {
					_, err := Compile(in(metaschemas[d], tt.members))
					got := lines(sdk.AsError(err).Faults)
					if len(got) == 0 || !strings.Contains(got[0], tt.want) {
						t.Errorf("%q; want %q", got, tt.want)
					}
				})
			})
		}
	}
}

// The expressions of a document are compiled for the format "regex".
func TestSchema_CompilesNoLargeExpressionOfADocument(t *testing.T) {
	t.Parallel()
	peak.Memory(t, func(t *testing.T) {
		s := mustCompile(t, in(metaschemas[draft7], `"items": {"format": "regex"}`))
		if faults := s.Validate(json.RawMessage(`["(abcdefghijkl){1000}", "a+"]`)); len(faults) != 1 || faults[0].Path != "$[0]" {
			t.Error(faults)
		}
	})
}

// Every schema that applies to a value, to a name or to a part of it is paid for, and nothing else.
func TestAccount_ChargesWhateverASchemaAppliesTo(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema, doc string
		checks      int
	}{
		{`{"type": "object"}`, `{"a": [1, {"b": 2}], "c": 3}`, 1},
		{`{"properties": {"a": {"type": "integer"}}}`, `{"a": 1, "b": 2}`, 2},
		{`{"properties": {"a": {"items": {"type": "integer"}}}}`, `{"a": [1, 2]}`, 4},
		{`{"propertyNames": {"maxLength": 5}}`, `{"a": 1, "b": 2}`, 3},
		{`{"unevaluatedProperties": {"type": "integer"}}`, `{"a": 1, "b": 2}`, 3},
		{`{"contains": {"type": "integer"}}`, `[1, 2, 3]`, 4},
	} {
		doc, faults := decode([]byte(c.doc))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		a := account{left: maxChecks}
		a.charge(doc, 0, applications{{mustCompile(t, json.RawMessage(c.schema)).tree.root, 1}})
		if paid := maxChecks - a.left; paid != c.checks {
			t.Errorf("%s takes %d checks by %s, want %d", c.doc, paid, c.schema, c.checks)
		}
	}
}
