package config

import (
	"maps"
	"slices"

	"agentd/internal/schema"
	"agentd/internal/strict"
)

// Lint reports what is wrong although it can be used: faults are what surprises who relies on the schema of a contract, such as that
// something is required that is not a property, and warnings what may be a slip of the pen there, or not be meant elsewhere.
func (c *Config) Lint() (faults, warnings Faults) {
	warnings = slices.Clone(c.unwise)
	lint := func(n *strict.Node, use schema.Use) {
		compiled, err := schema.Compile(n.JSON())
		if !n.Present() || err != nil {
			return // it has faults, or is the default of an agent
		}
		for _, f := range schema.Lint(compiled, use) {
			told := strict.Fault{Position: n.At(f.Path).Position, Message: f.Message}
			switch {
			case f.Severity == schema.Error:
				faults = append(faults, told)
			case f.Rule == schema.RuleUnknown:
				told.Position = n.At(f.Path).Key
				warnings = append(warnings, told)
			}
		}
	}
	version := func(n *strict.Node) {
		lint(n.Get("accepts"), schema.Accepted)
		for _, emitted := range n.Get("emits").Items() {
			lint(emitted, schema.Emitted)
		}
	}
	for _, k := range c.known {
		if versions := k.node.Get("versions"); versions.Mapping() {
			for _, name := range slices.Sorted(maps.Keys(k.Versions)) {
				version(versions.Get(name))
			}
		} else if own := k.node.Get("contract"); own.Mapping() {
			lint(own.Get("accepts"), schema.Accepted)
			lint(own.Get("emits"), schema.Emitted)
		}
	}
	return faults, warnings
}

// Place is where an agent stands.
func (c *Config) Place(agent string) strict.Position {
	if n, ok := c.stands[agent]; ok {
		return n
	}
	return strict.Position{File: c.File}
}
