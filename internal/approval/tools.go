package approval

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentd/internal/contracts"
	"agentd/internal/spelling"
	"agentd/internal/toolbox"
	"agentd/internal/toolpattern"
	"agentd/sdk"
)

// Tools are the tools of an agent, as far as they are known. A policy that is about tools, or arguments, that there are not protects
// nothing: that is an error, and not silence.
type Tools struct {
	box *toolbox.Toolbox
	// names are what models call them by, also of those that are not in the box.
	names []string
	// unread are those of the names whose arguments are not known.
	unread []string
	// unknown are the prefixes of names of tools that are not known.
	unknown []string
	// services are those of the names that call a service.
	services []service
}

// service is the tool of a contract.
type service struct{ tool, contractType string }

// ToolsOf are the tools in the box and those of the spec's services whose contracts are looked up later. unknown are the prefixes of the
// names of tools whose toolsets have not listed them.
func ToolsOf(spec *sdk.AgentSpec, box *toolbox.Toolbox, unknown []string) Tools {
	t := Tools{box: box, unknown: slices.Clone(unknown)}
	for _, tool := range box.All() {
		t.names = append(t.names, tool.Name)
		if tool.Kind == toolbox.Service {
			t.services = append(t.services, service{tool.Name, tool.Contract.Type})
		}
	}
	for _, s := range spec.Services {
		if s.Context != nil || !contracts.IsReference(s) {
			continue
		}
		if name := toolbox.ReferredName(s); name != "" {
			t.names, t.unread = append(t.names, name), append(t.unread, name)
			t.services = append(t.services, service{name, s.Contract.Type})
		} else {
			t.unknown = append(t.unknown, "") // it may have any
		}
	}
	return t
}

// Faults lists what is wrong, each with its path in the spec: patterns of permissions, rules, constraints, guards and selections that
// match no tool, names to stop on, to give arguments to or to stand for that are not one, conditions of permissions on tools and types
// that there are not, or on arguments that no tool takes, and arguments of constraints that it does not take. What may be about a tool
// that is not known is passed over.
func (t Tools) Faults(spec *sdk.AgentSpec) []sdk.Fault {
	var faults []sdk.Fault
	if spec.Permissions != nil {
		for i := range spec.Permissions.Rules {
			rule, at := &spec.Permissions.Rules[i], fmt.Sprintf("$.permissions.rules[%d]", i)
			faults = append(faults, t.patterns(at+".tools", rule.Tools)...)
			faults = append(faults, t.condition(at+".when", rule)...)
		}
	}
	for i := range spec.Rules {
		faults = append(faults, t.patterns(fmt.Sprintf("$.rules[%d].only", i), spec.Rules[i].Only)...)
		faults = append(faults, t.patterns(fmt.Sprintf("$.rules[%d].hide", i), spec.Rules[i].Hide)...)
	}
	faults = append(faults, t.constraints(spec.Constraints)...)
	if g := spec.Guards; g != nil {
		faults = append(faults, t.patterns("$.guards.read_only", g.ReadOnly)...)
		faults = append(faults, t.patterns("$.guards.changing", g.Changing)...)
	}
	if s := spec.Selection; s != nil {
		faults = append(faults, t.patterns("$.selection.always", s.Always)...)
		for i := range s.Categories {
			faults = append(faults, t.patterns(fmt.Sprintf("$.selection.categories[%d].tools", i), s.Categories[i].Tools)...)
		}
	}
	for i, name := range spec.StopOn {
		if !slices.Contains(t.names, name) && !t.mayBeUnknown(name) {
			faults = append(faults, t.fault(fmt.Sprintf("$.stop_on[%d]", i), name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Arguments)) {
		if !slices.Contains(t.names, name) && !t.mayBeUnknown(name) {
			faults = append(faults, t.fault("$.arguments."+name, name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Undo)) {
		for _, at := range []struct{ path, tool string }{{"", name}, {".tool", spec.Undo[name].Tool}} {
			if !slices.Contains(t.names, at.tool) && !t.mayBeUnknown(at.tool) {
				faults = append(faults, t.fault("$.undo."+name+at.path, at.tool))
			}
		}
	}
	for _, alias := range slices.Sorted(maps.Keys(spec.Aliases)) {
		if slices.Contains(t.names, alias) {
			faults = append(faults, sdk.Fault{Path: "$.aliases." + alias, Expected: "a name that no tool has", Got: fmt.Sprintf("%q", alias)})
		}
		if name := spec.Aliases[alias]; !slices.Contains(t.names, name) && !t.mayBeUnknown(name) {
			faults = append(faults, t.fault("$.aliases."+alias, name))
		}
	}
	return faults
}

// patterns are the faults of a list of patterns. One whose form is wrong is for others to report.
func (t Tools) patterns(at string, patterns []string) []sdk.Fault {
	var faults []sdk.Fault
	for i, pattern := range patterns {
		if toolpattern.Check(pattern) == nil && !t.mayMatch(pattern) {
			faults = append(faults, t.fault(fmt.Sprintf("%s[%d]", at, i), pattern))
		}
	}
	return faults
}

// mayMatch reports whether a pattern matches a tool, or may match one that is not known. "*" means whatever tools there are, also
// where there are none.
func (t Tools) mayMatch(pattern string) bool {
	matches := func(name string) bool { return toolpattern.Match([]string{pattern}, name) }
	return pattern == "*" || slices.ContainsFunc(t.names, matches) || t.mayBeUnknown(pattern)
}

// mayBeUnknown reports whether a pattern may match a tool that is not known: whether what stands before its first wildcard fits
// the beginning of such names.
func (t Tools) mayBeUnknown(pattern string) bool {
	literal, wild := pattern, strings.IndexAny(pattern, `*?[\`)
	if wild >= 0 {
		literal = pattern[:wild]
	}
	return slices.ContainsFunc(t.unknown, func(prefix string) bool {
		return strings.HasPrefix(literal, prefix) || wild >= 0 && strings.HasPrefix(prefix, literal)
	})
}

func (t Tools) fault(at, pattern string) sdk.Fault {
	f := sdk.Fault{Path: at, Expected: "a tool of the agent", Got: fmt.Sprintf("%q", pattern)}
	if name := t.ofType(pattern); name != "" {
		f.Got += fmt.Sprintf(", which is the type of a contract; did you mean %q?", name)
	} else {
		f.Got += spelling.Suggest(pattern, t.names)
	}
	return f
}

// ofType is the tool of a contract whose type the pattern matches; empty where there is none.
func (t Tools) ofType(pattern string) string {
	for _, s := range t.services {
		if toolpattern.Match([]string{pattern}, s.contractType) {
			return s.tool
		}
	}
	return ""
}
