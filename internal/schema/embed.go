package schema

import (
	"encoding/json"
	"slices"
)

// Embed returns a schema as a part of another document, at the JSON pointer of that document where it will stand, and its
// schema format by the names of AsyncAPI, such as "application/schema+json;version=draft-07". Where draft-07 reads the
// schema in the same way that is its format, whatever $schema says, because all tools must support it. The schema has no
// ids and no $schema of its own. Errors are those of Compile.
func Embed(raw json.RawMessage, pointer string) (format string, schema json.RawMessage, err error) {
	s, err := Compile(raw)
	if err != nil {
		return "", nil, err
	}
	c := rewriter{tree: s.tree, prefix: pointer}
	schema, err = Canonical([]byte(compactJSON(c.schema(s.tree.root))))
	return schemaFormat(s.tree), schema, err
}

const formatPrefix = "application/schema+json;version="

func schemaFormat(t *tree) string {
	names := []string{draft4: "draft-04", draft6: "draft-06", draft7: "draft-07", draft2019: "2019-09", draft2020: "2020-12"}
	if t.dialect == draft6 || sharedMeaning(t) {
		return formatPrefix + names[draft7]
	}
	return formatPrefix + names[t.dialect]
}

// sharedKeywords mean the same in draft-07 and in all dialects after it.
var sharedKeywords = slices.Concat(annotationKeywords, []string{
	keySchema, keyID, keyAnchor, keyDefs, keyDefinitions, keyDefault, keyType, keyProperties, keyRequired, keyItems,
	keyAllOf, keyAnyOf, keyOneOf, keyNot, "enum", "const", "if", "then", "else", "minimum", "maximum", "exclusiveMinimum",
	"exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems", "contains",
	"minProperties", "maxProperties", "propertyNames", "patternProperties", "additionalProperties",
})

// sharedMeaning reports whether draft-07 reads the schema as its own dialect does.
func sharedMeaning(t *tree) bool {
	if t.dialect <= draft7 {
		return t.dialect == draft7
	}
	for _, n := range t.nodes {
		if n.ref != nil && !onlyReference(n.object) {
			return false // draft-07 reads nothing beside a reference
		}
		for keyword := range n.object {
			if keyword != keyRef && !slices.Contains(sharedKeywords, keyword) {
				return false
			}
		}
	}
	return true
}
