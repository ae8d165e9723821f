package contracts

import (
	"fmt"
	"regexp"
	"strings"

	"agentd/sdk/wire"

	"agentd/sdk"
)

// The severities of findings.
const (
	// Error is what fails, or surprises who relies on the contract.
	Error Severity = "error"
	// Warning is what works worse than it could.
	Warning Severity = "warning"
	// Note is what matters only to some.
	Note Severity = "note"
)

// The rules of Lint; docs/contracts.md explains them.
const (
	ruleSchema       = "schema"
	ruleStep         = "version-step"
	ruleIgnored      = "ignored-keyword"
	ruleUnknown      = "unknown-keyword"
	ruleUnchecked    = "unchecked-format"
	ruleArvoName     = "arvo-name"
	ruleToolName     = "tool-name"
	ruleDescription  = "missing-description"
	ruleRequired     = "missing-required"
	ruleUntyped      = "untyped"
	ruleRoot         = "root-condition"
	rulePropertyName = "property-name"
	ruleDepth        = "deep"
	ruleSize         = "large"
)

// Finding is one thing that Lint found.
type Finding struct {
	Severity Severity `json:"severity"`
	// Rule names the kind of finding and stays the same between releases.
	Rule string `json:"rule"`
	// Path is a JSON path into the contract.
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Lint finds what is wrong or unwise in a contract that can be read. It is pure, and the order of findings is stable.
func Lint(c sdk.Contract) []Finding {
	l := linter{contract: c}
	l.names()
	if strings.TrimSpace(c.Description) == "" {
		l.report(Warning, ruleDescription, "$", "a description is missing: it is what tells a model when to use the contract")
	}
	for _, version := range Versions(c) {
		at := "$.versions[\"" + version + "\"]"
		v := c.Versions[version]
		l.schema(at+".accepts", v.Accepts, true)
		for _, emitted := range sortedKeys(v.Emits) {
			l.schema(at+".emits[\""+emitted+"\"]", v.Emits[emitted], false)
		}
	}
	l.steps()
	return l.findings
}

type linter struct {
	contract sdk.Contract
	findings []Finding
}

func (l *linter) report(severity Severity, rule, path, format string, args ...any) {
	l.findings = append(l.findings, Finding{severity, rule, path, fmt.Sprintf(format, args...)})
}

// The forms that Arvo takes of names.
var (
	arvoType   = regexp.MustCompile(`^[a-z0-9]+(\.[a-z0-9]+){2,}$`)
	arvoDomain = regexp.MustCompile(`^[a-z0-9.]+$`)
)

// arvoReserved begins the types of Arvo's own orchestrators.
const arvoReserved = "arvo.orc"

func (l *linter) names() {
	c := l.contract
	names := map[string]bool{c.Type: true}
	for _, v := range c.Versions {
		for emitted := range v.Emits {
			names[emitted] = true
		}
	}
	var foreign []string
	for _, name := range sortedKeys(names) {
		if !arvoType.MatchString(name) {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		l.report(Note, ruleArvoName, "$.type", "Arvo handlers can neither serve nor call this: their types have at least three parts "+
			"of lower-case letters and digits, such as com.shop.order, unlike %s", strings.Join(foreign, ", "))
	}
	if strings.HasPrefix(c.Type, arvoReserved) {
		l.report(Note, ruleArvoName, "$.type", "types that begin with %s are Arvo's own orchestrators", arvoReserved)
	}
	if c.Domain != "" && !arvoDomain.MatchString(c.Domain) {
		l.report(Note, ruleArvoName, "$.domain", "Arvo handlers want a domain of lower-case letters, digits and dots, not %q", c.Domain)
	}
	if name := ToolName(c.Type); name != wire.NameToken(c.Type) {
		l.report(Warning, ruleToolName, "$.type", "models are shown the name %s: the type is longer than %d characters", name, maxToolName)
	}
}

// steps reports versions that break the ones before them.
func (l *linter) steps() {
	seen := map[string]bool{}
	for _, change := range compareNeighbours(sdk.Contract{}, l.contract) {
		path := "$.versions[\"" + change.To + "\"]"
		switch {
		case change.Severity == Breaking:
			l.report(Error, ruleStep, path, "%s %s: %s (breaks %s)", change.Side, change.Path, change.Message, change.Breaks)
		case change.Side == "" && !seen[change.To]:
			seen[change.To] = true
			l.report(Warning, ruleStep, path, "%s", change.Message)
		}
	}
}

func (l *linter) schema(path string, raw []byte, accepts bool) {
	compiled, faults := objectSchema(raw, path)
	for _, f := range faults {
		l.report(Error, ruleSchema, f.Path, "expected %s, got %s", f.Expected, f.Got)
	}
	if len(faults) > 0 {
		return
	}
	s := schemaLinter{linter: l, tree: compiled.tree, path: path, accepts: accepts}
	s.lint()
	if accepts && len(raw) > maxAdvised {
		l.report(Warning, ruleSize, path, "%d bytes: models read all of it with every request; more than %d are seldom worth it", len(raw), maxAdvised)
	}
}
