package schema

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentd/sdk"
)

// baseURI is what references of a schema without $id are relative to. Nothing can be loaded from it.
const baseURI = "agentd:///schema.json"

// node is one schema object or boolean inside a schema document.
type node struct {
	// at locates the node in the document.
	at []string
	// object is nil for a boolean schema.
	object map[string]any
	base   *url.URL
	// ref is what $ref points to; nil also for a reference to a metaschema.
	ref *node

	properties []property // sorted by name
	patterns   []pattern
	additional *node
	prefix     []*node
	items      *node
	allOf      []*node
	// alternatives apply to the same value as the node, but not in every case.
	alternatives []*node
	// dynamic are what $dynamicRef or $recursiveRef may lead to.
	dynamic []*node
	// parts are of keywords that apply to some or all of a value's members or items: contains, unevaluatedItems,
	// unevaluatedProperties. names are of propertyNames.
	parts, names []*node
	// fallback is the default of a property that has the schema, or nil.
	fallback json.RawMessage
	cost     cost
}

// inPlace are the schemas that apply to the same value as the node.
func (n *node) inPlace() []*node {
	all := slices.Concat(n.allOf, n.alternatives, n.dynamic)
	if n.ref != nil {
		all = append(all, n.ref)
	}
	return all
}

type property struct {
	name   string
	schema *node
}

type pattern struct {
	name   *regexp.Regexp
	size   int
	schema *node
}

// tree is a schema document as a graph, for what validators do not offer: references that leave the document or that
// never end are found before anything is compiled, and defaults are looked up.
type tree struct {
	dialect dialect
	doc     any
	root    *node
	nodes   map[string]*node // by JSON pointer
	// resources are the schemas with an id by absolute URI, anchors the named places by URI and fragment.
	resources, anchors map[string]*node
	// pending are nodes whose $ref is not resolved yet.
	pending []*node
	// hasDefaults says that some node has a default, extends that one refers to the metaschema.
	hasDefaults, extends bool
	// ordered are the nodes, each behind those that it applies to the same value.
	ordered []*node
	// patternSize is what the patterns come to so far.
	patternSize int
	faults      []sdk.Fault
	// excess is what passes a bound: the schema is not looked at any further.
	excess []sdk.Fault
}

// newTree reads doc and reports every reference that cannot be followed inside it.
func newTree(doc any, d dialect) (*tree, []sdk.Fault) {
	t := &tree{
		dialect: d, doc: doc,
		nodes: map[string]*node{}, resources: map[string]*node{}, anchors: map[string]*node{},
	}
	base := &url.URL{Scheme: "agentd", Path: "/schema.json"}
	t.root = t.add(doc, nil, base)
	t.resources[baseURI] = t.root
	for len(t.pending) > 0 {
		n := t.pending[0]
		t.pending = t.pending[1:]
		t.resolve(n)
	}
	if len(t.nodes) > maxSubschemas {
		t.excess = append(t.excess, sdk.Fault{
			Path: "$", Expected: fmt.Sprintf("at most %d schemas in it", maxSubschemas), Got: strconv.Itoa(len(t.nodes)),
		})
	}
	if len(t.faults) == 0 && len(t.excess) == 0 {
		t.resolveDynamic()
		t.checkCycles()
	}
	if len(t.faults) == 0 && len(t.excess) == 0 {
		t.checkExpansion()
		t.findDefaults()
	}
	return t, t.faults
}

func (t *tree) fault(at []string, expected string, got any) {
	t.faults = append(t.faults, sdk.Fault{Path: pathOf(t.doc, at), Expected: expected, Got: show(got)})
}

// add reads the schema at a place of the document, and what is below it.
func (t *tree) add(raw any, at []string, base *url.URL) *node {
	n := &node{at: at, base: base}
	t.nodes[pointer(at)] = n
	object, ok := raw.(map[string]any)
	if !ok {
		return n
	}
	n.object = object
	if _, ok := object[keyRef].(string); ok {
		t.pending = append(t.pending, n)
		if t.dialect.legacy() {
			return n
		}
	}
	t.identify(n)
	if _, ok := object[keyDefault]; ok {
		t.hasDefaults = true
	}
	if nested, ok := object[keySchema].(string); ok && len(at) > 0 {
		if d, fault := dialectOf(object); fault != nil || d != t.dialect {
			t.fault(n.child(keySchema), "the dialect of the whole document", nested)
		}
	}
	t.addPattern(n)
	t.addApplicators(n)
	t.addRest(n)
	return n
}

// identify registers the node's id and anchors.
func (t *tree) identify(n *node) {
	if id, ok := n.object[t.dialect.idKeyword()].(string); ok {
		if name, isAnchor := strings.CutPrefix(id, "#"); isAnchor && t.dialect.legacy() {
			t.anchors[key(n.base)+"#"+name] = n
		} else if u, err := n.base.Parse(id); err == nil {
			u.Fragment = ""
			n.base = u
			t.resources[key(u)] = n
		} else {
			t.fault(n.child(t.dialect.idKeyword()), "a URI", id)
		}
	}
	if t.dialect.legacy() {
		return
	}
	for _, keyword := range []string{keyAnchor, "$dynamicAnchor"} {
		if name, ok := n.object[keyword].(string); ok {
			t.anchors[key(n.base)+"#"+name] = n
		}
	}
}

// addApplicators reads the keywords that decide which schema applies to which part of a value.
func (t *tree) addApplicators(n *node) {
	n.properties = t.each(n, keyProperties)
	for _, e := range t.each(n, "patternProperties") {
		if name, size := t.compilePattern(e.schema.at, e.name); name != nil {
			n.patterns = append(n.patterns, pattern{name, size, e.schema})
		}
	}
	n.additional = t.one(n, "additionalProperties")
	n.allOf = t.list(n, keyAllOf)
	if t.dialect == draft2020 {
		n.prefix, n.items = t.list(n, "prefixItems"), t.one(n, keyItems)
	} else if n.prefix = t.list(n, keyItems); n.prefix != nil {
		n.items = t.one(n, "additionalItems")
	} else {
		n.items = t.one(n, keyItems)
	}
	for _, keyword := range []string{keyAnyOf, keyOneOf} {
		n.alternatives = append(n.alternatives, t.list(n, keyword)...)
	}
	for _, keyword := range []string{keyNot, "if", "then", "else"} {
		if s := t.one(n, keyword); s != nil {
			n.alternatives = append(n.alternatives, s)
		}
	}
	for _, keyword := range []string{"dependencies", keyDependent} {
		for _, e := range t.each(n, keyword) {
			n.alternatives = append(n.alternatives, e.schema)
		}
	}
}

// addRest reads the places where schemas stand that neither pass on defaults nor can make a cycle.
func (t *tree) addRest(n *node) {
	for _, keyword := range []string{"contains", "unevaluatedItems", "unevaluatedProperties"} {
		if s := t.one(n, keyword); s != nil {
			n.parts = append(n.parts, s)
		}
	}
	if s := t.one(n, "propertyNames"); s != nil {
		n.names = []*node{s}
	}
	t.one(n, "contentSchema")
	for _, keyword := range []string{keyDefinitions, keyDefs} {
		t.each(n, keyword)
	}
}

func (n *node) child(tokens ...string) []string {
	return append(slices.Clip(n.at), tokens...)
}

func isSchema(raw any) bool {
	switch raw.(type) {
	case map[string]any, bool:
		return true
	default:
		return false
	}
}

func (t *tree) one(n *node, keyword string) *node {
	raw := n.object[keyword]
	if !isSchema(raw) {
		return nil
	}
	return t.add(raw, n.child(keyword), n.base)
}

func (t *tree) list(n *node, keyword string) []*node {
	raws, ok := n.object[keyword].([]any)
	if !ok {
		return nil
	}
	nodes := make([]*node, 0, len(raws))
	for i, raw := range raws {
		nodes = append(nodes, t.add(raw, n.child(keyword, strconv.Itoa(i)), n.base))
	}
	return nodes
}

func (t *tree) each(n *node, keyword string) []property {
	raws, _ := n.object[keyword].(map[string]any)
	var entries []property
	for _, name := range sortedKeys(raws) {
		if isSchema(raws[name]) {
			entries = append(entries, property{name, t.add(raws[name], n.child(keyword, name), n.base)})
		}
	}
	return entries
}

// resolve finds what the $ref of n points to.
func (t *tree) resolve(n *node) {
	ref, _ := n.object[keyRef].(string)
	at := n.child(keyRef)
	u, err := n.base.Parse(ref)
	if err != nil {
		t.fault(at, "a URI reference", ref)
		return
	}
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	resource, ok := t.resources[key(u)]
	switch {
	case !ok && isMetaschema(key(u)):
		t.extends, n.cost.metaschema = true, true
	case !ok:
		t.fault(at, "a reference inside this document: nothing is loaded from elsewhere", ref)
	case fragment == "":
		n.ref = resource
	case strings.HasPrefix(fragment, "/"):
		if n.ref = t.lookup(resource, fragment); n.ref == nil {
			t.fault(at, "a reference to a schema that exists", ref)
		}
	default:
		if n.ref = t.anchors[key(u)+"#"+fragment]; n.ref == nil {
			t.fault(at, "a reference to an anchor that exists", ref)
		}
	}
}

// lookup follows a JSON pointer from a resource. It may lead to a place that no keyword makes a schema.
func (t *tree) lookup(resource *node, ptr string) *node {
	at := resource.child(pointerTokens(ptr)...)
	if n, ok := t.nodes[pointer(at)]; ok {
		return n
	}
	raw, ok := lookup(t.doc, at)
	if !ok || !isSchema(raw) {
		return nil
	}
	return t.add(raw, at, resource.base)
}

// checkCycles refuses schemas that apply to a value by way of themselves: validating it would never end. It puts the
// others in order.
func (t *tree) checkCycles() {
	const open, closed = 1, 2
	state := map[*node]int{}
	var visit func(n *node) *node
	visit = func(n *node) *node {
		if state[n] == closed {
			return nil
		}
		if state[n] == open {
			return n
		}
		state[n] = open
		for _, next := range n.inPlace() {
			if again := visit(next); again != nil {
				return again
			}
		}
		state[n] = closed
		n.cost.order = len(t.ordered)
		t.ordered = append(t.ordered, n)
		return nil
	}
	for _, ptr := range sortedKeys(t.nodes) {
		if again := visit(t.nodes[ptr]); again != nil {
			t.fault(again.at, "a schema that does not apply itself to the same value", again.object)
			return
		}
	}
}

func key(u *url.URL) string {
	c := *u
	c.Fragment, c.RawFragment = "", ""
	return c.String()
}

// The escapes of JSON pointers.
var (
	escaper   = strings.NewReplacer("~", "~0", "/", "~1")
	unescaper = strings.NewReplacer("~1", "/", "~0", "~")
)

// pointerTokens takes a JSON pointer apart.
func pointerTokens(ptr string) []string {
	tokens := strings.Split(ptr, "/")[1:]
	for i, token := range tokens {
		tokens[i] = unescaper.Replace(token)
	}
	return tokens
}

func pointer(at []string) string {
	var b strings.Builder
	for _, token := range at {
		b.WriteString("/" + escaper.Replace(token))
	}
	return b.String()
}
