package schema

import (
	"net/url"
	"slices"
	"strconv"

	"agentd/sdk"
)

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
