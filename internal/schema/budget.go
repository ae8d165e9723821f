package schema

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"agentd/sdk"
)

// The validators have no budget of their own, and no memory of what they have checked: a schema of a few kilobytes can make
// them check one value 2^40 times, and keep an error each time. What a document takes is therefore counted before it is
// validated, with every schema and value counted together once.
const (
	// maxSchemaValues bounds the JSON values in a schema, maxSubschemas the schemas among them: each takes some 2 KB of memory.
	maxSchemaValues = 20_000
	maxSubschemas   = 5000
	// maxExpansion is how many schemas may apply to one value, each counted as often as anyOf, allOf and the like and their
	// references lead to it. A schema with more is refused when it is compiled.
	maxExpansion = 10_000
	// maxChecks is how many checks a document may take: one for every schema that applies to every value in it, and more for
	// those that look at much. Each may leave an error of 1 KB behind.
	maxChecks = 100_000
)

// What costs as much as one check.
const (
	bytesPerCheck  = 64   // of values that are compared
	namesPerCheck  = 16   // that are looked up
	levelsPerCheck = 16   // of nesting, which errors repeat
	stepsPerCheck  = 4096 // of a regular expression
	metaPerValue   = 32   // of a value that must be a schema
)

// cost is what is known of a node's cost before there is a value.
type cost struct {
	// order is the node's place in tree.ordered.
	order int
	// inPlace are the schemas that the node applies to the same value.
	inPlace []*node
	// expansion is how many schemas the node applies to a value, itself included.
	expansion int
	// pattern is the size of its regular expression.
	pattern int
	// metaschema says that it refers to a metaschema.
	metaschema bool
}

// resolveDynamic finds what $dynamicRef and $recursiveRef may lead to. The way to them begins at the root, so an anchor
// there decides; else every anchor of the name may be meant.
func (t *tree) resolveDynamic() {
	if t.dialect.legacy() {
		return
	}
	anchored := map[string][]*node{}
	for _, ptr := range sortedKeys(t.nodes) {
		n := t.nodes[ptr]
		if name, ok := n.object["$dynamicAnchor"].(string); ok && t.dialect == draft2020 {
			anchored["#"+name] = append(anchored["#"+name], n)
		}
		if n.object["$recursiveAnchor"] == true && t.dialect == draft2019 {
			anchored["#"] = append(anchored["#"], n)
		}
	}
	for _, name := range []string{"#meta", "#"} {
		if targets := anchored[name]; len(targets) > 0 && t.extends {
			t.excess = append(t.excess, sdk.Fault{
				Path: pathOf(t.doc, targets[0].at), Expected: "no schema that extends the metaschema: how often it is applied cannot be bounded",
				Got: show(targets[0].object),
			})
		}
	}
	for _, ptr := range sortedKeys(t.nodes) {
		n := t.nodes[ptr]
		if ref, ok := n.object["$dynamicRef"].(string); ok && t.dialect == draft2020 {
			n.dynamic = t.dynamicTargets(n, ref, anchored)
		} else if ref, ok := n.object["$recursiveRef"].(string); ok && t.dialect == draft2019 {
			n.dynamic = t.dynamicTargets(n, ref, anchored)
		}
	}
}

func (t *tree) dynamicTargets(n *node, ref string, anchored map[string][]*node) []*node {
	u, err := n.base.Parse(ref)
	if err != nil {
		return nil
	}
	fragment := u.Fragment
	u.Fragment, u.RawFragment = "", ""
	if isMetaschema(key(u)) {
		n.cost.metaschema = true
		return nil
	}
	if strings.HasPrefix(fragment, "/") {
		if resource := t.resources[key(u)]; resource != nil {
			return slices.DeleteFunc([]*node{t.nodes[pointer(resource.child(pointerTokens(fragment)...))]}, isNil)
		}
		return nil
	}
	targets := anchored["#"+fragment]
	if i := slices.IndexFunc(targets, func(target *node) bool { return sameBase(target.base, t.root.base) }); i >= 0 {
		return targets[i : i+1]
	}
	static := t.anchors[key(u)+"#"+fragment]
	if fragment == "" {
		static = t.resources[key(u)]
	}
	if static != nil && !slices.Contains(targets, static) {
		return []*node{static} // an ordinary anchor: nothing is dynamic
	}
	return targets
}

func isNil(n *node) bool { return n == nil }

func sameBase(a, b *url.URL) bool { return key(a) == key(b) }

// checkExpansion refuses a schema of which too much applies to one value.
func (t *tree) checkExpansion() {
	for _, n := range t.ordered {
		n.cost.inPlace, n.cost.expansion = n.inPlace(), 1
		for _, next := range n.cost.inPlace {
			n.cost.expansion += next.cost.expansion
		}
		if n.cost.expansion > maxExpansion {
			t.excess = append(t.excess, sdk.Fault{
				Path: pathOf(t.doc, n.at), Got: fmt.Sprintf("%d, with every reference and branch followed", n.cost.expansion),
				Expected: fmt.Sprintf("at most %d schemas that apply to one value", maxExpansion),
			})
			return
		}
	}
}

// affordable reports a document that takes more than maxChecks.
func (t *tree) affordable(doc any) *sdk.Fault {
	a := account{left: maxChecks}
	a.charge(doc, 0, applications{{t.root, 1}})
	if a.left >= 0 {
		return nil
	}
	return &sdk.Fault{
		Path: "$", Expected: fmt.Sprintf("a document that its schema judges with at most %d checks", maxChecks),
		Got: "one that takes more: it is too large, or too deep for alternatives that refer to each other",
	}
}

// account is what is left of the checks of one document; below zero it is overdrawn.
type account struct{ left int }

// charge pays for a value and all in it that a schema applies to.
func (a *account) charge(value any, depth int, schemas applications) {
	if len(schemas) == 0 {
		return
	}
	schemas = schemas.complete()
	for _, s := range schemas {
		if a.pay(s.times, s.schema.checks(value)+depth/levelsPerCheck); a.left < 0 {
			return
		}
	}
	switch value := value.(type) {
	case map[string]any:
		names := schemas.below(func(n *node) []*node { return n.names })
		for name, member := range value {
			if len(names) > 0 {
				a.charge(name, depth+1, names)
			}
			below := schemas.below(func(n *node) []*node { return append(propertySchemas([]*node{n}, name), n.parts...) })
			if a.charge(member, depth+1, below); a.left < 0 {
				return
			}
		}
	case []any:
		for i, item := range value {
			below := schemas.below(func(n *node) []*node { return append(itemSchemas([]*node{n}, i), n.parts...) })
			if a.charge(item, depth+1, below); a.left < 0 {
				return
			}
		}
	}
}

func (a *account) pay(times, checks int) {
	if checks > maxChecks || times*checks > a.left {
		a.left = -1
		return
	}
	a.left -= times * checks
}

// application is a schema that applies to a value, with how often it is checked.
type application struct {
	schema *node
	times  int
}

type applications []application

func (a applications) add(schema *node, times int) applications {
	for i := range a {
		if a[i].schema == schema {
			a[i].times = min(a[i].times+times, maxChecks+1)
			return a
		}
	}
	return append(a, application{schema, times})
}

// complete adds the schemas that those apply to the same value.
func (a applications) complete() applications {
	if !slices.ContainsFunc(a, func(s application) bool { return len(s.schema.cost.inPlace) > 0 }) {
		return a
	}
	all := slices.Clone(a)
	for i := 0; i < len(all); i++ {
		for _, next := range all[i].schema.cost.inPlace {
			all = all.add(next, 0)
		}
	}
	slices.SortFunc(all, func(s, t application) int { return cmp.Compare(t.schema.cost.order, s.schema.cost.order) })
	for i := range all { // all that lead to a schema stand before it
		for _, next := range all[i].schema.cost.inPlace {
			all = all.add(next, all[i].times)
		}
	}
	return all
}

// below are the schemas that apply to a part of the value.
func (a applications) below(parts func(*node) []*node) applications {
	var all applications
	for _, s := range a {
		for _, part := range parts(s.schema) {
			all = all.add(part, s.times)
		}
	}
	return all
}

// checks is what the node itself costs with a value; what is in the value is not counted.
func (n *node) checks(value any) int {
	checks := 1
	for _, keyword := range []string{"enum", "const"} {
		if allowed, ok := n.object[keyword]; ok {
			checks += (sizeOf(allowed) + sizeOf(value)) / bytesPerCheck
		}
	}
	if n.cost.metaschema {
		checks += metaPerValue * countValues(value)
	}
	switch value := value.(type) {
	case string:
		checks += n.cost.pattern * len(value) / stepsPerCheck
	case []any:
		if n.object["uniqueItems"] == true {
			checks += len(value) + sizeOf(value)/bytesPerCheck
		}
		checks += len(value) / namesPerCheck
	case map[string]any:
		checks += (len(value)+len(n.properties))/namesPerCheck + missing(value, n.object[keyRequired])
		for _, p := range n.patterns {
			for name := range value {
				checks += p.size * len(name) / stepsPerCheck
			}
		}
		for _, keyword := range []string{"dependencies", "dependentRequired"} {
			dependencies, _ := n.object[keyword].(map[string]any)
			for name := range dependencies {
				if _, ok := value[name]; ok {
					checks += missing(value, dependencies[name])
				}
			}
		}
	}
	return checks
}

// missing counts the required names that are not there, each an error, and the others for being looked up.
func missing(object map[string]any, required any) int {
	names, _ := required.([]any)
	count := len(names) / namesPerCheck
	for _, name := range names {
		text, _ := name.(string)
		if _, ok := object[text]; !ok {
			count++
		}
	}
	return count
}

// countValues counts a JSON value and all in it.
func countValues(value any) int {
	count := 1
	switch value := value.(type) {
	case map[string]any:
		for _, member := range value {
			count += countValues(member)
		}
	case []any:
		for _, item := range value {
			count += countValues(item)
		}
	}
	return count
}

// sizeOf is about as many bytes as a JSON value has.
func sizeOf(value any) int {
	switch value := value.(type) {
	case string:
		return len(value) + 2
	case json.Number:
		return len(value)
	case map[string]any:
		size := 2
		for name, member := range value {
			size += len(name) + 4 + sizeOf(member)
		}
		return size
	case []any:
		size := 2
		for _, item := range value {
			size += 1 + sizeOf(item)
		}
		return size
	default:
		return 5
	}
}
