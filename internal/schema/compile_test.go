package schema

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

func TestCompile_RefusesWhatIsNoSchema(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, schema, want string }{
		{"nothing", ``, `$: expected a JSON value, got nothing`},
		{"not JSON", `{"a" 1}`, `$: expected valid JSON, got invalid character '1' after object name (expecting ':') at byte 5`},
		{"two values", `{} {}`, `$: expected valid JSON, got more than one value`},
		{"half a value", `{"type": `, `$: expected valid JSON, got unexpected EOF at byte 9`},
		{
			"a name twice", `{"items": [{"type": "object", "type": "string"}]}`,
			`$.items[0].type: expected each name once in an object, got the name twice`,
		},
		{"neither object nor boolean", `[]`, `$: expected a JSON Schema: an object or a boolean, got array []`},
		{
			"unknown dialect", `{"$schema": "http://example.com/s"}`,
			`$.$schema: expected one of ` + strings.Join(metaschemas, ", ") + `, got string "http://example.com/s"`,
		},
		{
			"another dialect inside", `{"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}`,
			`$.properties.a.$schema: expected the dialect of the whole document, got string "http://json-schema.org/draft-07/schema#"`,
		},
		{"too deep", strings.Repeat(`{"not":`, 70) + `{}` + strings.Repeat(`}`, 70), `$: expected at most 64 levels of nesting, got more`},
		{
			"too large", `{"description": "` + strings.Repeat("x", MaxSchemaSize) + `"}`,
			`$: expected a schema of at most 262144 bytes, got 262163 bytes`,
		},
		{"itself", `{"$ref": "#"}`, `$: expected a schema that does not apply itself to the same value, got object {"$ref":"#"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkRefused(t, json.RawMessage(tt.schema), []string{tt.want})
		})
	}
}

func TestCompile_RefusesWithEveryFault(t *testing.T) {
	t.Parallel()
	const outside = `expected a reference inside this document: nothing is loaded from elsewhere`
	tests := []struct {
		name, members string
		want          []string
	}{
		{
			"huge number", `"properties": {"a": {"maximum": 1e99999999}}`,
			[]string{`$.properties.a.maximum: expected a number that a 64-bit float can hold, got number 1e99999999`},
		},
		{
			"remote references",
			`"properties": {"a": {"$ref": "https://example.com/s"}, "b": {"$ref": "other.json#/x"}, "c": {"$ref": "file:///etc/passwd"}}`,
			[]string{
				`$.properties.a.$ref: ` + outside + `, got string "https://example.com/s"`,
				`$.properties.b.$ref: ` + outside + `, got string "other.json#/x"`,
				`$.properties.c.$ref: ` + outside + `, got string "file:///etc/passwd"`,
			},
		},
		{"nothing there", `"properties": {"a": {"$ref": "#/definitions/x"}, "b": {"$ref": "#x"}}`, []string{
			`$.properties.a.$ref: expected a reference to a schema that exists, got string "#/definitions/x"`,
			`$.properties.b.$ref: expected a reference to an anchor that exists, got string "#x"`,
		}},
		{
			"itself by way of others",
			`"definitions": {"a": {"allOf": [{"$ref": "#/definitions/b"}]}, "b": {"anyOf": [{"$ref": "#/definitions/a"}]}}`,
			[]string{`$.definitions.a: expected a schema that does not apply itself to the same value, got object {"allOf":[{"$ref":"#/definitions/b"}]}`},
		},
		{"wrong keywords", `"type": "objekt", "required": "a", "minLength": -1`, []string{
			`$.minLength: expected at least 0, got number -1`,
			`$.required: expected array, got string "a"`,
			`$.type: expected a value that fits one of the alternatives (anyOf), got string "objekt"`,
			`$.type: expected one of "array", "boolean", "integer", "null", "number", "object", "string", got string "objekt"`,
		}},
		{
			"look-around", `"pattern": "(?!x)"`,
			[]string{`$.pattern: expected a regular expression without look-around and back-references (RE2), got string "(?!x)"`},
		},
	}
	for _, dialect := range []string{"", metaschemas[draft7]} {
		for _, tt := range tests {
			t.Run(dialect+"/"+tt.name, func(t *testing.T) {
				t.Parallel()
				checkRefused(t, in(dialect, tt.members), tt.want)
			})
		}
	}
}

func checkRefused(t *testing.T, schema json.RawMessage, want []string) {
	t.Helper()
	_, err := Compile(schema)
	if err == nil {
		t.Fatal("compiled")
	}
	e := sdk.AsError(err)
	if e.Code != sdk.CodeConfig {
		t.Errorf("code %s", e.Code)
	}
	if diff := cmp.Diff(want, lines(e.Faults)); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

func TestCompile_CompilesAContentOnce(t *testing.T) {
	// Not parallel: it reads the process-wide counter.
	raw := json.RawMessage(`{"type": "object", "description": "compiled once"}`)
	before := Compilations()
	var wg sync.WaitGroup
	schemas := make([]*Schema, 16)
	for i := range schemas {
		wg.Go(func() {
			schemas[i] = mustCompile(t, append(json.RawMessage(nil), raw...))
			schemas[i].Validate(json.RawMessage(`{}`))
		})
	}
	wg.Wait()
	if got := Compilations() - before; got != 1 {
		t.Errorf("%d compilations", got)
	}
	for _, s := range schemas {
		if s != schemas[0] {
			t.Error("two schemas of one content")
		}
	}
}

func TestCache_ForgetsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	c := newCache(2, 1<<20)
	get := func(members string) *Schema {
		s, err := c.get(in("", members))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	a, b := get(`"title": "a"`), get(`"title": "b"`)
	if get(`"title": "a"`) != a {
		t.Error("a was not kept")
	}
	get(`"title": "c"`)
	if get(`"title": "a"`) != a {
		t.Error("a was used last and is gone")
	}
	if get(`"title": "b"`) == b {
		t.Error("b was not forgotten")
	}
	if c.recent.Len() != 2 || len(c.byHash) != 2 {
		t.Errorf("%d and %d entries", c.recent.Len(), len(c.byHash))
	}
}

func TestCache_BoundsWhatItKeepsInBytes(t *testing.T) {
	t.Parallel()
	c := newCache(10, 30)
	for _, title := range []string{"a", "b", "c"} {
		if _, err := c.get(in("", `"title": "`+title+`"`)); err != nil { // 14 bytes
			t.Fatal(err)
		}
	}
	if c.recent.Len() != 2 || len(c.byHash) != 2 || c.bytes != 28 {
		t.Errorf("%d and %d entries of %d bytes", c.recent.Len(), len(c.byHash), c.bytes)
	}
}
