package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"text/template"
	"text/template/parse"

	"agentd/sdk"
)

// What one rendering of a template may take. The author of a template is trusted, but not the input that it goes over.
const (
	// maxRendered bounds what a template writes, in bytes; the texts that it builds on the way count too.
	maxRendered = 2 << 20
	// maxSteps bounds how often bodies of range, and templates that are called, are gone through.
	maxSteps = 100_000
	// keysPerStep are as many keys or items as cost a step to look at: range sorts the keys of a map each time.
	keysPerStep = 16
)

// The functions that Parse puts into a template: countStep begins every body, countItems ends every pipeline of a range.
const (
	countStep  = "agentd_step"
	countItems = "agentd_items"
)

// Template is a text/template whose rendering is bounded. Safe for concurrent use.
type Template struct {
	name string
	// text is what a literal template says. Most guidance is such; of others it is empty, and parsed is not nil.
	text   string
	parsed *template.Template
	// readsInput says that a template over Data may look at its Input, or at all of the data.
	readsInput bool
	// renderers has copies of parsed whose functions count: making one takes longer than most renderings.
	renderers sync.Pool
}

// literal reports whether a template has no action: it says the same of all data, and nothing in it can be wrong.
func literal(text string) bool { return !strings.Contains(text, "{{") }

// renderer executes a template, one rendering at a time.
type renderer struct {
	*template.Template
	rendering
}

// Parse reads a template. The error is CodeConfig.
func Parse(name, text string) (*Template, error) {
	if literal(text) {
		return &Template{name: name, text: text}, nil
	}
	t, err := read(name, text)
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "%s template: %s", name, err)
	}
	readsInput := check(t, text, reflect.TypeFor[Data](), nil).input
	for _, defined := range t.Templates() {
		if defined.Tree != nil {
			count(defined.Root)
			defined.Root.Nodes = append([]parse.Node{call(countStep)}, defined.Root.Nodes...)
		}
	}
	return &Template{name: name, parsed: t, readsInput: readsInput}, nil
}

func read(name, text string) (*template.Template, error) {
	return template.New(name).Option("missingkey=error").Funcs((&rendering{}).functions()).Parse(text)
}

// Name is the name that the template was parsed with.
func (t *Template) Name() string { return t.name }

// ReadsInput reports whether the template may look at the Input of Data, or at all of the data.
func (t *Template) ReadsInput() bool { return t.readsInput }

// Render executes the template. The error is CodeTooLarge when that takes too much, and CodeConfig when the template cannot be filled in
// with this data: it says where and why, and nothing of what the data says.
func (t *Template) Render(data any) (string, error) {
	if t.parsed == nil {
		return (&rendering{name: t.name}).text(t.text)
	}
	r, err := t.renderer()
	if err != nil {
		return "", fmt.Errorf("render %s: %w", t.name, err)
	}
	r.rendering = rendering{name: t.name}
	if err := r.Execute(&r.rendering, data); err != nil {
		return "", t.unfilled(err)
	}
	text := r.out.String()
	t.renderers.Put(r)
	return text, nil
}

func (t *Template) renderer() (*renderer, error) {
	if r, ok := t.renderers.Get().(*renderer); ok {
		return r, nil
	}
	own, err := t.parsed.Clone()
	if err != nil {
		return nil, err
	}
	r := &renderer{Template: own}
	own.Funcs(r.functions())
	return r, nil
}

// executionError is how text/template says what went wrong where.
var executionError = regexp.MustCompile(`(?s)^template: [^:]*:(\d+):\d+: executing "[^"]*" at <(.*?)>: (.*)$`)

// absent is how it says that a map lacks a key.
var absent = regexp.MustCompile(`^map has no entry for key ("[^"]*")$`)

// unfilled is what is told of an execution that failed.
func (t *Template) unfilled(err error) error {
	if e, ok := errors.AsType[*sdk.Error](err); ok {
		return fmt.Errorf("render %s: %w", t.name, e)
	}
	told := sdk.Errorf(sdk.CodeConfig, "the template %q cannot be filled in", t.name)
	if m := executionError.FindStringSubmatch(err.Error()); m != nil {
		told.Message += fmt.Sprintf(", line %s: %s: %s", m[1], m[2], absent.ReplaceAllString(m[3], "$1 is missing"))
	}
	return told.WithCause(err)
}

// count makes the loops below a node count.
func count(n parse.Node) {
	switch n := n.(type) {
	case *parse.ListNode:
		if n != nil {
			for _, child := range n.Nodes {
				count(child)
			}
		}
	case *parse.RangeNode:
		n.Pipe.Cmds = append(n.Pipe.Cmds, command(countItems))
		count(n.List)
		count(n.ElseList)
		n.List.Nodes = append([]parse.Node{call(countStep)}, n.List.Nodes...)
	case *parse.IfNode:
		count(n.List)
		count(n.ElseList)
	case *parse.WithNode:
		count(n.List)
		count(n.ElseList)
	}
}

func command(function string) *parse.CommandNode {
	return &parse.CommandNode{NodeType: parse.NodeCommand, Args: []parse.Node{parse.NewIdentifier(function)}}
}

// call is an action that calls a function.
func call(function string) parse.Node {
	return &parse.ActionNode{
		NodeType: parse.NodeAction, Pipe: &parse.PipeNode{NodeType: parse.NodePipe, Cmds: []*parse.CommandNode{command(function)}},
	}
}

// rendering is one execution of a template.
type rendering struct {
	name         string
	out          bytes.Buffer
	bytes, steps int
}

// Write implements io.Writer.
func (r *rendering) Write(p []byte) (int, error) {
	if err := r.built(len(p)); err != nil {
		return 0, err
	}
	return r.out.Write(p)
}

// built pays for a text.
func (r *rendering) built(size int) error {
	if r.bytes += size; r.bytes > maxRendered {
		return sdk.Errorf(sdk.CodeTooLarge, "the template %q makes more than %d bytes of this input", r.name, maxRendered)
	}
	return nil
}

func (r *rendering) step(steps int) error {
	if r.steps += steps; r.steps > maxSteps {
		return sdk.Errorf(sdk.CodeTooLarge, "the template %q takes more than %d steps with this input", r.name, maxSteps)
	}
	return nil
}

// functions are those that count, and those of text/template that build texts.
func (r *rendering) functions() template.FuncMap {
	all := template.FuncMap{
		countStep: func() (string, error) { return "", r.step(1) },
		countItems: func(value any) (any, error) {
			size := 0
			switch v := reflect.Indirect(reflect.ValueOf(value)); v.Kind() {
			case reflect.Map, reflect.Slice, reflect.Array:
				size = v.Len()
			default: // a number, say, whose steps are counted
			}
			return value, r.step(size / keysPerStep)
		},
		"printf": func(format string, values ...any) (string, error) { return r.text(fmt.Sprintf(format, values...)) },
	}
	for name, build := range map[string]func(...any) string{
		"print": fmt.Sprint, "println": fmt.Sprintln, "html": template.HTMLEscaper, "js": template.JSEscaper,
		"urlquery": template.URLQueryEscaper,
	} {
		all[name] = func(values ...any) (string, error) { return r.text(build(values...)) }
	}
	return all
}

func (r *rendering) text(s string) (string, error) { return s, r.built(len(s)) }
