package toolbox

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/sdk"
)

func TestTools_Sanitises(t *testing.T) {
	t.Parallel()
	const draft7Schema = `"$schema": "http://json-schema.org/draft-07/schema#"`
	for _, row := range []struct{ name, accepts, parameters, description string }{
		{
			"the root is a reference",
			`{"$ref": "#/$defs/In", "$defs": {"In": {"type": "object", "properties": {"a": {"$ref": "#/$defs/In"}}}, "Unused": {"items": {"$ref": "#/$defs/Out"}}, "Out": {}}}`,
			`{"$defs":{"In":{"properties":{"a":{"$ref":"#/$defs/In"}},"type":"object"}},"properties":{"a":{"$ref":"#/$defs/In"}},"type":"object"}`, "",
		},
		{
			"the root is a reference in the way of older generators",
			`{` + draft7Schema + `, "$ref": "#/definitions/In", "definitions": {"In": {"type": "object", "properties": {"a": {"type": "string"}}}}}`,
			`{"properties":{"a":{"type":"string"}},"type":"object"}`, "",
		},
		{
			"the caller's subject behind a reference",
			`{"$ref": "#/$defs/In", "$defs": {"In": {"type": "object", "properties": {"parentSubject$$": {}, "a": {}}, "required": ["parentSubject$$"]}}}`,
			`{"properties":{"a":{}},"type":"object"}`, "",
		},
		{
			"allOf of plain objects", `{"type": "object", "properties": {"a": {}}, "required": ["a"], "allOf": [{"properties": {"b": {}}, "required": ["a", "b"]}]}`,
			`{"properties":{"a":{},"b":{}},"required":["a","b"],"type":"object"}`, "",
		},
		{
			"allOf that says another thing of the same", `{"type": "object", "properties": {"a": {}}, "allOf": [{"properties": {"a": {"type": "null"}}}]}`,
			`{"properties":{"a":{}},"type":"object"}`,
			`The arguments must also fit this JSON Schema: {"allOf":[{"properties":{"a":{"type":"null"}}}]}`,
		},
		{"conditions below the root stay", `{"type": "object", "properties": {"a": {"anyOf": [{}]}}}`, `{"properties":{"a":{"anyOf":[{}]}},"type":"object"}`, ""},
		{"closed objects stay closed", `{"type": "object", "properties": {"a": {"items": false}}, "additionalProperties": false}`, `{"additionalProperties":false,"properties":{"a":{"items":false}},"type":"object"}`, ""},
		{"an array of anything", `{"type": "object", "properties": {"a": {"type": ["array", "null"]}}}`, `{"properties":{"a":{"items":{},"type":["array","null"]}},"type":"object"}`, ""},
		{"a default is not a schema", `{"type": "object", "default": {"type": ["array"], "$schema": 1}}`, `{"default":{"$schema":1,"type":["array"]},"type":"object"}`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := service("s", row.accepts)
			s.Contract.Description = ""
			d := mustTools(t, sdk.AgentSpec{Services: []sdk.ServiceTool{s}}).Definitions()[0]
			if diff := cmp.Diff(row.parameters, string(d.Parameters)); diff != "" {
				t.Errorf("parameters (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(row.description, d.Description); diff != "" {
				t.Errorf("description (-want +got):\n%s", diff)
			}
		})
	}
}

func lines(faults []sdk.Fault) []string {
	var all []string
	for _, f := range faults {
		all = append(all, f.String())
	}
	return all
}

func TestTools_RefusesReferencesThatCannotBeShown(t *testing.T) {
	t.Parallel()
	_, err := New(sdk.AgentSpec{Name: "a", Services: []sdk.ServiceTool{service("s",
		`{"type": "object", "properties": {"a": {"$ref": "#/anyOf/0/properties/b"}}, "anyOf": [{"properties": {"b": {"minimum": 1}}}]}`)}}, nil)
	want := []string{"$.services[0].properties.a.$ref: expected a reference that models can be shown: put its target into $defs, got #/anyOf/0/properties/b"}
	if diff := cmp.Diff(want, lines(sdk.AsError(err).Faults)); diff != "" {
		t.Error(diff)
	}
}
