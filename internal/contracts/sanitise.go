package contracts

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"agentd/sdk"
)

// rootConditions are the keywords that providers refuse at the root of a tool's parameters.
var rootConditions = []string{keyAllOf, keyAnyOf, keyOneOf, keyNot, "enum"}

// maxConditions bounds what a tool's description says of conditions, in bytes.
const maxConditions = 2000

// definition is a schema of arguments in the form that every provider takes, because a run may change provider half-way:
// OpenAI wants type typeObject and no conditions at the root and items for every array, Anthropic reads any schema as
// 2020-12. It is for showing only; arguments are held to the contract's own schema.
type definition struct {
	parameters json.RawMessage
	// conditions tells in words what the parameters cannot say; it belongs into the tool's description.
	conditions string
}

// sanitise makes the definition of a schema.
func sanitise(s *Schema) (definition, error) {
	c := rewriter{tree: s.tree, forModels: true}
	root, ok := c.schema(s.tree.root).(map[string]any)
	if !ok {
		return definition{}, &sdk.Error{Code: sdk.CodeConfig, Faults: []sdk.Fault{{
			Path: "$", Expected: "a schema of objects", Got: show(s.tree.doc),
		}}}
	}
	root[keyType] = typeObject
	mergeConjuncts(root)
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
		return definition{}, &sdk.Error{Code: sdk.CodeConfig, Faults: c.faults}
	}
	parameters, err := canonical([]byte(compactJSON(root)))
	return definition{parameters, conditionsText(conditions)}, err
}

func conditionsText(conditions map[string]any) string {
	if len(conditions) == 0 {
		return ""
	}
	text := compactJSON(conditions)
	if len(text) > maxConditions {
		return "The arguments must fit further conditions; a call that does not fit is told what is wrong."
	}
	return "The arguments must also fit this JSON Schema: " + text
}

// inlineRoot returns the schema with what its root refers to in the place of the reference, because providers look for
// properties at the root only. A reference with other keywords beside it stays.
func inlineRoot(s *Schema) (*Schema, error) {
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

// rewriter copies a schema with references that are JSON pointers into the document that it becomes part of, so that it
// needs no ids and anchors.
type rewriter struct {
	*tree
	// prefix is the JSON pointer of the copy in its new document.
	prefix string
	// forModels makes it 2020-12 in the form that providers take.
	forModels  bool
	faults     []sdk.Fault
	references []reference
}

// reference is one that was written: where it stood, and where its target stands now.
type reference struct {
	from []string
	to   string
}

func (c *rewriter) schema(n *node) any {
	if n.object == nil {
		return !c.isFalse(n)
	}
	if n.ref != nil && c.dialect.legacy() {
		out := map[string]any{keyRef: c.reference(n)}
		if description, ok := n.object[keyDescription]; ok {
			out[keyDescription] = description
		}
		if len(n.at) == 0 { // what the reference points to
			for _, keyword := range []string{keyDefs, keyDefinitions} {
				if value, ok := n.object[keyword]; ok {
					out[keyword] = c.value(value, n.child(keyword), false)
				}
			}
		}
		return out
	}
	out := map[string]any{}
	for keyword, value := range n.object {
		switch {
		case keyword == keyRef && n.ref != nil:
			out[keyRef] = c.reference(n)
		case keyword == keySchema, keyword == keyAnchor, keyword == "$comment", keyword == c.dialect.idKeyword():
		default:
			out[keyword] = c.value(value, n.child(keyword), false)
		}
	}
	if !c.forModels {
		return out
	}
	c.modernise(out)
	if types, ok := out[keyType].([]any); ok && len(types) == 1 {
		out[keyType] = types[0]
	}
	if _, has := out[keyItems]; !has && admitsArrays(out[keyType]) {
		out[keyItems] = map[string]any{}
	}
	return out
}

func admitsArrays(declared any) bool {
	types, _ := declared.([]any)
	return declared == typeArray || slices.Contains(types, any(typeArray))
}

// value rewrites the value of a keyword. listed says that it stands in a list or mapping of the keyword: some providers
// take boolean schemas there as faults, but want them for additionalProperties.
func (c *rewriter) value(value any, at []string, listed bool) any {
	if n, ok := c.nodes[pointer(at)]; ok {
		schema := c.schema(n)
		switch {
		case !listed || !c.forModels:
		case schema == true:
			return map[string]any{}
		case schema == false:
			return map[string]any{keyNot: map[string]any{}}
		}
		return schema
	}
	switch value := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range value {
			out[name] = c.value(member, append(slices.Clip(at), name), true)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = c.value(item, append(slices.Clip(at), strconv.Itoa(i)), true)
		}
		return out
	default:
		return value
	}
}

// reference writes the $ref of n as a JSON pointer.
func (c *rewriter) reference(n *node) string {
	to := c.prefix + pointer(c.moved(n.ref.at))
	c.references = append(c.references, reference{n.child(keyRef), to})
	if to == "" {
		return "#"
	}
	return (&url.URL{Fragment: to}).String()
}

// moved is where the schema at a place stands after modernise.
func (c *rewriter) moved(at []string) []string {
	if c.dialect == draft2020 || !c.forModels {
		return at
	}
	out := slices.Clone(at)
	for i := range at {
		n, ok := c.nodes[pointer(at[:i])]
		if !ok || !isArray(n.object[keyItems]) {
			continue
		}
		switch at[i] {
		case keyItems:
			out[i] = "prefixItems"
		case "additionalItems":
			out[i] = keyItems
		}
	}
	return out
}

// modernise turns the keywords that 2020-12 has otherwise into its own.
func (c *rewriter) modernise(s map[string]any) {
	if c.dialect == draft2020 {
		return
	}
	if isArray(s[keyItems]) {
		s["prefixItems"] = s[keyItems]
		delete(s, keyItems)
		if rest, ok := s["additionalItems"]; ok {
			s[keyItems] = rest
		}
	}
	delete(s, "additionalItems")
	for _, k := range [][2]string{{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}} {
		if exclusive, ok := s[k[1]].(bool); ok { // draft 4
			delete(s, k[1])
			if exclusive {
				s[k[1]] = s[k[0]]
				delete(s, k[0])
			}
		}
	}
	dependencies, _ := s["dependencies"].(map[string]any)
	for name, dependency := range dependencies {
		keyword := keyDependent
		if isArray(dependency) {
			keyword = "dependentRequired"
		}
		group, _ := s[keyword].(map[string]any)
		if group == nil {
			group = map[string]any{}
			s[keyword] = group
		}
		group[name] = dependency
	}
	delete(s, "dependencies")
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
