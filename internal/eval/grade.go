package eval

import (
	"encoding/json"
	"fmt"
	"iter"
	"strings"

	"agentd/internal/clip"
	"agentd/internal/expression"
	"agentd/internal/schema"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// maxShown is how much of what a model wrote a fault quotes, in bytes.
const maxShown = 200

// grader is what is said of a value: a call's arguments, or an answer. What is empty is not said.
type grader struct {
	schema json.RawMessage
	when   string
	// compile compiles when.
	compile func(when string) (func(value any) bool, error)
}

func (c *ExpectedCall) grader() grader {
	return grader{c.Schema, c.When, func(when string) (func(any) bool, error) {
		if err := expression.CheckPattern(when); err != nil {
			return nil, err
		}
		return func(value any) bool {
			args, err := json.Marshal(value)
			if err != nil {
				return false
			}
			matches, _ := expression.Matches(when, args) // false where it cannot be said
			return matches
		}, nil
	}}
}

func (a *ExpectedAnswer) grader() grader {
	return grader{a.Schema, a.When, func(when string) (func(any) bool, error) {
		holds, err := expression.CompileGate(when)
		if err != nil {
			return nil, err
		}
		return func(value any) bool {
			is, ok := holds(map[string]any{"output": value, "input": nil, "run": "", "agent": ""})
			return is && ok
		}, nil
	}}
}

// faults are what is wrong with the grader itself, by the key where it stands.
func (g grader) faults() iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		if len(g.schema) > 0 {
			if _, err := schema.Compile(g.schema); err != nil && !yield("schema", err) {
				return
			}
		}
		if g.when != "" {
			if _, err := g.compile(g.when); err != nil {
				yield("when", err)
			}
		}
	}
}

// fault says why a value, which is that JSON, is not what is said; empty is that it is.
func (g grader) fault(value any, data json.RawMessage) string {
	if len(g.schema) > 0 {
		if fault := unfit(g.schema, data); fault != "" {
			return fault
		}
	}
	if g.when == "" {
		return ""
	}
	holds, err := g.compile(g.when)
	switch {
	case err != nil:
		return sdk.AsError(err).Message
	case !holds(value):
		return fmt.Sprintf("%s does not hold", g.when)
	}
	return ""
}

// unfit says why data does not fit a schema; empty is that it does.
func unfit(raw, data json.RawMessage) string {
	s, err := schema.Compile(raw)
	if err != nil {
		return sdk.AsError(err).Message
	}
	var all []string
	for _, f := range s.Validate(data) {
		all = append(all, f.String())
	}
	return strings.Join(all, "; ")
}

// fault says why a call is not the expected one; empty is that it is.
func (c *ExpectedCall) fault(s *Suite, call *sdk.ToolRequest) string {
	if call.Name != c.Tool {
		return fmt.Sprintf("calls %s, want %s", clip.Text(call.Name, maxShown), c.Tool)
	}
	wrong := func(what string) string {
		return fmt.Sprintf("calls %s with %s: %s", c.Tool, clip.Text(call.Arguments, maxShown), what)
	}
	canonical, err := wire.Canonicalize([]byte(call.Arguments))
	var args any
	if err == nil {
		err = json.Unmarshal(canonical, &args)
	}
	if err != nil {
		return wrong("that is not JSON")
	}
	if fault := unfit(s.tool(c.Tool).Parameters, canonical); fault != "" {
		return wrong(fault)
	}
	if len(c.Exact) > 0 {
		if want, err := wire.Canonicalize(c.Exact); err != nil || string(want) != string(canonical) {
			return wrong(fmt.Sprintf("want %s", want))
		}
	}
	if fault := c.grader().fault(args, canonical); fault != "" {
		return wrong(fault)
	}
	return ""
}

// fault says why a text is not the expected answer; empty is that it is.
func (a *ExpectedAnswer) fault(text string) string {
	text = strings.TrimSpace(text)
	wrong := func(what string) string { return fmt.Sprintf("answers %q: %s", clip.Text(text, maxShown), what) }
	if a.Exact != nil && text != strings.TrimSpace(*a.Exact) {
		return wrong(fmt.Sprintf("want %q", strings.TrimSpace(*a.Exact)))
	}
	if fault := a.grader().fault(text, json.RawMessage(text)); fault != "" {
		return wrong(fault)
	}
	return ""
}
