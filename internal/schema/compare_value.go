package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

// jsonTypes are the types of JSON Schema. "number" takes in "integer", so for sets it is written as the rest.
var jsonTypes = []string{typeArray, "boolean", "integer", typeFraction, "null", typeObject, "string"}

const typeFraction = "number that is not whole"

// typesOf are the types that a schema admits.
func typesOf(n *node) []string {
	var declared []any
	switch t := n.object[keyType].(type) {
	case nil:
		return jsonTypes
	case []any:
		declared = t
	default:
		declared = []any{t}
	}
	var types []string
	for _, t := range declared {
		name, _ := t.(string)
		if name == "number" {
			types = append(types, "integer", typeFraction)
		} else {
			types = append(types, name)
		}
	}
	return types
}

func typeText(n *node) string {
	switch t := n.object[keyType].(type) {
	case string:
		return t
	case []any:
		names := make([]string, len(t))
		for i, name := range t {
			names[i] = fmt.Sprint(name)
		}
		return eitherType(names)
	default:
		return "any type"
	}
}

// types compares the types; it is false when they have none in common.
func (c *comparison) types(path string, a, b *node) bool {
	before, after := typesOf(a), typesOf(b)
	gone, added := without(before, after), without(after, before)
	message := fmt.Sprintf("the type changes from %s to %s", typeText(a), typeText(b))
	switch {
	case len(gone) == 0 && len(added) == 0:
	case len(gone) == 0:
		c.note(path, wider, message)
	case len(added) == 0:
		c.note(path, narrower, message)
	default:
		c.note(path, unclear, message)
	}
	return len(gone) < len(before)
}

// without are the values that are not in other.
func without(values, other []string) []string {
	var rest []string
	for _, v := range values {
		if !slices.Contains(other, v) {
			rest = append(rest, v)
		}
	}
	return rest
}

// enumOf are the values that a schema lists, as JSON; nil when it lists none.
func enumOf(n *node) []string {
	if value, ok := n.object["const"]; ok {
		return []string{fixedText(value)}
	}
	list, ok := n.object["enum"].([]any)
	if !ok {
		return nil
	}
	values := make([]string, len(list))
	for i, value := range list {
		values[i] = fixedText(value)
	}
	return values
}

func (c *comparison) enums(path string, a, b *node) {
	before, after := enumOf(a), enumOf(b)
	switch {
	case before == nil && after == nil:
		return
	case before == nil:
		c.note(path, narrower, "only "+strings.Join(after, ", ")+" is allowed now")
		return
	case after == nil:
		c.note(path, wider, "not only "+strings.Join(before, ", ")+" is allowed any more")
		return
	}
	if gone := without(before, after); len(gone) > 0 {
		c.note(path, narrower, "no longer allowed: "+strings.Join(gone, ", "))
	}
	if added := without(after, before); len(added) > 0 {
		c.note(path, wider, "allowed now: "+strings.Join(added, ", "))
	}
}

// bound is an end of a range; a nil value is none.
type bound struct {
	value     *big.Rat
	exclusive bool
}

func (b bound) String() string {
	switch {
	case b.value == nil:
		return "none"
	case b.exclusive:
		return ratText(b.value) + " (exclusive)"
	default:
		return ratText(b.value)
	}
}

func rational(value any) *big.Rat {
	n, ok := value.(json.Number)
	if !ok {
		return nil
	}
	r, _ := new(big.Rat).SetString(n.String())
	return r
}

func lowerBound(n *node, keyword string) bound { return boundOf(n, keyword, "exclusiveMinimum", 1) }

func upperBound(n *node, keyword string) bound { return boundOf(n, keyword, "exclusiveMaximum", -1) }

// countBound is a number of characters, items or properties. At least none does not bound anything.
func countBound(n *node, keyword string) bound {
	value := rational(n.object[keyword])
	if value != nil && value.Sign() == 0 && strings.HasPrefix(keyword, "min") {
		value = nil
	}
	return bound{value: value}
}

// boundOf is the lower or upper bound of numbers: the stricter of the two keywords. sign is 1 for the lower, -1 for the
// upper.
func boundOf(n *node, keyword, exclusiveKeyword string, sign int) bound {
	inclusive := bound{value: rational(n.object[keyword])}
	if exclusive, ok := n.object[exclusiveKeyword].(bool); ok { // draft 4
		inclusive.exclusive = exclusive
		return inclusive
	}
	exclusive := bound{rational(n.object[exclusiveKeyword]), true}
	if tighter(exclusive, inclusive, sign) {
		return exclusive
	}
	return inclusive
}

// tighter reports whether b admits less than other.
func tighter(b, other bound, sign int) bool {
	switch {
	case b.value == nil:
		return false
	case other.value == nil:
		return true
	}
	if order := sign * b.value.Cmp(other.value); order != 0 {
		return order > 0
	}
	return b.exclusive && !other.exclusive
}

func (c *comparison) bounds(path string, a, b *node) {
	for _, k := range []struct {
		keyword string
		of      func(n *node, keyword string) bound
		sign    int
	}{
		{"minimum", lowerBound, 1},
		{"maximum", upperBound, -1},
		{"minLength", countBound, 1},
		{"maxLength", countBound, -1},
		{"minItems", countBound, 1},
		{"maxItems", countBound, -1},
		{"minProperties", countBound, 1},
		{"maxProperties", countBound, -1},
	} {
		before, after := k.of(a, k.keyword), k.of(b, k.keyword)
		message := fmt.Sprintf("the %s changes from %s to %s", k.keyword, before, after)
		if tighter(after, before, k.sign) {
			c.note(path, narrower, message)
		} else if tighter(before, after, k.sign) {
			c.note(path, wider, message)
		}
	}
}

// texts compares what else judges a single value: multipleOf, uniqueItems, pattern and, where it is checked, format.
func (c *comparison) texts(path string, a, b *node) {
	if before, after := rational(a.object["multipleOf"]), rational(b.object["multipleOf"]); before != nil && after != nil {
		c.multiples(path, before, after)
	} else {
		c.whole(path, a, b, []string{"multipleOf"})
	}
	unique, uniqueNow := a.object["uniqueItems"] == true, b.object["uniqueItems"] == true
	if uniqueNow && !unique {
		c.note(path, narrower, "items must differ now")
	} else if unique && !uniqueNow {
		c.note(path, wider, "items may be equal now")
	}
	c.whole(path, a, b, []string{"pattern"})
	c.formats(path, a, b)
}

func (c *comparison) multiples(path string, before, after *big.Rat) {
	message := fmt.Sprintf("multipleOf changes from %s to %s", ratText(before), ratText(after))
	switch {
	case before.Cmp(after) == 0:
	case new(big.Rat).Quo(after, before).IsInt():
		c.note(path, narrower, message)
	case new(big.Rat).Quo(before, after).IsInt():
		c.note(path, wider, message)
	default:
		c.note(path, unclear, message)
	}
}

// formats are checked in the older dialects only.
func (c *comparison) formats(path string, a, b *node) {
	before, _ := a.object[keyFormat].(string)
	after, _ := b.object[keyFormat].(string)
	if before == after && c.from.dialect.assertsFormats() == c.to.dialect.assertsFormats() {
		return
	}
	checked := func(t *tree, format string) bool { return format != "" && t.dialect.assertsFormats() }
	was, is := checked(c.from, before), checked(c.to, after)
	message := fmt.Sprintf("the format changes from %s to %s", formatText(before, was), formatText(after, is))
	switch {
	case !was && !is:
		if before != after {
			c.add(Editorial, path, message)
		}
	case !was:
		c.note(path, narrower, message)
	case !is:
		c.note(path, wider, message)
	default:
		c.note(path, unclear, message)
	}
}

func formatText(format string, checked bool) string {
	switch {
	case format == "":
		return "none"
	case checked:
		return format
	default:
		return format + " (not checked)"
	}
}
