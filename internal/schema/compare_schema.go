package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentd/sdk"
)

// Severity says how bad a difference or a finding is.
type Severity string

// What a difference means for those who rely on a schema, the worst first.
const (
	// Breaking changes make somebody fail who did nothing wrong. They are not published under a version that the ranges
	// of others already take in.
	Breaking Severity = "breaking"
	// Compatible changes allow or promise more.
	Compatible Severity = "compatible"
	// Editorial changes alter no check: descriptions, titles, examples.
	Editorial Severity = "editorial"
)

// Use says who writes the data that a schema judges.
type Use int

// The uses of a schema.
const (
	// Accepted data comes from others: they are broken where less is valid.
	Accepted Use = iota
	// Emitted data goes to others: they are broken where more is valid.
	Emitted
)

// Difference is one difference between two schemas.
type Difference struct {
	Severity Severity
	// Path is the place in the data, such as "$.flights[*].date".
	Path    string
	Message string
}

// effect is what a change of a schema does to the set of valid values.
type effect int

const (
	wider    effect = iota // more values are valid
	narrower               // fewer are
	unclear                // some of both, or it cannot be decided
)

// maxPairs bounds the pairs of schemas that one comparison looks at.
const maxPairs = 20_000

// comparison collects what differs between two schemas of one side. Keywords are compared one by one: where every one of
// them admits as much as before, so does the schema. What cannot be decided that way counts as breaking.
type comparison struct {
	from, to *tree
	use      Use
	// seen are pairs that were compared, so that recursive schemas come to an end.
	seen        map[[2]*node]bool
	differences []Difference
}

// Compare lists what differs between two schemas of data, in the order of its places. What cannot be decided is Breaking.
func Compare(use Use, from, to json.RawMessage) []Difference {
	c := comparison{use: use, seen: map[[2]*node]bool{}}
	a, errA := Compile(from)
	b, errB := Compile(to)
	for _, err := range []error{errA, errB} {
		if err != nil {
			c.note("$", unclear, "a schema cannot be compared, because it does not compile: "+faultText(err))
		}
	}
	if len(c.differences) > 0 {
		return c.differences
	}
	c.from, c.to = a.tree, b.tree
	if c.from.dialect != c.to.dialect {
		c.add(Editorial, "$", fmt.Sprintf("the dialect changes from %s to %s", metaschemas[c.from.dialect], metaschemas[c.to.dialect]))
	}
	if c.dynamic() {
		c.note("$", unclear, "what changes cannot be told apart: the schema has $dynamicRef or $recursiveRef")
		return c.differences
	}
	c.compare("$", a.tree.root, b.tree.root)
	return c.differences
}

func faultText(err error) string {
	e := sdk.AsError(err)
	if len(e.Faults) > 0 {
		return e.Faults[0].String()
	}
	return e.Message
}

// dynamic reports whether the schemas differ and one has references whose targets depend on the way to them.
func (c *comparison) dynamic() bool {
	for _, t := range []*tree{c.from, c.to} {
		for _, n := range t.nodes {
			if n.object["$dynamicRef"] != nil || n.object["$recursiveRef"] != nil {
				return compactJSON(c.from.doc) != compactJSON(c.to.doc)
			}
		}
	}
	return false
}

func (c *comparison) add(severity Severity, path, message string) {
	c.differences = append(c.differences, Difference{Severity: severity, Path: path, Message: message})
}

// note adds a change by its effect: callers are broken where less is accepted, readers where more is emitted.
func (c *comparison) note(path string, e effect, message string) {
	harmless, consequence := wider, "a call that was valid may be refused"
	if c.use == Emitted {
		harmless, consequence = narrower, "answers may hold what readers do not expect"
	}
	if e == harmless {
		c.add(Compatible, path, message)
		return
	}
	c.add(Breaking, path, message+": "+consequence)
}

// anything is the schema that is not there.
var anything = &node{object: map[string]any{}}

func (c *comparison) compare(path string, a, b *node) {
	if a == nil {
		a = anything
	}
	if b == nil {
		b = anything
	}
	if c.seen[[2]*node{a, b}] || len(c.seen) > maxPairs {
		return
	}
	if len(c.seen) == maxPairs {
		c.note(path, unclear, "the schemas are too entangled to be compared")
	}
	c.seen[[2]*node{a, b}] = true
	c.annotations(path, a, b)
	a, b = c.from.follow(a), c.to.follow(b)
	never, neverNow := c.from.isFalse(a), c.to.isFalse(b)
	switch {
	case never && neverNow:
		return
	case never:
		c.note(path, wider, "values are allowed here now")
		return
	case neverNow:
		c.note(path, narrower, "no value is allowed here any more")
		return
	}
	if !c.types(path, a, b) {
		return // nothing else is comparable
	}
	c.enums(path, a, b)
	c.bounds(path, a, b)
	c.texts(path, a, b)
	c.objects(path, a, b)
	c.arrays(path, a, b)
	c.conjuncts(path, a, b)
	c.alternatives(path, a, b)
	for _, keywords := range undecided {
		c.whole(path, a, b, keywords)
	}
}

// undecided are the keywords, in groups that belong together, of which it is only told whether they are the same.
var undecided = [][]string{
	{keyOneOf},
	{keyNot},
	{"if", "then", "else"},
	{"contains", "minContains", "maxContains"},
	{"propertyNames"},
	{"dependencies"},
	{"dependentRequired"},
	{keyDependent},
	{"unevaluatedItems"},
	{"unevaluatedProperties"},
}

// annotationKeywords judge no value.
var annotationKeywords = []string{
	"title", keyDescription, "examples", "$comment", "deprecated", "readOnly", "writeOnly", "contentMediaType",
	"contentEncoding", "contentSchema",
}

func (c *comparison) annotations(path string, a, b *node) {
	var changed []string
	for _, keyword := range annotationKeywords {
		if compactJSON(a.object[keyword]) != compactJSON(b.object[keyword]) {
			changed = append(changed, keyword)
		}
	}
	if len(changed) > 0 {
		c.add(Editorial, path, "other "+strings.Join(changed, ", "))
	}
}

// follow goes on to what n refers to where nothing else counts beside the reference.
func (t *tree) follow(n *node) *node {
	for n.ref != nil && (t.dialect.legacy() || onlyReference(n.object)) {
		n = n.ref
	}
	return n
}

func onlyReference(object map[string]any) bool {
	for keyword := range object {
		switch keyword {
		case keyRef, keySchema, keyID, keyAnchor, keyDefs, keyDefinitions, keyDefault:
		default:
			if !slices.Contains(annotationKeywords, keyword) {
				return false
			}
		}
	}
	return true
}

func (t *tree) isFalse(n *node) bool {
	if n == nil || n.object != nil {
		return false
	}
	value, _ := lookup(t.doc, n.at)
	allowed, ok := value.(bool)
	return ok && !allowed
}

// below is the schema at a place under n, or nil.
func (t *tree) below(n *node, tokens ...string) *node {
	if n == anything {
		return nil
	}
	return t.nodes[pointer(n.child(tokens...))]
}

// listOf are the schemas of a keyword whose value is a list.
func (t *tree) listOf(n *node, keyword string) []*node {
	values, _ := n.object[keyword].([]any)
	var list []*node
	for i := range values {
		if s := t.below(n, keyword, strconv.Itoa(i)); s != nil {
			list = append(list, s)
		}
	}
	return list
}

// member is the path of a property.
func member(path, name string) string {
	if plainName.MatchString(name) {
		return path + "." + name
	}
	return path + "[" + strconv.Quote(name) + "]"
}

func (c *comparison) arrays(path string, a, b *node) {
	item := func(n *node, i int) *node {
		if i < len(n.prefix) {
			return n.prefix[i]
		}
		return n.items
	}
	for i := range max(len(a.prefix), len(b.prefix)) {
		c.compare(fmt.Sprintf("%s[%d]", path, i), item(a, i), item(b, i))
	}
	c.compare(path+"[*]", a.items, b.items)
}

// conjuncts compares what must hold as well: a reference with keywords beside it, and allOf.
func (c *comparison) conjuncts(path string, a, b *node) {
	list := func(t *tree, n *node) []*node {
		all := t.listOf(n, keyAllOf)
		if n.ref != nil {
			all = append([]*node{n.ref}, all...)
		}
		return all
	}
	all, allNow := list(c.from, a), list(c.to, b)
	if len(all) != len(allNow) {
		all, allNow = c.unmatched(all, allNow)
	}
	switch {
	case len(all) == len(allNow):
		for i := range all {
			c.compare(path, all[i], allNow[i])
		}
	case len(all) == 0:
		c.note(path, narrower, "a further condition must hold (allOf)")
	case len(allNow) == 0:
		c.note(path, wider, "a condition no longer has to hold (allOf)")
	default:
		c.note(path, unclear, "other conditions must hold (allOf)")
	}
}

func (c *comparison) alternatives(path string, a, b *node) {
	before, after := c.from.listOf(a, keyAnyOf), c.to.listOf(b, keyAnyOf)
	switch {
	case len(before) == 0 && len(after) == 0:
		return
	case len(before) == 0:
		c.note(path, narrower, "one of the alternatives of anyOf must fit now")
		return
	case len(after) == 0:
		c.note(path, wider, "no alternative of anyOf has to fit any more")
		return
	}
	gone, added := c.unmatched(before, after)
	switch {
	case len(gone) == len(added):
		for i := range gone {
			c.compare(path, gone[i], added[i])
		}
	case len(gone) == 0:
		c.note(path, wider, "there are further alternatives (anyOf)")
	case len(added) == 0:
		c.note(path, narrower, "there are fewer alternatives (anyOf)")
	default:
		c.note(path, unclear, "there are other alternatives (anyOf)")
	}
}

// unmatched leaves out the schemas that are in both lists.
func (c *comparison) unmatched(before, after []*node) (gone, added []*node) {
	left := slices.Clone(after)
	for _, s := range before {
		i := slices.IndexFunc(left, func(other *node) bool { return sameSchema(c.from, s, c.to, other) })
		if i < 0 {
			gone = append(gone, s)
			continue
		}
		left = slices.Delete(left, i, i+1)
	}
	return gone, left
}

// whole compares keywords that are not looked into.
func (c *comparison) whole(path string, a, b *node, keywords []string) {
	before := slices.ContainsFunc(keywords, func(k string) bool { return a.object[k] != nil })
	after := slices.ContainsFunc(keywords, func(k string) bool { return b.object[k] != nil })
	names := strings.Join(keywords, "/")
	switch {
	case !before && !after:
	case !before:
		c.note(path, narrower, names+" is new")
	case !after:
		c.note(path, wider, names+" is gone")
	case !sameKeywords(c.from, a, c.to, b, keywords):
		c.note(path, unclear, names+" is another one, and what that means cannot be decided")
	}
}
