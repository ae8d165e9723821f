package approval

import (
	"fmt"
	"maps"
	"slices"

	"agentd/internal/expression"
	"agentd/internal/schema"
	"agentd/internal/spelling"
	"agentd/internal/toolpattern"
	"agentd/sdk"
)

// condition holds the condition of a rule to the tools that it is about, and to what they take.
func (t Tools) condition(at string, rule *sdk.PermissionRule) []sdk.Fault {
	if rule.When == "" {
		return nil
	}
	about, known := t.about(rule.Tools)
	err := t.checkNames(rule.When)
	if err == nil && known {
		err = expression.CheckArguments(rule.When, about)
	}
	if err != nil {
		return []sdk.Fault{{Path: at, Expected: "a condition on what the tools take", Got: sdk.AsError(err).Message}}
	}
	return nil
}

// about are the tools that patterns match, with what they take; of no patterns all. known is false where one of them, or what it
// takes, is not known.
func (t Tools) about(patterns []string) (about []expression.Arguments, known bool) {
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	named := func(name string) bool { return toolpattern.Match(patterns, name) }
	if slices.ContainsFunc(patterns, t.mayBeUnknown) || slices.ContainsFunc(t.unread, named) {
		return nil, false
	}
	for _, tool := range t.box.All() {
		if named(tool.Name) {
			about = append(about, expression.Arguments{Tool: tool.Name, Schema: tool.Arguments()})
		}
	}
	return about, true
}

// checkNames refuses a condition that compares the tool, or its type, with a name that there is not. The error is CodeConfig.
func (t Tools) checkNames(when string) error {
	if slices.Contains(t.unknown, "") {
		return nil // any name may be there
	}
	var contractTypes []string
	for _, s := range t.services {
		contractTypes = append(contractTypes, s.contractType)
	}
	for _, c := range expression.Comparisons(when) {
		isTool, isType := c.Variable == expression.VariableTool, c.Variable == expression.VariableType
		switch {
		case c.Value == "", t.mayBeUnknown(c.Value), slices.Contains(t.names, c.Value) && isTool, slices.Contains(contractTypes, c.Value) && isType:
		case isTool:
			return sdk.Errorf(sdk.CodeConfig, "%q: not a tool of the agent: %s", when, t.fault("", c.Value).Got)
		case isType:
			return sdk.Errorf(sdk.CodeConfig, "%q: not the type of a contract that the agent calls: %q%s",
				when, c.Value, spelling.Suggest(c.Value, contractTypes))
		}
	}
	return nil
}

// constraints are the faults of what bounds runs that nobody watches.
func (t Tools) constraints(c *sdk.Constraints) []sdk.Fault {
	if c == nil {
		return nil
	}
	faults := append(t.patterns("$.constraints.allow", c.Allow), t.patterns("$.constraints.deny", c.Deny)...)
	if c.Files == nil {
		return faults
	}
	for i, w := range c.Files.Writers {
		at := fmt.Sprintf("$.constraints.files.writers[%d]", i)
		if toolpattern.Check(w.Tool) == nil && !t.mayMatch(w.Tool) {
			faults = append(faults, t.fault(at+".tool", w.Tool))
			continue
		}
		faults = append(faults, t.argument(at+".path", w.Tool, w.Path)...)
		faults = append(faults, t.argument(at+".content", w.Tool, w.Content)...)
	}
	return faults
}

// argument is the fault of an argument that none of the tools takes which a pattern matches: of their calls nothing would be seen.
func (t Tools) argument(at, pattern, name string) []sdk.Fault {
	about, known := t.about([]string{pattern})
	if name == "" || !known || len(about) == 0 {
		return nil
	}
	var takes []string
	for _, tool := range about {
		properties := schema.Properties(tool.Schema)
		if _, there := properties[name]; there || len(properties) == 0 {
			return nil
		}
		takes = slices.AppendSeq(takes, maps.Keys(properties))
	}
	slices.Sort(takes)
	return []sdk.Fault{{
		Path: at, Expected: "an argument that " + about[0].Tool + " takes",
		Got: fmt.Sprintf("%q%s", name, spelling.Suggest(name, slices.Compact(takes))),
	}}
}
