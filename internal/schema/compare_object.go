package schema

import (
	"slices"
)

func (c *comparison) objects(path string, a, b *node) {
	was, is := requiredOf(a), requiredOf(b)
	names := map[string]bool{}
	for _, n := range []*node{a, b} {
		for _, p := range n.properties {
			names[p.name] = true
		}
	}
	for _, name := range slices.Concat(was, is) {
		names[name] = true
	}
	for _, name := range sortedKeys(names) {
		c.property(path, name, a, b, slices.Contains(was, name), slices.Contains(is, name))
	}
	c.patterns(path, a, b)
	c.additional(path, a, b)
}

func requiredOf(n *node) []string {
	list, _ := n.object[keyRequired].([]any)
	var names []string
	for _, value := range list {
		if name, ok := value.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

func propertyOf(n *node, name string) *node {
	for _, p := range n.properties {
		if p.name == name {
			return p.schema
		}
	}
	return nil
}

func (c *comparison) property(path, name string, a, b *node, required, requiredNow bool) {
	at := member(path, name)
	before, after := propertyOf(a, name), propertyOf(b, name)
	switch {
	case before != nil && after == nil:
		c.removed(at, before)
		return // that it was required is part of that
	case before == nil && after != nil:
		c.added(at, name, a, after, requiredNow && !required)
	case before != nil:
		c.defaults(at, before, after, requiredNow)
		c.compare(at, before, after)
	}
	switch {
	case requiredNow && !required && (before != nil || after == nil):
		c.note(at, narrower, "it is required now")
	case required && !requiredNow:
		c.note(at, wider, "it is not required any more")
	}
}

// removed is a property that the new schema does not declare. Callers may send it and readers may use it, whether or not it still
// may be there.
func (c *comparison) removed(at string, before *node) {
	if c.from.isFalse(before) {
		c.note(at, wider, "it is not forbidden any more")
		return
	}
	c.add(Breaking, at, "the property is removed")
}

// added is a property that was not declared. Where others were admitted, values that it refuses were valid before; they
// meant nothing, so that is not held against it. Only a schema for all other properties was a promise.
func (c *comparison) added(at, name string, a, after *node, required bool) {
	switch {
	case required:
		c.note(at, narrower, "the property is new and required")
	case c.to.isFalse(after):
		c.note(at, narrower, "the property is forbidden now")
	default:
		c.add(Compatible, at, "the property is new")
	}
	for _, p := range a.patterns {
		if p.name.MatchString(name) {
			c.compare(at, p.schema, after)
			return
		}
	}
	if a.additional != nil && a.additional.object != nil {
		c.compare(at, a.additional, after)
	}
}

// defaults compares what is filled in for callers. Answers are not completed.
func (c *comparison) defaults(at string, before, after *node, required bool) {
	was, had := before.object[keyDefault]
	is, has := after.object[keyDefault]
	switch {
	case had == has && compactJSON(was) == compactJSON(is):
	case c.use == Emitted:
		c.add(Editorial, at, "its default changes")
	case !has && required:
		c.add(Breaking, at, "it is required and its default is gone: a call that leaves it out is refused")
	case !has:
		c.add(Compatible, at, "its default is gone: left out, it stays absent")
	default:
		c.add(Compatible, at, "its default changes: left out, it is now "+show(is))
	}
}

func (c *comparison) patterns(path string, a, b *node) {
	find := func(n *node, name string) *node {
		for _, p := range n.patterns {
			if p.name.String() == name {
				return p.schema
			}
		}
		return nil
	}
	names := map[string]bool{}
	for _, n := range []*node{a, b} {
		for _, p := range n.patterns {
			names[p.name.String()] = true
		}
	}
	for _, name := range sortedKeys(names) {
		before, after := find(a, name), find(b, name)
		if before != nil && after != nil {
			c.compare(path+"[/"+name+"/]", before, after)
		} else {
			c.note(path, unclear, "patternProperties are other ones, and what that means cannot be decided")
		}
	}
}

// additional compares what holds for properties that are not declared. That answers may have further ones breaks nobody,
// as no new property does.
func (c *comparison) additional(path string, a, b *node) {
	closed, closedNow := c.from.isFalse(a.additional), c.to.isFalse(b.additional)
	switch {
	case closed && closedNow:
	case closed:
		c.add(Compatible, path, "further properties are allowed now")
	case closedNow:
		c.note(path, narrower, "further properties are not allowed any more")
	default:
		c.compare(path+".*", a.additional, b.additional)
	}
}
