package prompt

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
	"unicode/utf8"

	"agentd/internal/schema"
	"agentd/internal/spelling"
	"agentd/sdk"
)

// Data is what templates go over.
type Data struct {
	// Input is the data of the init event, Run its subject.
	Input any
	Run   string
	Tools []sdk.ToolDefinition
	// Interactions are known to guidance and overlays only.
	Interactions sdk.Interactions
	// DelegatedBy is nil unless another agent called this one.
	DelegatedBy *sdk.Delegation
}

// UndoData is what templates go over of a call that undoes another.
type UndoData struct {
	// Args and Result are what the other was made with and returned.
	Args, Result any
	// Input is the data of the init event, Run its subject.
	Input any
	Run   string
}

// Fault is something wrong in a template. Column counts characters, from 1.
type Fault struct {
	Line, Column int
	Message      string
}

// Check lists what is wrong with a template over D, which is Data or UndoData: that it cannot be read, and what it names that there never is. accepts is the
// schema of the input; what a schema says of its properties is in the words of schema.Properties.
func Check[D any](text string, accepts json.RawMessage) []Fault {
	if literal(text) {
		return nil
	}
	parsed, err := read("template", text)
	if err != nil {
		m := syntaxError.FindStringSubmatch(err.Error())
		if m == nil {
			return []Fault{{1, 1, err.Error()}}
		}
		line, _ := strconv.Atoi(m[1]) // digits by the pattern
		return []Fault{{max(1, line), 1, m[2]}}
	}
	return check(parsed, text, reflect.TypeFor[D](), accepts).faults
}

// check goes through a template over a type.
func check(parsed *template.Template, text string, over reflect.Type, accepts json.RawMessage) *checker {
	c := checker{text: text, over: over, accepts: accepts, defined: map[string]*parse.ListNode{}, checked: map[string]bool{}}
	for _, t := range parsed.Templates() {
		if t.Tree != nil {
			c.defined[t.Name()] = t.Root
			c.assigned = append(c.assigned, assignment.FindAllString(t.Root.String(), -1)...)
		}
	}
	if parsed.Tree != nil {
		c.template(parsed.Name(), 0, value{of: c.over})
	}
	return &c
}

var (
	syntaxError = regexp.MustCompile(`(?s)^template: [^:]*:(\d+)(?::\d+)?: (.*)$`)
	// assignment is one to a variable that there is already.
	assignment = regexp.MustCompile(`\$\w+ = `)
)

// value is what is known of a value of a template: its type, or the schema that it fits. Of the zero value nothing is.
type value struct {
	of     reflect.Type
	schema json.RawMessage
	// path is how people read what it is; empty is what the template goes over.
	path string
}

type checker struct {
	text    string
	over    reflect.Type
	accepts json.RawMessage
	// defined are the templates, by name, and checked those that were gone through, by name and what they go over.
	defined map[string]*parse.ListNode
	checked map[string]bool
	// assigned has the variables that get other values.
	assigned []string
	// input says that the template names the input, or all that it goes over.
	input  bool
	faults []Fault
}

// fault notes what is wrong at an offset of the text.
func (c *checker) fault(at int, format string, args ...any) {
	before := c.text[:min(at, len(c.text))]
	f := Fault{
		strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:]) + 1,
		fmt.Sprintf(format, args...),
	}
	if !slices.Contains(c.faults, f) { // a template may go over several things
		c.faults = append(c.faults, f)
	}
}

// template checks one, called at an offset, over dot.
func (c *checker) template(name string, at int, dot value) {
	body, ok := c.defined[name]
	if !ok {
		c.fault(at, "the template %q does not exist%s", name, spelling.Suggest(name, slices.Sorted(maps.Keys(c.defined))))
		return
	}
	key := fmt.Sprintf("%s %v %s %s", name, dot.of, dot.path, dot.schema)
	if !c.checked[key] {
		c.checked[key] = true
		c.node(body, dot, map[string]value{"$": dot})
	}
}

// node checks a part of a template over dot. vars are the variables so far, to which it adds those that it declares for what follows.
func (c *checker) node(n parse.Node, dot value, vars map[string]value) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				c.node(child, dot, vars)
			}
		}
	case *parse.ActionNode:
		c.declare(n.Pipe, vars, c.pipe(n.Pipe, dot, vars))
	case *parse.IfNode:
		c.branch(&n.BranchNode, dot, vars, func(value) value { return dot })
	case *parse.WithNode:
		c.branch(&n.BranchNode, dot, vars, func(v value) value { return v })
	case *parse.RangeNode:
		c.branch(&n.BranchNode, dot, vars, value.item)
	case *parse.TemplateNode:
		c.template(n.Name, int(n.Pos), c.pipe(n.Pipe, dot, vars))
	}
}

// branch checks a body over what there is in it, and what is in its place otherwise.
func (c *checker) branch(n *parse.BranchNode, dot value, vars map[string]value, body func(value) value) {
	vars = maps.Clone(vars)
	v := c.pipe(n.Pipe, dot, vars)
	inner := body(v)
	if n.NodeType == parse.NodeIf {
		c.declare(n.Pipe, vars, v)
	} else {
		c.declare(n.Pipe, vars, inner)
	}
	c.node(n.List, inner, maps.Clone(vars))
	c.node(n.ElseList, dot, vars)
}

// declare makes the last variable of a pipeline v. The other one is an index or a key.
func (c *checker) declare(p *parse.PipeNode, vars map[string]value, v value) {
	for i, variable := range p.Decl {
		name := variable.Ident[0]
		vars[name] = value{}
		if i == len(p.Decl)-1 && !p.IsAssign && !slices.Contains(c.assigned, name+" = ") {
			vars[name] = v
		}
	}
}

func (c *checker) pipe(p *parse.PipeNode, dot value, vars map[string]value) (v value) {
	if p == nil {
		return value{}
	}
	for _, command := range p.Cmds {
		for i, arg := range command.Args {
			v = value{}
			if operand := c.operand(arg, dot, vars); i == 0 && len(command.Args) == 1 {
				v = operand
			}
		}
	}
	return v
}

func (c *checker) operand(n parse.Node, dot value, vars map[string]value) value {
	at := int(n.Position())
	switch n := n.(type) {
	case *parse.DotNode:
		return c.members(dot, nil, at)
	case *parse.FieldNode:
		if len(n.Ident) > 1 { // its position is that of the second member
			at -= len("." + n.Ident[0])
		}
		return c.members(dot, n.Ident, at)
	case *parse.VariableNode:
		return c.members(vars[n.Ident[0]], n.Ident[1:], at)
	case *parse.ChainNode:
		return c.members(c.operand(n.Node, dot, vars), n.Field, at)
	case *parse.PipeNode:
		return c.pipe(n, dot, vars)
	}
	return value{}
}

// members follows names from a value; the first of them, with its dot, stands at an offset.
func (c *checker) members(v value, names []string, at int) value {
	if v.of == c.over && (len(names) == 0 || names[0] == "Input") {
		c.input = true
	}
	for _, name := range names {
		next, known := v.member(name)
		if !known {
			of, there := "the data has no .", v.members()
			if v.path != "" {
				of = v.path + " has no ."
			}
			if len(there) == 0 {
				c.fault(at, "%s%s: it has no members", of, name)
			} else {
				c.fault(at, "%s%s%s", of, name, spelling.Suggest(name, there))
			}
			return value{}
		}
		if next.path = v.path + "." + name; name == "Input" && v.of == c.over {
			next = value{schema: c.accepts, path: next.path}
		}
		v, at = next, at+len("."+name)
	}
	return v
}

// item is what range goes over.
func (v value) item() value {
	if v.of != nil {
		switch v.of.Kind() { //nolint:exhaustive // of all others nothing is known
		case reflect.Slice, reflect.Array, reflect.Map:
			return value{of: v.of.Elem(), path: "an item of " + v.path}
		}
	}
	return value{}
}

// member is what a value has by a name. It is not known where there never is one.
func (v value) member(name string) (member value, known bool) {
	if v.of == nil {
		properties := schema.Properties(v.schema)
		if len(properties) == 0 {
			return value{}, !v.scalar()
		}
		of, known := properties[name]
		return value{schema: of}, known
	}
	of := v.of
	if m, ok := of.MethodByName(name); ok {
		return value{of: m.Type.Out(0)}, true
	}
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch of.Kind() { //nolint:exhaustive // all others have no members
	case reflect.Struct:
		f, ok := of.FieldByName(name)
		return value{of: f.Type}, ok && f.IsExported()
	case reflect.Map:
		return value{of: of.Elem()}, true
	case reflect.Interface:
		return value{}, true
	}
	return value{}, false
}

// members are the names that a value can have, sorted.
func (v value) members() []string {
	if v.of == nil {
		return slices.Sorted(maps.Keys(schema.Properties(v.schema)))
	}
	var names []string
	of := v.of
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() == reflect.Struct {
		for _, f := range reflect.VisibleFields(of) {
			names = append(names, f.Name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// scalar reports whether a schema says that the value is neither an object nor may be one.
func (v value) scalar() bool {
	var of struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(v.schema, &of) == nil && of.Type != "" && of.Type != "object"
}
