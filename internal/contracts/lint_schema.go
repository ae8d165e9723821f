package contracts

import (
	"regexp"
	"slices"
	"strings"

	"agentd/sdk"
)

const (
	// advisedDepth and advisedProperties are what models and the stricter providers handle well: levels of objects, and
	// properties in all.
	advisedDepth      = 5
	advisedProperties = 100
	// maxAdvised is in bytes.
	maxAdvised = 16 << 10
)

// since says in which dialects a keyword counts: from, and up to where it was given up. Keywords that are not listed are
// unknown.
var since = func() map[string][2]dialect {
	dialects := map[string][2]dialect{}
	add := func(first, last dialect, keywords ...string) {
		for _, k := range keywords {
			dialects[k] = [2]dialect{first, last}
		}
	}
	add(draft4, draft2020, annotationKeywords...)
	add(draft4, draft2020, sharedKeywords...)
	add(draft4, draft2020, keyFormat, keyRef, "$comment")
	add(draft4, draft4, "id")
	add(draft4, draft2019, "additionalItems")
	add(draft4, draft2020, "dependencies") // given up in 2019-09, but checked all the same
	add(draft6, draft2020, keyID, "const", "contains", "propertyNames", "examples")
	add(draft7, draft2020, "if", "then", "else")
	add(draft2019, draft2020, keyAnchor, "dependentRequired", keyDependent, "minContains", "maxContains",
		"unevaluatedItems", "unevaluatedProperties", "$vocabulary")
	add(draft2019, draft2019, "$recursiveRef", "$recursiveAnchor")
	add(draft2020, draft2020, "prefixItems", "$dynamicRef", "$dynamicAnchor")
	return dialects
}()

// propertyName is what all providers take.
var propertyName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

type schemaLinter struct {
	*linter
	*tree
	path    string
	accepts bool
}

// at is the path of a place in the schema.
func (l *schemaLinter) at(place []string) string {
	return l.path + strings.TrimPrefix(pathOf(l.doc, place), "$")
}

func (l *schemaLinter) lint() {
	for _, ptr := range sortedKeys(l.nodes) {
		n := l.nodes[ptr]
		for _, keyword := range sortedKeys(n.object) {
			l.keyword(n, keyword)
		}
		if n.ref != nil && l.dialect.legacy() {
			l.besideReference(n)
		}
		if l.accepts {
			l.forModels(n)
		}
	}
	if l.accepts {
		l.whole()
	}
}

func (l *schemaLinter) keyword(n *node, keyword string) {
	at := l.at(n.child(keyword))
	counts, known := since[keyword]
	switch {
	case !known && strings.HasPrefix(keyword, "x-"):
	case !known:
		l.report(Warning, ruleUnknown, at, "no dialect of JSON Schema knows %q, so it checks nothing%s", keyword, likely(keyword))
	case l.dialect < counts[0]:
		l.report(Error, ruleIgnored, at, "%s checks nothing in this dialect: it came with %s", keyword, metaschemas[counts[0]])
	case l.dialect > counts[1]:
		l.report(Error, ruleIgnored, at, "%s checks nothing in this dialect: it was given up after %s", keyword, metaschemas[counts[1]])
	case keyword == keyFormat && !l.dialect.legacy():
		l.report(Warning, ruleUnchecked, at, "this dialect does not check formats: a pattern would be checked")
	case keyword == keyFormat && !checkedFormat(n.object[keyword]):
		l.report(Warning, ruleUnchecked, at, "the format %s is not known and not checked", show(n.object[keyword]))
	}
}

// besideReference reports what the older dialects ignore.
func (l *schemaLinter) besideReference(n *node) {
	for _, keyword := range sortedKeys(n.object) {
		switch keyword {
		case keyRef, keyDefs, keyDefinitions, keySchema, keyID, "id", keyDefault:
		default:
			if !slices.Contains(annotationKeywords, keyword) {
				l.report(Error, ruleIgnored, l.at(n.child(keyword)), "%s checks nothing: in this dialect nothing counts beside $ref", keyword)
			}
		}
	}
}

// likely names the keyword that may have been meant.
func likely(keyword string) string {
	best, least := "", 3
	for _, known := range sortedKeys(since) {
		if d := editDistance(strings.ToLower(keyword), strings.ToLower(known)); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return ""
	}
	return "; " + best + " may be meant"
}

// editDistance counts the letters to insert, delete or replace.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// forModels reports what makes models call a contract wrongly.
func (l *schemaLinter) forModels(n *node) {
	for _, p := range n.properties {
		if p.name == sdk.ParentSubjectField && n == l.follow(l.root) {
			continue // no model sees it
		}
		at := l.at(p.schema.at)
		if !propertyName.MatchString(p.name) {
			l.report(Warning, rulePropertyName, at, "some providers refuse the name %q: they want letters, digits, _, - and ., at most 64", p.name)
		}
		target := l.follow(p.schema)
		if p.schema.object[keyDescription] == nil && target.object[keyDescription] == nil {
			l.report(Warning, ruleDescription, at, "a description is missing: a model has to guess what belongs here")
		}
		if !typed(target) {
			l.report(Warning, ruleUntyped, at, "a type is missing: a model may send anything")
		}
	}
}

func typed(n *node) bool {
	for _, keyword := range []string{keyType, "enum", "const", keyRef, keyAnyOf, keyOneOf, keyAllOf, "$dynamicRef"} {
		if n.object[keyword] != nil {
			return true
		}
	}
	return n.object == nil
}

// whole reports on the schema of a call as a whole.
func (l *schemaLinter) whole() {
	root := l.follow(l.root)
	if len(root.properties) > 0 && root.object[keyRequired] == nil {
		l.report(Warning, ruleRequired, l.path, "nothing is required: a call without any data is valid")
	}
	for _, keyword := range rootConditions {
		if _, ok := root.object[keyword]; ok {
			l.report(Warning, ruleRoot, l.at(root.child(keyword)),
				"providers refuse %s at the root: models are told of it in the tool's description, which they follow less well", keyword)
		}
	}
	deepest, properties := 0, 0
	for _, n := range l.nodes {
		properties += len(n.properties)
		deepest = max(deepest, l.levels(n))
	}
	if deepest > advisedDepth {
		l.report(Warning, ruleDepth, l.path, "objects nest %d levels deep; models make mistakes below %d", deepest, advisedDepth)
	}
	if properties > advisedProperties {
		l.report(Warning, ruleDepth, l.path, "there are %d properties; more than %d are more than models handle well", properties, advisedProperties)
	}
}

// levels counts the objects around and including a schema.
func (l *schemaLinter) levels(n *node) int {
	count := 0
	for i := range len(n.at) + 1 {
		if outer, ok := l.nodes[pointer(n.at[:i])]; ok && len(outer.properties) > 0 {
			count++
		}
	}
	return count
}
