package schema

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"agentd/sdk"
)

// rootConditions are the keywords that providers refuse at the root of a tool's parameters.
var rootConditions = []string{keyAllOf, keyAnyOf, keyOneOf, keyNot, "enum"}

// maxConditions bounds what a tool's description says of conditions, in bytes.
const maxConditions = 2000

// Shown is a schema of arguments in the form that every provider takes, because a run may change provider half-way:
// OpenAI wants type "object" and no conditions at the root and items for every array, Anthropic reads any schema as
// 2020-12. It is for showing only; arguments are held to the schema itself.
type Shown struct {
	Parameters json.RawMessage
	// Conditions tells in words what the parameters cannot say; it belongs into the tool's description.
	Conditions string
}

// ForModels is the schema of a tool's arguments as models are shown it, without the arguments that are hidden from them. The error is
// CodeConfig with every fault.
func (s *Schema) ForModels(hidden ...string) (Shown, error) {
	c := rewriter{tree: s.tree, forModels: true}
	root, ok := c.schema(s.tree.root).(map[string]any)
	if !ok {
		return Shown{}, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{{
			Path: "$", Expected: "a schema of objects", Got: show(s.tree.doc),
		}}}
	}
	root[keyType] = typeObject
	mergeConjuncts(root)
	secret := c.hide(root, hidden)
	conditions := map[string]any{}
	for _, keyword := range rootConditions {
		if value, ok := root[keyword]; ok {
			conditions[keyword] = value
			delete(root, keyword)
		}
	}
	c.checkReferences(conditions)
	c.dropUnused(root)
	if len(c.faults) > 0 {
		return Shown{}, &sdk.Error{Code: sdk.CodeConfig, Faults: c.faults}
	}
	parameters, err := Canonical([]byte(compactJSON(root)))
	return Shown{parameters, conditionsText(conditions, secret)}, err
}

// hide leaves out what the root says of the hidden arguments. secret says that some of that are conditions.
func (c *rewriter) hide(root map[string]any, hidden []string) (secret bool) {
	if len(hidden) == 0 {
		return false
	}
	properties, _ := root[keyProperties].(map[string]any)
	properties = maps.Clone(properties)
	required, _ := root[keyRequired].([]any)
	required = slices.Clone(required)
	gone := []string{}
	for _, name := range hidden {
		delete(properties, name)
		required = slices.DeleteFunc(required, func(other any) bool { return other == any(name) })
		gone = append(gone, pointer([]string{keyProperties, name}))
	}
	for keyword, value := range root {
		if slices.Contains(plainKeywords, keyword) || !slices.ContainsFunc(hidden, func(name string) bool {
			return strings.Contains(compactJSON(value), compactJSON(name))
		}) {
			continue
		}
		delete(root, keyword)
		secret, gone = true, append(gone, pointer([]string{keyword}))
	}
	delete(root, keyRequired)
	if len(required) > 0 {
		root[keyRequired] = required
	}
	if root[keyProperties] = properties; len(properties) == 0 {
		delete(root, keyProperties)
	}
	c.references = slices.DeleteFunc(c.references, func(r reference) bool {
		return slices.ContainsFunc(gone, func(place string) bool { return within(pointer(r.from), place) })
	})
	return secret
}

// plainKeywords are those of a root that say nothing of an argument but its own schema.
var plainKeywords = []string{keyType, keyProperties, keyRequired, keyDefs, keyDefinitions, "title", keyDescription, "additionalProperties"}

func conditionsText(conditions map[string]any, secret bool) string {
	if len(conditions) == 0 && !secret {
		return ""
	}
	text := compactJSON(conditions)
	if len(text) > maxConditions || secret {
		return "The arguments must fit further conditions; a call that does not fit is told what is wrong."
	}
	return "The arguments must also fit this JSON Schema: " + text
}

// InlineRoot returns the schema with what its root refers to in the place of the reference, because providers look for
// properties at the root only. A reference with other keywords beside it stays.
func (s *Schema) InlineRoot() (*Schema, error) {
	root := s.tree.root
	target := s.tree.follow(root)
	if target == root || target.object == nil || target.base != root.base {
		return s, nil
	}
	kept := []string{keySchema, keyDefs, keyDefinitions, keyDescription}
	if !s.tree.dialect.legacy() { // there it means nothing beside a reference
		kept = append(kept, keyID)
	}
	inlined := map[string]any{}
	for _, keyword := range kept {
		if value, ok := root.object[keyword]; ok {
			inlined[keyword] = value
		}
	}
	for keyword, value := range target.object {
		_, taken := inlined[keyword]
		switch {
		case keyword == keyDescription && taken, keyword == keyAnchor, keyword == s.tree.dialect.idKeyword():
		case taken:
			return s, nil // both have definitions
		default:
			inlined[keyword] = value
		}
	}
	return Compile(json.RawMessage(compactJSON(inlined)))
}

// mergeConjuncts puts the members of allOf into the root where that says the same, which it does for plain objects.
func mergeConjuncts(root map[string]any) {
	parts, ok := root[keyAllOf].([]any)
	if !ok {
		return
	}
	properties, _ := root[keyProperties].(map[string]any)
	merged := map[string]any{}
	for name, schema := range properties {
		merged[name] = schema
	}
	required, _ := root[keyRequired].([]any)
	required = slices.Clone(required)
	for _, part := range parts {
		object, ok := part.(map[string]any)
		if !ok || !plainObject(object) {
			return
		}
		own, _ := object[keyProperties].(map[string]any)
		for name, schema := range own {
			if _, taken := merged[name]; taken {
				return
			}
			merged[name] = schema
		}
		names, _ := object[keyRequired].([]any)
		for _, name := range names {
			if !slices.Contains(required, name) {
				required = append(required, name)
			}
		}
	}
	if closed, ok := root["additionalProperties"]; ok && closed != true {
		return // it speaks of the root's own properties only
	}
	root[keyProperties] = merged
	if len(required) > 0 {
		root[keyRequired] = required
	}
	delete(root, keyAllOf)
}

func plainObject(object map[string]any) bool {
	for keyword := range object {
		switch keyword {
		case keyType, keyProperties, keyRequired, "title", keyDescription:
		default:
			return false
		}
	}
	return true
}

// checkReferences refuses references into what is told in words.
func (c *rewriter) checkReferences(conditions map[string]any) {
	for _, r := range c.references {
		for keyword := range conditions {
			if within(r.to, "/"+keyword) {
				c.faults = append(c.faults, sdk.Fault{
					Path: pathOf(c.doc, r.from), Expected: "a reference that models can be shown: put its target into $defs", Got: "#" + r.to,
				})
			}
		}
	}
}

// dropUnused leaves out the definitions that nothing else refers to: models pay for what they are shown.
func (c *rewriter) dropUnused(root map[string]any) {
	for _, keyword := range []string{keyDefs, keyDefinitions} {
		definitions, _ := root[keyword].(map[string]any)
		for dropped := true; dropped; {
			dropped = false
			for name := range definitions {
				own := pointer([]string{keyword, name})
				used := slices.ContainsFunc(c.references, func(r reference) bool {
					return within(r.to, own) && !within(pointer(r.from), own)
				})
				if !used {
					delete(definitions, name)
					c.references = slices.DeleteFunc(c.references, func(r reference) bool { return within(pointer(r.from), own) })
					dropped = true
				}
			}
		}
		if len(definitions) == 0 {
			delete(root, keyword)
		}
	}
}

// within reports whether a JSON pointer is another one, or leads below it.
func within(ptr, other string) bool {
	rest, ok := strings.CutPrefix(ptr, other)
	return ok && (rest == "" || rest[0] == '/')
}

// WithoutProperty returns the schema without a property of its root, and whether it had it.
func (s *Schema) WithoutProperty(name string) (rest json.RawMessage, had bool) {
	root := s.tree.root.object
	properties, _ := root[keyProperties].(map[string]any)
	if _, declared := properties[name]; !declared {
		return s.raw, false
	}
	without, others := maps.Clone(root), maps.Clone(properties)
	delete(others, name)
	without[keyProperties] = others
	if required, ok := root[keyRequired].([]any); ok {
		required = slices.DeleteFunc(slices.Clone(required), func(other any) bool { return other == any(name) })
		if without[keyRequired] = required; len(required) == 0 {
			delete(without, keyRequired) // draft 4 wants at least one
		}
	}
	return json.RawMessage(compactJSON(without)), true
}
