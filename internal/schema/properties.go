package schema

import (
	"bytes"
	"encoding/json"
)

// opening are the keywords with which a schema admits properties that it does not declare by name.
var opening = []string{
	"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "patternProperties", "dependentSchemas", "dependencies",
	"unevaluatedProperties",
}

// Properties returns the properties that a schema declares; nil where it admits others, or says nothing about them.
func Properties(schema json.RawMessage) map[string]json.RawMessage {
	var root map[string]json.RawMessage
	if json.Unmarshal(schema, &root) != nil {
		return nil
	}
	more, says := root["additionalProperties"]
	closed := says && bytes.Equal(bytes.TrimSpace(more), []byte("false"))
	properties := map[string]json.RawMessage{}
	if json.Unmarshal(root["properties"], &properties) != nil && !closed || says && !closed {
		return nil
	}
	for _, keyword := range opening {
		if _, open := root[keyword]; open {
			return nil
		}
	}
	return properties
}
