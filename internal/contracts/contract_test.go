package contracts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/golden"
	"agentd/sdk"
)

const bookFile = `uri: "#/airline/book"
type: airline.book
domain: airline
description: Book a flight.
versions:
  1.0.0:
    accepts:
      type: object
      properties:
        id: {type: string, minLength: 3}
        seats: {type: integer, default: 1}
      required: [id]
    emits:
      airline.booked: {type: object, properties: {price: {type: number, maximum: 9223372036854775807}}}
  1.10.0:
    accepts: {type: object}
    emits: {airline.booked: {type: object}, airline.waitlisted: {type: object}}
`

func TestParse_YAML(t *testing.T) {
	t.Parallel()
	got, err := Parse("book.yaml", []byte(bookFile))
	if err != nil {
		t.Fatal(err)
	}
	if got.URI != "#/airline/book" || got.Type != "airline.book" || got.Domain != "airline" || got.Description != "Book a flight." {
		t.Errorf("contract %+v", got)
	}
	want := `{"type":"object","properties":{"id":{"type":"string","minLength":3},"seats":{"type":"integer","default":1}},"required":["id"]}`
	if diff := cmp.Diff(want, string(got.Versions["1.0.0"].Accepts)); diff != "" {
		t.Errorf("accepts keeps order and numbers (-want +got):\n%s", diff)
	}
	want = `{"type":"object","properties":{"price":{"type":"number","maximum":9223372036854775807}}}`
	if diff := cmp.Diff(want, string(got.Versions["1.0.0"].Emits["airline.booked"])); diff != "" {
		t.Errorf("emits (-want +got):\n%s", diff)
	}
	if len(got.Versions) != 2 || len(got.Versions["1.10.0"].Emits) != 2 {
		t.Errorf("versions %v", got.Versions)
	}
}

func TestParse_JSONIsReadAsJSON(t *testing.T) {
	t.Parallel()
	data := "{\n\t\"uri\": \"#/a\", \"type\": \"a\",\n\t\"description\": \"\\ud83d\\ude00 \\/\",\n" +
		"\t\"versions\": {\"1.0.0\": {\"accepts\": {\"type\": \"object\", \"maxProperties\": 1e1}, \"emits\": {\"b\": {\"type\": \"object\"}}}}}\n"
	got, err := Parse("a.json", []byte(data))
	if err != nil {
		t.Fatal(err)
	}
	if got.Description != "😀 /" || string(got.Versions["1.0.0"].Accepts) != `{"type":"object","maxProperties":1e1}` {
		t.Errorf("contract %+v", got)
	}
}

func TestParse_ListsEveryFaultWithItsPlace(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, file, data, want string }{
		{"everything", "c.yaml", `type: ".a"
domain: r2
uri: ""
colour: red
colour: blue
versions:
  1.0: {accepts: {type: string}, emits: {"a b": {type: object}}}
  0.0.0: {accepts: {type: object, minProperties: -1}, emits: {}}
  2.0.0:
  3.0.0:
    accept: {}
    emits: [1]
  4.0.0:
    accepts: {$ref: "http://example.com"}
    emits: {sys..a.error: 5, c: }
`, `c.yaml:1:7: type: expected a name of letters, digits, _, - and single dots, at most 128 characters, got string ".a"
c.yaml:2:9: domain "r2": want at most 64 characters that do not begin like an attempt (r2, r2-…)
c.yaml:3:6: uri: expected at least 1 character, got 0 characters
c.yaml:4:1: unknown key "colour"; there is uri, type, domain, description, labels, versions
c.yaml:5:1: key "colour" is already set in line 4
c.yaml:7:3: version "1.0" is not of the form 1.2.3
c.yaml:7:18: expected a schema of objects: type "object" at its root, got {"type":"string"}
c.yaml:7:42: name "a b": want letters, digits, "_", "-" and single dots, at most 128 characters
c.yaml:8:3: version 0.0.0 is reserved for events that belong to no version
c.yaml:8:50: minProperties: expected at least 0, got number -1
c.yaml:8:62: versions["0.0.0"].emits: expected at least 1 property, got 0 properties
c.yaml:9:9: versions["2.0.0"]: expected object, got null
c.yaml:11:5: unknown key "accept"; did you mean "accepts"?
c.yaml:11:5: missing key "accepts": JSON Schema of a call's data; type: object at its root.
c.yaml:12:12: versions["3.0.0"].emits: expected object, got array [1]
c.yaml:14:21: $ref: expected a reference inside this document: nothing is loaded from elsewhere, got string "http://example.com"
c.yaml:15:13: name "sys..a.error": want letters, digits, "_", "-" and single dots, at most 128 characters
c.yaml:15:27: versions["4.0.0"].emits["sys..a.error"]: expected object, got number 5
c.yaml:15:33: versions["4.0.0"].emits.c: expected object, got null`},
		{"nothing", "c.yaml", ``, `c.yaml:1:1: the file is empty`},
		{"no mapping", "c.yaml", `[1]`, `c.yaml:1:1: expected object, got array [1]`},
		{"no YAML", "c.yaml", "uri: a\ntype: [", `c.yaml:2:8: not valid YAML: did not find expected node content`},
		{
			"two documents", "c.yaml", "uri: a\ntype: a\nversions: {1.0.0: {accepts: {type: object}, emits: {b: {type: object}}}}\n---\nuri: b\n",
			`c.yaml:4:1: a second document begins here; a file has one`,
		},
		{"no JSON", "c.json", "{\n  \"uri\": \"a\",\n  \"type\" 1\n}", `c.json:3:10: not valid JSON: invalid character '1' after object name (expecting ':')`},
		{
			"unknown key of JSON", "c.json", "{\"uri\": \"a\", \"type\": \"a\",\n\t\"x\": 1, \"versions\": {\"1.0.0\": {\"accepts\": {\"type\": \"object\"}, \"emits\": {\"b\": {\"type\": \"object\"}}}}}",
			`c.json:2:2: unknown key "x"; there is uri, type, domain, description, labels, versions`,
		},
		{
			"no merging", "c.yaml", "uri: a\ntype: a\nversions: {1.0.0: {<<: {}, accepts: {type: object}, emits: {b: {type: object}}}}",
			`c.yaml:3:20: merge keys (<<) are not supported; repeat the values or use an alias for each`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, err := Parse(tt.file, []byte(tt.data))
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(strings.Split(tt.want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
			if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || sdk.AsError(err).Code != sdk.CodeConfig {
				t.Error("the error has not the code config")
			}
		})
	}
}

func TestParse_AliasesDoNotMultiply(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("uri: a\ntype: a\ndescription: &a0 [x]\n")
	b.WriteString("versions:\n  1.0.0:\n    emits: {b: {type: object}}\n    accepts:\n      type: object\n      a0: &b0 [1,1,1,1,1,1,1,1,1,1]\n")
	for i := range 9 {
		b.WriteString("      a" + string(rune('1'+i)) + ": &b" + string(rune('1'+i)) + " [" + strings.Repeat("*b"+string(rune('0'+i))+",", 10) + "]\n")
	}
	_, err := Parse("bomb.yaml", []byte(b.String()))
	if err == nil || !strings.Contains(err.Error(), "at most 200000 values") {
		t.Errorf("error %.300v", err)
	}
}

func TestLoad_NamesTheFileThatIsMissing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "none.yaml")
	_, err := Load(path)
	if err == nil || !strings.Contains(err.Error(), path) || sdk.AsError(err).Code != sdk.CodeConfig {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(path, []byte(bookFile), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path); err != nil || c.Type != "airline.book" {
		t.Errorf("%v, %v", c, err)
	}
}

func TestResolve(t *testing.T) {
	t.Parallel()
	versions := func(names ...string) sdk.Contract {
		c := sdk.Contract{URI: "#/c", Versions: map[string]sdk.ContractVersion{}}
		for _, name := range names {
			c.Versions[name] = sdk.ContractVersion{}
		}
		return c
	}
	usual := versions("1.0.0", "1.9.0", "1.10.0", "2.0.0-beta.1", "0.1.0")
	tests := []struct {
		contract  sdk.Contract
		rangeExpr string
		want      string
		code      sdk.Code
	}{
		{usual, "", "1.10.0", ""},
		{usual, "latest", "1.10.0", ""},
		{usual, "^1", "1.10.0", ""},
		{usual, "~1.9", "1.9.0", ""},
		{usual, ">=0.1, <1", "0.1.0", ""},
		{usual, "1.0.0", "1.0.0", ""},
		{usual, "2.0.0-beta.1", "2.0.0-beta.1", ""},
		{usual, "^2", "", sdk.CodeContractMissing},
		{usual, "1.0.1", "", sdk.CodeContractMissing},
		{usual, "newest", "", sdk.CodeConfig},
		{versions("2.0.0-a", "1.0.0-a"), "latest", "2.0.0-a", ""},
		{versions("1.0.0", "2.0.0-a"), "latest", "1.0.0", ""},
		{versions("1.0.0-a", "2.0.0"), "latest", "2.0.0", ""},
		{versions("2.0.0-a", "1.0.0"), "latest", "1.0.0", ""},
		{versions(), "latest", "", sdk.CodeContractMissing},
	}
	for _, tt := range tests {
		got, err := Resolve(tt.contract, tt.rangeExpr)
		if got != tt.want || (err != nil) != (tt.code != "") || err != nil && sdk.AsError(err).Code != tt.code {
			t.Errorf("Resolve(%s) = %q, %v; want %q, %s", tt.rangeExpr, got, err, tt.want, tt.code)
		}
	}
}

func TestParseSchemaRef(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string][2]string{
		"#/airline/book/1.2.3":        {"#/airline/book", "1.2.3"},
		"https://a.example/b/0.0.0":   {"https://a.example/b", "0.0.0"},
		"#/a/1.0.0-rc.1":              {"#/a", "1.0.0-rc.1"},
		"#/a/1.0":                     {},
		"#/a/v1.0.0":                  {},
		"/1.0.0":                      {},
		"1.0.0":                       {},
		"":                            {},
		sdk.SchemaRef("x/y", "3.4.5"): {"x/y", "3.4.5"},
	} {
		uri, version, ok := ParseSchemaRef(ref)
		if uri != want[0] || version != want[1] || ok != (want != [2]string{}) {
			t.Errorf("ParseSchemaRef(%q) = %q, %q, %v", ref, uri, version, ok)
		}
	}
}

func TestCompileVersion_ListsTheFaultsOfAllSchemas(t *testing.T) {
	t.Parallel()
	c, err := Parse("book.yaml", []byte(bookFile))
	if err != nil {
		t.Fatal(err)
	}
	v, err := CompileVersion(c, "1.0.0")
	if err != nil || v.Emits["airline.booked"] == nil {
		t.Fatalf("%v, %v", v, err)
	}
	got := v.Accepts.Validate([]byte(`{"id": "x"}`))
	if diff := cmp.Diff([]sdk.Fault{{Path: "$.id", Expected: "at least 3 characters", Got: "1 character"}}, got); diff != "" {
		t.Error(diff)
	}
	_, err = CompileVersion(c, "3.0.0")
	if want := "contract_missing: contract #/airline/book has no version 3.0.0; it has 1.0.0, 1.10.0"; err == nil || err.Error() != want {
		t.Errorf("error %v", err)
	}
	c.Versions["3.0.0"] = sdk.ContractVersion{Accepts: []byte(`{"type": "objekt"}`), Emits: nil}
	_, err = CompileVersion(c, "3.0.0")
	if e := sdk.AsError(err); len(e.Faults) != 2 || e.Faults[0].Path != `$.versions["3.0.0"].accepts.type` {
		t.Errorf("error %v", err)
	}
}

func TestBuiltin_ContractsAreSound(t *testing.T) {
	t.Parallel()
	for _, c := range Builtin() {
		v, err := CompileVersion(c, BuiltinVersion)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{sdk.TypePermissionRequest: 2, sdk.TypePlanReview: 2}[c.Type]; len(v.Emits) != max(want, 1) || c.Domain != sdk.HumanDomain {
			t.Errorf("contract %+v", c)
		}
	}
}

// What the author of a contract is told.
func TestLoad_FaultsOnFile(t *testing.T) {
	t.Parallel()
	_, err := Load("testdata/broken.yaml")
	if err == nil {
		t.Fatal("the file is taken")
	}
	golden.Check(t, "testdata/broken.golden.txt", []byte(err.Error()+"\n"))
}
