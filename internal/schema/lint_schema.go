package schema

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/spelling"
	"agentd/sdk"
)

// The severities of findings.
const (
	// Error is what fails, or surprises who relies on the schema.
	Error Severity = "error"
	// Warning is what works worse than it could.
	Warning Severity = "warning"
	// Note is what matters only to some.
	Note Severity = "note"
)

// The rules that others ask for: RuleDescription is that of what models should be told and are not, RuleUnknown that of keywords which
// check nothing.
const (
	RuleDescription = "missing-description"
	RuleUnknown     = "unknown-keyword"
)

// The other rules; docs/contracts.md explains them.
const (
	ruleIgnored      = "ignored-keyword"
	ruleUnchecked    = "unchecked-format"
	ruleRequired     = "missing-required"
	ruleUndeclared   = "undeclared-required"
	ruleDefault      = "unfit-default"
	ruleUntyped      = "untyped"
	ruleRoot         = "root-condition"
	rulePropertyName = "property-name"
	ruleDepth        = "deep"
	ruleSize         = "large"
)

// Finding is one thing that is wrong or unwise.
type Finding struct {
	Severity Severity `json:"severity"`
	// Rule names the kind of finding and stays the same between releases.
	Rule string `json:"rule"`
	// Path is a JSON path into what was linted.
	Path    string `json:"path"`
	Message string `json:"message"`
}

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
	*tree
	findings []Finding
}

// Lint finds what is wrong or unwise in a schema, in a stable order. Models write what is Accepted.
func Lint(s *Schema, use Use) []Finding {
	l := schemaLinter{tree: s.tree}
	for _, ptr := range sortedKeys(l.nodes) {
		n := l.nodes[ptr]
		for _, keyword := range sortedKeys(n.object) {
			l.keyword(n, keyword)
		}
		if n.ref != nil && l.dialect.legacy() {
			l.besideReference(n)
		}
		l.required(n)
		l.initial(n)
		if use == Accepted {
			l.forModels(n)
		}
	}
	if use == Accepted {
		l.whole(len(s.raw))
	}
	return l.findings
}

func (l *schemaLinter) report(severity Severity, rule string, at []string, format string, args ...any) {
	l.findings = append(l.findings, Finding{severity, rule, pathOf(l.doc, at), fmt.Sprintf(format, args...)})
}

func (l *schemaLinter) keyword(n *node, keyword string) {
	at := n.child(keyword)
	counts, known := since[keyword]
	switch {
	case !known && strings.HasPrefix(keyword, "x-"):
	case !known:
		l.report(Warning, RuleUnknown, at, "no dialect of JSON Schema knows %q, so it checks nothing%s", keyword, likely(keyword))
	case l.dialect < counts[0]:
		l.report(Error, ruleIgnored, at, "%s checks nothing in this dialect: it came with %s", keyword, metaschemas[counts[0]])
	case l.dialect > counts[1]:
		l.report(Error, ruleIgnored, at, "%s checks nothing in this dialect: it was given up after %s", keyword, metaschemas[counts[1]])
	case keyword == keyFormat && !l.dialect.assertsFormats():
		l.report(Warning, ruleUnchecked, at, "this dialect does not check formats: a pattern would be checked")
	case keyword == keyFormat && !checkedFormat(n.object[keyword]):
		l.report(Warning, ruleUnchecked, at, "the format %s is not known and not checked", show(n.object[keyword]))
	}
}

// required reports what is required although nobody can know what it is.
func (l *schemaLinter) required(n *node) {
	raw, err := json.Marshal(n.object)
	declared := Properties(raw)
	names, ok := n.object[keyRequired].([]any)
	if err != nil || !ok || len(declared) == 0 {
		return
	}
	for i, name := range names {
		name, _ := name.(string)
		if _, known := declared[name]; !known {
			l.report(Error, ruleUndeclared, append(n.child(keyRequired), strconv.Itoa(i)), "%q is required, and is not a property%s",
				name, spelling.Suggest(name, sortedKeys(declared)))
		}
	}
}

// initial reports a default that does not fit the schema that it is of, as far as that does not refer to others.
func (l *schemaLinter) initial(n *node) {
	value, ok := n.object[keyDefault]
	if !ok {
		return
	}
	raw, err := json.Marshal(n.object)
	if err != nil {
		return
	}
	alone, err := Compile(raw)
	if err != nil {
		return // it is a part of something larger
	}
	given, err := json.Marshal(value)
	if err != nil {
		return
	}
	for _, f := range alone.Validate(given) {
		l.report(Error, ruleDefault, n.child(keyDefault), "the default does not fit: expected %s, got %s", f.Expected, f.Got)
	}
}

// besideReference reports what the older dialects ignore.
func (l *schemaLinter) besideReference(n *node) {
	for _, keyword := range sortedKeys(n.object) {
		switch keyword {
		case keyRef, keyDefs, keyDefinitions, keySchema, keyID, "id", keyDefault:
		default:
			if !slices.Contains(annotationKeywords, keyword) {
				l.report(Error, ruleIgnored, n.child(keyword), "%s checks nothing: in this dialect nothing counts beside $ref", keyword)
			}
		}
	}
}

// likely names the keyword that may have been meant.
func likely(keyword string) string {
	best, least := "", 3
	for _, known := range sortedKeys(since) {
		if d := spelling.Distance(strings.ToLower(keyword), strings.ToLower(known)); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return ""
	}
	return "; " + best + " may be meant"
}

// forModels reports what makes models call a contract wrongly.
func (l *schemaLinter) forModels(n *node) {
	for _, p := range n.properties {
		if p.name == sdk.ParentSubjectField && n == l.follow(l.root) {
			continue // no model sees it
		}
		at := p.schema.at
		if !propertyName.MatchString(p.name) {
			l.report(Warning, rulePropertyName, at, "some providers refuse the name %q: they want letters, digits, _, - and ., at most 64", p.name)
		}
		target := l.follow(p.schema)
		if p.schema.object[keyDescription] == nil && target.object[keyDescription] == nil {
			l.report(Warning, RuleDescription, at, "a description is missing: a model has to guess what belongs here")
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
func (l *schemaLinter) whole(size int) {
	root := l.follow(l.root)
	if len(root.properties) > 0 && root.object[keyRequired] == nil {
		l.report(Warning, ruleRequired, nil, "nothing is required: a call without any data is valid")
	}
	for _, keyword := range rootConditions {
		if _, ok := root.object[keyword]; ok {
			l.report(Warning, ruleRoot, root.child(keyword),
				"providers refuse %s at the root: models are told of it in the tool's description, which they follow less well", keyword)
		}
	}
	deepest, properties := 0, 0
	for _, n := range l.nodes {
		properties += len(n.properties)
		deepest = max(deepest, l.levels(n))
	}
	if deepest > advisedDepth {
		l.report(Warning, ruleDepth, nil, "objects nest %d levels deep; models make mistakes below %d", deepest, advisedDepth)
	}
	if properties > advisedProperties {
		l.report(Warning, ruleDepth, nil, "there are %d properties; more than %d are more than models handle well", properties, advisedProperties)
	}
	if size > maxAdvised {
		l.report(Warning, ruleSize, nil, "%d bytes: models read all of it with every request; more than %d are seldom worth it", size, maxAdvised)
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
