package contractlint

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"agentd/internal/contracts"
	"agentd/internal/schema"
	"agentd/internal/toolbox"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// The rules of Lint beside those of schemas; docs/contracts.md explains them.
const (
	ruleSchema   = "schema"
	ruleStep     = "version-step"
	ruleArvoName = "arvo-name"
	ruleToolName = "tool-name"
)

// Lint finds what is wrong or unwise in a contract that can be read. It is pure, and the order of findings is stable.
func Lint(c sdk.Contract) []schema.Finding {
	l := linter{contract: c}
	l.names()
	if strings.TrimSpace(c.Description) == "" {
		l.report(schema.Warning, schema.RuleDescription, "$", "a description is missing: it is what tells a model when to use the contract")
	}
	for _, version := range contracts.Versions(c) {
		at := "$.versions[\"" + version + "\"]"
		v := c.Versions[version]
		if string(v.Accepts) != contracts.DefaultAccepts { // nobody has written it who could describe it
			l.schema(at+".accepts", v.Accepts, schema.Accepted)
		}
		for _, emitted := range slices.Sorted(maps.Keys(v.Emits)) {
			l.schema(at+".emits[\""+emitted+"\"]", v.Emits[emitted], schema.Emitted)
		}
	}
	l.steps()
	return l.findings
}

type linter struct {
	contract sdk.Contract
	findings []schema.Finding
}

func (l *linter) report(severity schema.Severity, rule, path, format string, args ...any) {
	l.findings = append(l.findings, schema.Finding{
		Severity: severity, Rule: rule, Path: path, Message: fmt.Sprintf(format, args...),
	})
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
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !arvoType.MatchString(name) {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		l.report(schema.Note, ruleArvoName, "$.type", "Arvo handlers can neither serve nor call this: their types have at least three parts "+
			"of lower-case letters and digits, such as com.shop.order, unlike %s", strings.Join(foreign, ", "))
	}
	if strings.HasPrefix(c.Type, arvoReserved) {
		l.report(schema.Note, ruleArvoName, "$.type", "types that begin with %s are Arvo's own orchestrators", arvoReserved)
	}
	if c.Domain != "" && !arvoDomain.MatchString(c.Domain) {
		l.report(schema.Note, ruleArvoName, "$.domain", "Arvo handlers want a domain of lower-case letters, digits and dots, not %q", c.Domain)
	}
	if name := toolbox.Name(c.Type); name != wire.NameToken(c.Type) {
		l.report(schema.Warning, ruleToolName, "$.type", "models are shown the name %s: the type is longer than %d characters", name, toolbox.MaxName)
	}
}

// steps reports versions that break the ones before them.
func (l *linter) steps() {
	seen := map[string]bool{}
	for _, change := range compareNeighbours(sdk.Contract{}, l.contract) {
		path := "$.versions[\"" + change.To + "\"]"
		switch {
		case change.Severity == schema.Breaking:
			l.report(schema.Error, ruleStep, path, "%s %s: %s (breaks %s)", change.Side, change.Path, change.Message, change.Breaks)
		case change.Side == "" && !seen[change.To]:
			seen[change.To] = true
			l.report(schema.Warning, ruleStep, path, "%s", change.Message)
		}
	}
}

func (l *linter) schema(path string, raw []byte, use schema.Use) {
	compiled, faults := schema.CompileObject(raw, path)
	for _, f := range faults {
		l.report(schema.Error, ruleSchema, f.Path, "expected %s, got %s", f.Expected, f.Got)
	}
	if len(faults) > 0 {
		return
	}
	for _, f := range schema.Lint(compiled, use) {
		f.Path = path + strings.TrimPrefix(f.Path, "$")
		l.findings = append(l.findings, f)
	}
}
