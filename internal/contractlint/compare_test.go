package contractlint

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/schema"
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
	const b, c, e = schema.Breaking, schema.Compatible, schema.Editorial
	for _, row := range []struct {
		name, from, to string
		accepts, emits schema.Severity
		path, message  string
	}{
		{"same", prop(`{"type": "string"}`), prop(`{"type":"string"}`), "", "", "", ""},
		{"order of members", `, "properties": {"a": {}}, "minProperties": 1`, `, "minProperties": 1.0, "properties": {"a": {}}`, "", "", "", ""},
		{"new property", ``, prop(`{}`), c, c, "$.a", "the property is new"},
		{"new required property", ``, prop(`{}`) + `, "required": ["a"]`, b, c, "$.a", "new and required"},
		{"now required", prop(`{}`), prop(`{}`) + `, "required": ["a"]`, b, c, "$.a", "it is required now"},
		{"no longer required", prop(`{}`) + `, "required": ["a"]`, prop(`{}`), c, b, "$.a", "not required any more"},
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
		{"closed", ``, `, "additionalProperties": false`, b, c, "$", "not allowed any more"},
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
			for side, want := range map[string]schema.Severity{sideAccepts: row.accepts, sideEmits + " " + typeDone: row.emits} {
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
				if who := map[bool]string{true: breaksCallers, false: breaksReaders}[side == sideAccepts]; want == schema.Breaking && got.Breaks != who {
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
		if c.Severity != schema.Breaking || c.Breaks != breaksReaders {
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
	got := map[string]schema.Severity{}
	for _, c := range Compare(a, b) {
		got[c.Path] = c.Severity
	}
	want := map[string]schema.Severity{"$.uri": schema.Breaking, "$.type": schema.Breaking, "$.domain": schema.Breaking, "$.description": schema.Editorial, "$.labels": schema.Compatible}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
