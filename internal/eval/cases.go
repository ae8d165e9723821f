package eval

import (
	"embed"
	_ "embed" // the schema
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentd/internal/schema"
	"agentd/internal/strict"
	"agentd/sdk"
)

// Suite is the cases of a file, with the tools that they are about.
type Suite struct {
	Name   string `json:"name"`
	System string `json:"system"`
	Tools  []Tool `json:"tools"`
	Cases  []Case `json:"cases"`
}

// Tool is what a model is told of a tool.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

// Case is what the user says, and what the model must do then.
type Case struct {
	Name   string `json:"name"`
	Input  string `json:"input"`
	System string `json:"system"`
	// Tools are the names of those that are offered; empty is all of the suite.
	Tools []string `json:"tools"`
	// Results are what the tools return, by their names; {} where there is none.
	Results map[string]json.RawMessage `json:"results"`
	Expect  Expect                     `json:"expect"`
}

// Expect is what the model must do: the calls, in their order, and no others; and the answer after them, nil being any.
type Expect struct {
	Calls  []ExpectedCall  `json:"calls"`
	Answer *ExpectedAnswer `json:"answer"`
}

// ExpectedCall is a call of a tool. Its arguments always fit the tool's parameters; what else is said of them holds, too.
type ExpectedCall struct {
	Tool   string          `json:"tool"`
	Exact  json.RawMessage `json:"exact"`
	Schema json.RawMessage `json:"schema"`
	When   string          `json:"when"`
}

// ExpectedAnswer is what is said of the text that the model ends with.
type ExpectedAnswer struct {
	Exact  *string         `json:"exact"`
	Schema json.RawMessage `json:"schema"`
	When   string          `json:"when"`
}

//go:embed cases.schema.json
var casesSchema []byte

var casesForm = sync.OnceValue(func() *strict.Form {
	s, err := schema.Compile(casesSchema)
	if err != nil {
		panic("eval: cases.schema.json: " + err.Error()) // it is part of the program
	}
	return strict.NewForm(s)
})

//go:embed cases/*.yaml
var shipped embed.FS

// Shipped are the suites that come with agentd.
func Shipped() ([]Suite, error) {
	files, err := shipped.ReadDir("cases")
	if err != nil {
		return nil, fmt.Errorf("read the shipped cases: %w", err)
	}
	var all []Suite
	for _, f := range files {
		name := "cases/" + f.Name()
		data, err := shipped.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read the shipped cases: %w", err)
		}
		s, err := Parse(name, data)
		if err != nil {
			return nil, err
		}
		all = append(all, *s)
	}
	return all, nil
}

// Load reads a suite from a file. The error lists every fault with its line and column.
func Load(path string) (*Suite, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read cases: %w", err)
	}
	return Parse(path, data)
}

// Parse is Load for a file that has been read; its name tells its format and stands in the faults.
func Parse(file string, data []byte) (*Suite, error) {
	var r strict.Reader
	n := r.Parse(file, data)
	r.Check(n, casesForm())
	var s Suite
	r.Decode(n, &s)
	if s.Name == "" {
		base := filepath.Base(file)
		s.Name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	if r.Count() == 0 {
		s.check(&r, n)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return &s, nil
}

// check notes what a schema cannot say.
func (s *Suite) check(r *strict.Reader, n *strict.Node) {
	for i, node := range n.Get("tools").Items() {
		t := &s.Tools[i]
		if len(t.Parameters) == 0 {
			t.Parameters = json.RawMessage(`{"type":"object"}`)
		}
		if slices.ContainsFunc(s.Tools[:i], func(o Tool) bool { return o.Name == t.Name }) {
			r.Faultf(node.Position, "there are two tools %q; give each a name of its own", t.Name)
		}
		_, faults := schema.CompileObject(t.Parameters, "$.parameters")
		noteFaults(r, node, faults)
	}
	for i, node := range n.Get("cases").Items() {
		c := &s.Cases[i]
		if slices.ContainsFunc(s.Cases[:i], func(o Case) bool { return o.Name == c.Name }) {
			r.Faultf(node.Position, "there are two cases %q; give each a name of its own", c.Name)
		}
		for j, named := range node.Get("tools").Items() {
			s.checkTool(r, named, c.Tools[j])
		}
		results := node.Get("results")
		for _, name := range results.Names() {
			s.checkTool(r, results, name)
		}
		for j, call := range node.Get("expect", "calls").Items() {
			s.checkTool(r, call, c.Expect.Calls[j].Tool)
			checkGrader(r, call, c.Expect.Calls[j].grader())
		}
		if c.Expect.Answer != nil {
			checkGrader(r, node.Get("expect", "answer"), c.Expect.Answer.grader())
		}
	}
}

func (s *Suite) checkTool(r *strict.Reader, at *strict.Node, name string) {
	if s.tool(name) == nil {
		r.Faultf(at.Position, "tool %q does not exist; name one of tools", name)
	}
}

func noteFaults(r *strict.Reader, n *strict.Node, faults []sdk.Fault) {
	if len(faults) > 0 {
		r.Note(n, &sdk.Error{Code: sdk.CodeConfig, Message: "the JSON Schema cannot be used", Faults: faults})
	}
}

func checkGrader(r *strict.Reader, n *strict.Node, g grader) {
	for name, err := range g.faults() {
		r.Note(n.Get(name), err)
	}
}

func (s *Suite) tool(name string) *Tool {
	for i := range s.Tools {
		if s.Tools[i].Name == name {
			return &s.Tools[i]
		}
	}
	return nil
}
