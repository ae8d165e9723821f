package schema

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

// dialects are the values of $schema under test; the empty one is absent.
var dialects = append([]string{""}, metaschemas...)

// in puts a $schema in front of a schema's members.
func in(dialect, members string) json.RawMessage {
	if dialect == "" {
		return json.RawMessage("{" + members + "}")
	}
	return json.RawMessage(fmt.Sprintf(`{"$schema": %q, %s}`, dialect, members))
}

func mustCompile(t testing.TB, raw json.RawMessage) *Schema {
	t.Helper()
	s, err := Compile(raw)
	if err != nil {
		t.Fatalf("compile %s: %v", raw, err)
	}
	return s
}

func lines(faults []sdk.Fault) []string {
	var all []string
	for _, f := range faults {
		all = append(all, f.String())
	}
	return all
}

// The same words come from both validators.
func TestSchema_FaultsReadTheSameInEveryDialect(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, schema, data string
		want               []string
	}{
		{"valid", `"type": "object"`, `{}`, nil},
		{"type", `"type": "object"`, `[1]`, []string{`$: expected object, got array [1]`}},
		{
			"types", `"properties": {"a": {"type": ["string", "null"]}}`, `{"a": 1}`,
			[]string{`$.a: expected null or string, got number 1`},
		},
		{"required", `"required": ["b", "a"]`, `{}`, []string{
			`$.a: expected a value (required), got nothing`, `$.b: expected a value (required), got nothing`,
		}},
		{
			"nested", `"properties": {"flights": {"type": "array", "items": {"required": ["date"], "properties": {"no": {"type": "string"}}}}}`,
			`{"flights": [{"date": 1, "no": 2}, {}]}`,
			[]string{
				`$.flights[0].no: expected string, got number 2`, `$.flights[1].date: expected a value (required), got nothing`,
			},
		},
		{
			"many items in order", `"properties": {"a": {"items": {"type": "string"}}}`, `{"a": [0,1,2,3,4,5,6,7,8,9,10]}`,
			func() (want []string) {
				for i := range 11 {
					want = append(want, fmt.Sprintf("$.a[%d]: expected string, got number %d", i, i))
				}
				return want
			}(),
		},
		{"digits as a name", `"properties": {"0": {"type": "string"}, "a b": {"type": "string"}}`, `{"0": 1, "a b": 2}`, []string{
			`$["0"]: expected string, got number 1`, `$["a b"]: expected string, got number 2`,
		}},
		{"additional", `"properties": {"a": {}}, "additionalProperties": false`, `{"a": 1, "c": 2, "b": "x"}`, []string{
			`$.b: expected no such property, got string "x"`, `$.c: expected no such property, got number 2`,
		}},
		{
			"enum", `"properties": {"a": {"enum": ["x", "y", 1]}}`, `{"a": "z"}`,
			[]string{`$.a: expected one of "x", "y", 1, got string "z"`},
		},
		{
			"numbers", `"properties": {"a": {"minimum": 1.5}, "b": {"maximum": 10}, "c": {"multipleOf": 0.1}}`, `{"a": 1, "b": 11, "c": 0.25}`,
			[]string{
				`$.a: expected at least 1.5, got number 1`, `$.b: expected at most 10, got number 11`,
				`$.c: expected a multiple of 0.1, got number 0.25`,
			},
		},
		{
			"lengths", `"properties": {"a": {"minLength": 3}, "b": {"maxLength": 1}, "c": {"minItems": 1}, "d": {"maxItems": 1}, "e": {"minProperties": 2}, "f": {"maxProperties": 1}}`,
			`{"a": "é", "b": "xy", "c": [], "d": [1, 2], "e": {"x": 1}, "f": {"x": 1, "y": 2}}`,
			[]string{
				`$.a: expected at least 3 characters, got 1 character`, `$.b: expected at most 1 character, got 2 characters`,
				`$.c: expected at least 1 item, got 0 items`, `$.d: expected at most 1 item, got 2 items`,
				`$.e: expected at least 2 properties, got 1 property`, `$.f: expected at most 1 property, got 2 properties`,
			},
		},
		{
			"pattern", `"properties": {"a": {"pattern": "^[A-Z]{3}$"}}`, `{"a": "x"}`,
			[]string{`$.a: expected text that matches ^[A-Z]{3}$, got string "x"`},
		},
		{
			"unique", `"properties": {"a": {"uniqueItems": true}}`, `{"a": [1, 2, 1.0]}`,
			[]string{`$.a: expected items that are all different, got items 0 and 2 are equal`},
		},
		{
			"not", `"properties": {"a": {"not": {"type": "string"}}}`, `{"a": "x"}`,
			[]string{`$.a: expected a value that does not fit the schema of "not", got string "x"`},
		},
		{
			"anyOf tells about the closest", `"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "object", "required": ["x"]}]}}`, `{"a": {}}`,
			[]string{
				`$.a: expected a value that fits one of the alternatives (anyOf), got object {}`,
				`$.a.x: expected a value (required), got nothing`,
			},
		},
		{
			"oneOf twice", `"properties": {"a": {"oneOf": [{"type": "number"}, {"minimum": 1}]}}`, `{"a": 2}`,
			[]string{`$.a: expected a value that fits exactly one of the alternatives (oneOf), got number 2`},
		},
		{"allOf", `"allOf": [{"required": ["a"]}, {"properties": {"b": {"type": "string"}}}]`, `{"b": 1}`, []string{
			`$.a: expected a value (required), got nothing`, `$.b: expected string, got number 1`,
		}},
		{
			"local ref", `"definitions": {"d": {"type": "string"}}, "properties": {"a": {"$ref": "#/definitions/d"}}`, `{"a": 1}`,
			[]string{`$.a: expected string, got number 1`},
		},
		{
			"ref into $defs", `"$defs": {"d": {"type": "string"}}, "properties": {"a": {"$ref": "#/$defs/d"}}`, `{"a": 1}`,
			[]string{`$.a: expected string, got number 1`},
		},
		{
			"recursive", `"properties": {"next": {"$ref": "#"}, "v": {"type": "integer"}}`, `{"next": {"next": {"v": "x"}}}`,
			[]string{`$.next.next.v: expected integer, got string "x"`},
		},
		{
			"large integers are told apart", `"properties": {"a": {"maximum": 9007199254740992}}`, `{"a": 9007199254740993}`,
			[]string{`$.a: expected at most 9.007199254740992e+15, got number 9007199254740993`},
		},
		{
			"long values are cut", `"properties": {"a": {"type": "object"}}`, `{"a": "` + strings.Repeat("é", 100) + `"}`,
			[]string{`$.a: expected object, got string "` + strings.Repeat("é", 36) + `…`},
		},
	}
	for _, dialect := range dialects {
		for _, tt := range tests {
			t.Run(dialect+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				got := lines(mustCompile(t, in(dialect, tt.schema)).Validate(json.RawMessage(tt.data)))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("faults (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// Keywords that not every dialect has.
func TestSchema_DialectDecidesWhatKeywordsMean(t *testing.T) {
	t.Parallel()
	draft4, draft6, draft7 := metaschemas[draft4], metaschemas[draft6], metaschemas[draft7]
	modern2019, modern2020 := metaschemas[draft2019], metaschemas[draft2020]
	tests := []struct {
		name, schema, data string
		dialects           []string
		want               []string
	}{
		{
			"exclusiveMinimum of draft 4", `"properties": {"a": {"minimum": 1, "exclusiveMinimum": true}}`, `{"a": 1}`,
			[]string{draft4},
			[]string{`$.a: expected more than 1, got number 1`},
		},
		{
			"exclusiveMinimum", `"properties": {"a": {"exclusiveMinimum": 1}}`, `{"a": 1}`,
			[]string{draft6, draft7, modern2019, modern2020, ""},
			[]string{`$.a: expected more than 1, got number 1`},
		},
		{
			"exclusiveMaximum", `"properties": {"a": {"exclusiveMaximum": 1}}`, `{"a": 1}`,
			[]string{draft6, draft7, modern2019, modern2020, ""},
			[]string{`$.a: expected less than 1, got number 1`},
		},
		{
			"const", `"properties": {"a": {"const": "x"}}`, `{"a": 1}`,
			[]string{draft6, draft7, modern2019, modern2020, ""},
			[]string{`$.a: expected "x", got number 1`},
		},
		{
			"false", `"properties": {"a": false}`, `{"a": 1}`,
			[]string{draft6, draft7, modern2019, modern2020, ""},
			[]string{`$.a: expected no value, got number 1`},
		},
		{
			"contains", `"properties": {"a": {"contains": {"type": "string"}}}`, `{"a": [1, 2]}`,
			[]string{draft6, draft7, modern2019, modern2020, ""},
			[]string{`$.a: expected at least one item that fits (contains), got array [1,2]`},
		},
		{
			"property names", `"additionalProperties": {"propertyNames": {"maxLength": 1}}`, `{"a": {"xy": 1}, "b": {"z": {"v": 1}}, "c": {"uv": "uv"}}`,
			[]string{draft6, draft7, modern2019, modern2020, ""},
			[]string{
				`$.a.xy: expected a property name that is allowed (propertyNames), got string "xy"`,
				`$.c.uv: expected a property name that is allowed (propertyNames), got string "uv"`,
			},
		},
		{
			"if, then", `"if": {"required": ["a"]}, "then": {"required": ["b"]}`, `{"a": 1}`,
			[]string{draft7, modern2019, modern2020, ""},
			[]string{`$.b: expected a value (required), got nothing`},
		},
		{
			"if means nothing before draft 7", `"if": {"required": ["a"]}, "then": {"required": ["b"]}`, `{"a": 1}`,
			[]string{draft4, draft6},
			nil,
		},
		{
			"dependencies", `"dependencies": {"a": ["b"]}`, `{"a": 1}`,
			[]string{draft4, draft6, draft7},
			[]string{`$.b: expected a value (required), got nothing`},
		},
		{
			"dependentRequired", `"dependentRequired": {"a": ["b"]}`, `{"a": 1}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.b: expected a value (required), got nothing`},
		},
		{"dependentRequired is unknown to draft 7", `"dependentRequired": {"a": ["b"]}`, `{"a": 1}`, []string{draft7}, nil},
		{
			"prefixItems", `"properties": {"a": {"prefixItems": [{"type": "string"}], "items": false}}`, `{"a": [1, 2]}`,
			[]string{modern2020, ""},
			[]string{`$.a[0]: expected string, got number 1`, `$.a[1]: expected no value, got number 2`},
		},
		{
			"items as a list", `"properties": {"a": {"items": [{"type": "string"}], "additionalItems": false}}`, `{"a": [1, 2]}`,
			[]string{draft4, draft6, draft7, modern2019},
			[]string{`$.a: expected no further items, got array [1,2]`, `$.a[0]: expected string, got number 1`},
		},
		{
			"unevaluatedProperties", `"allOf": [{"properties": {"a": {}}}], "unevaluatedProperties": false`, `{"a": 1, "b": 2}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.b: expected no value, got number 2`},
		},
		{
			"minContains", `"properties": {"a": {"contains": {"type": "string"}, "minContains": 2}}`, `{"a": ["x", 1]}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.a: expected at least 2 items that fit (contains), got 1 such item`},
		},
		{
			"maxContains", `"properties": {"a": {"contains": {"type": "string"}, "maxContains": 1}}`, `{"a": ["x", "y"]}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.a: expected at most 1 item that fit (contains), got 2 such items`},
		},
		{
			"siblings of $ref", `"$defs": {"d": {}}, "properties": {"a": {"$ref": "#/$defs/d", "type": "string"}}`, `{"a": 1}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.a: expected string, got number 1`},
		},
		{
			"siblings of $ref mean nothing", `"$defs": {"d": {}}, "properties": {"a": {"$ref": "#/$defs/d", "type": "string"}}`, `{"a": 1}`,
			[]string{draft4, draft6, draft7},
			nil,
		},
		{
			"anchor", `"$defs": {"d": {"$anchor": "x", "type": "string"}}, "properties": {"a": {"$ref": "#x"}}`, `{"a": 1}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.a: expected string, got number 1`},
		},
		{
			"$id as an anchor", `"definitions": {"d": {"$id": "#x", "type": "string"}}, "properties": {"a": {"$ref": "#x"}}`, `{"a": 1}`,
			[]string{draft6, draft7},
			[]string{`$.a: expected string, got number 1`},
		},
		{
			"format", `"properties": {"a": {"format": "date"}}`, `{"a": "tomorrow"}`,
			[]string{draft4, draft6, draft7},
			[]string{`$.a: expected text in the format date, got string "tomorrow"`},
		},
		{
			"format is an annotation", `"properties": {"a": {"format": "date"}}`, `{"a": "tomorrow"}`,
			[]string{modern2019, modern2020, ""},
			nil,
		},
		{
			"only types differ", `"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}`, `{"a": 1}`,
			[]string{modern2019, modern2020, ""},
			[]string{`$.a: expected null or string, got number 1`},
		},
		{
			"metaschema", `"properties": {"a": {"$ref": "http://json-schema.org/draft-07/schema#"}}`, `{"a": {"type": 1}}`,
			[]string{draft7},
			[]string{
				`$.a.type: expected a value that fits one of the alternatives (anyOf), got number 1`,
				`$.a.type: expected one of "array", "boolean", "integer", "null", "number", "object", "string", got number 1`,
			},
		},
	}
	for _, tt := range tests {
		for _, dialect := range tt.dialects {
			t.Run(tt.name+"/"+dialect, func(t *testing.T) {
				t.Parallel()
				got := lines(mustCompile(t, in(dialect, tt.schema)).Validate(json.RawMessage(tt.data)))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("faults (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func TestSchema_ValidateRefusesWhatIsNoJSON(t *testing.T) {
	t.Parallel()
	s := mustCompile(t, json.RawMessage(`{"type": "object", "properties": {"a": {"enum": [1]}}}`))
	for data, want := range map[string]string{
		``:                         `$: expected a JSON value, got nothing`,
		` `:                        `$: expected a JSON value, got nothing`,
		`{"a": 1`:                  `$: expected valid JSON, got unexpected EOF at byte 7`,
		`{"a": 1, "a": 1}`:         `$.a: expected each name once in an object, got the name twice`,
		`{"a": 1e400}`:             `$.a: expected a number that a 64-bit float can hold, got number 1e400`,
		`{"a": [1e-99999999]}`:     `$.a[0]: expected a number that a 64-bit float can hold, got number 1e-99999999`,
		`{"a": "` + "\xff" + `"}`:  `$: expected valid JSON, got invalid UTF-8 at byte 7`,
		strings.Repeat(`[`, 10000): `$: expected at most 64 levels of nesting, got more`,
	} {
		if diff := cmp.Diff([]string{want}, lines(s.Validate(json.RawMessage(data)))); diff != "" {
			t.Errorf("faults of %.40q (-want +got):\n%s", data, diff)
		}
	}
}

func TestSchema_FaultsAreBounded(t *testing.T) {
	t.Parallel()
	for _, dialect := range dialects {
		s := mustCompile(t, in(dialect, `"items": {"type": "string"}`))
		faults := s.Validate(json.RawMessage(`[` + strings.Repeat(`1,`, 999) + `1]`))
		want := "$: expected no further faults, got 950 more, not listed"
		if len(faults) != maxFaults+1 || faults[maxFaults].String() != want {
			t.Errorf("%q: %d faults, the last %s", dialect, len(faults), faults[len(faults)-1])
		}
	}
}

func TestSchema_IsObject(t *testing.T) {
	t.Parallel()
	for schema, want := range map[string]bool{
		`{"type": "object"}`:   true,
		`{"type": ["object"]}`: true,
		`{"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}`: true,
		`{"type": ["object", "null"]}`:                              false,
		`{"properties": {}}`:                                        false,
		`true`:                                                      false,
		`{"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}}`: false,
	} {
		if got := mustCompile(t, json.RawMessage(schema)).IsObject(); got != want {
			t.Errorf("%s: %v", schema, got)
		}
	}
}

// References that leave the document are refused before the validator sees them; it would not follow them either.
func TestValidators_LoadNothing(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret.json")
	if err := os.WriteFile(secret, []byte(`{"type": "string"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	raw := json.RawMessage(fmt.Sprintf(`{"properties": {"a": {"$ref": "file://%s"}}}`, secret))
	doc, faults := decode(raw)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	_, legacy := validator(doc, draft7)
	_, modern := validator(doc, draft2020)
	for _, faults := range [][]sdk.Fault{legacy, modern} {
		if len(faults) != 1 || !strings.Contains(faults[0].Got, "nothing is loaded from elsewhere") {
			t.Errorf("faults %v", faults)
		}
	}
}

// Whatever is offered as a schema is compiled or refused, and what compiles judges any document without a crash. The
// validator is not asked to be right here.
func FuzzSchema(f *testing.F) {
	for _, schema := range []string{
		`{"type": ["string", "null"], "enum": [1], "const": {}, "not": true, "default": [1e5]}`,
		`{"$ref": "#/definitions/a", "definitions": {"a": {"items": [{"$ref": "#"}], "additionalItems": false}}}`,
		`{"properties": {"a": {"default": {}, "properties": {"b": {"$ref": "#"}}}}, "patternProperties": {"^a": {}}}`,
		`{"$id": "http://x/y", "$defs": {"a": {"$id": "z", "$anchor": "q"}}, "anyOf": [{"$ref": "z#q"}], "dependencies": {"a": ["b"], "c": {}}}`,
		`{"propertyNames": {"maxLength": 1}, "contains": {"multipleOf": 0.1}, "uniqueItems": true, "unevaluatedProperties": false}`,
		`{"$dynamicRef": "#a", "$defs": {"x": {"$dynamicAnchor": "a"}}, "if": {"minimum": 1}, "then": false}`,
	} {
		for d := range metaschemas {
			f.Add(uint8(d), schema, `{"a": {"b": [1, "x", {"a": null}]}, "aa": 1.5}`)
		}
	}
	f.Fuzz(func(t *testing.T, d uint8, schema, data string) {
		dialect := metaschemas[int(d)%len(metaschemas)]
		if members, ok := strings.CutPrefix(schema, "{"); ok {
			schema = fmt.Sprintf(`{"$schema": %q, %s`, dialect, members)
		}
		s, err := compile(json.RawMessage(schema))
		if err != nil {
			if e := sdk.AsError(err); e.Code != sdk.CodeConfig || len(e.Faults) == 0 {
				t.Errorf("error %v", err)
			}
			return
		}
		filled, err := s.ApplyDefaults(json.RawMessage(data))
		if err != nil {
			filled = json.RawMessage(data)
		}
		for _, fault := range s.Validate(filled) {
			if !strings.HasPrefix(fault.Path, "$") || fault.Expected == "" || fault.Got == "" {
				t.Errorf("fault %+v", fault)
			}
		}
	})
}
