package strict

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"agentd/internal/spelling"
	"agentd/sdk"
)

// Schema is a compiled JSON Schema. Check understands three annotations in it: "errorMessage" is what is expected, in place of
// the validator's words, "writeOnly" keeps a value out of faults, because it may be a secret, and "neverEmpty" is of what protects: its key
// without a value is a fault, and one without anything in its list or mapping where the schema says so.
type Schema interface {
	Raw() json.RawMessage
	Validate(data json.RawMessage) []sdk.Fault
}

// Form is a Schema that files are read by. It may be used by several goroutines.
type Form struct {
	schema Schema
	// root is the schema as a tree, read once.
	root func() place
}

// NewForm makes a Form. The schema is not looked at before it is used.
func NewForm(schema Schema) *Form {
	return &Form{schema, sync.OnceValue(func() place { return rootOf(schema) })}
}

// Check notes what the schema of a form says of n, each fault at its place, and removes the values at fault: what is left has the form
// that the schema describes. A key without a value counts as left out, if it may be, unless it is to protect something.
func (r *Reader) Check(n *Node, form *Form) {
	if !n.exists() {
		return // there is nothing to go on with, which is noted
	}
	root := form.root()
	root.dropEmpty(n)
	var refused []*Node
	for _, f := range form.schema.Validate(n.JSON()) {
		at, p := n.At(f.Path), root.follow(steps(f.Path))
		refused = append(refused, at)
		switch {
		case !at.exists():
			r.Faultf(at.Position, "missing key %q%s", p.name, after(": ", p.description))
		case !p.known:
			path := steps(f.Path)
			elsewhere := root.follow(path[:len(path)-1]).within(at.Name)
			if elsewhere == "" {
				elsewhere = spelling.Suggest(at.Name, p.siblings)
			}
			r.Faultf(at.Key, "unknown key %q%s", at.Name, elsewhere)
		case p.neverEmpty && at.holdsNothing():
			r.Faultf(at.Key, "%s has no value, and would protect nothing: write what it is to hold, or remove the key", at.Name)
		default:
			f.Expected = cmp.Or(p.message, f.Expected)
			if p.secret {
				f.Got = ""
			}
			r.Faultf(at.Position, "%s", told(f))
		}
	}
	for _, at := range refused {
		at.remove()
	}
}

// after is a text behind what leads to it, where there is one.
func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// place is what a schema says of a place in a file. It follows properties, items and references, which is all that the
// schemas of files have.
type place struct {
	root, schema *Node
	name         string
	// known says that there may be something at all, optional that it may be left out. siblings are the names of the mapping.
	known, optional bool
	// neverEmpty is the annotation of the place itself.
	neverEmpty bool
	siblings   []string
	// secret and message are the annotations, here or further out.
	secret               bool
	message, description string
}

func rootOf(s Schema) place {
	root := (&Reader{}).Parse("schema.json", s.Raw())
	return place{root: root, schema: root, known: true}
}

func (p place) follow(steps []string) place {
	for _, name := range steps {
		p = p.step(name)
	}
	return p
}

func (p place) step(name string) place {
	properties := p.schema.Get("properties")
	next := place{root: p.root, name: name, secret: p.secret, schema: properties.Get(name), siblings: properties.Names()}
	next.optional = next.schema.Mapping() && !slices.Contains(p.schema.Get("required").Texts(), name)
	for _, other := range []string{"additionalProperties", "items"} {
		if !next.schema.Mapping() {
			next.schema = p.schema.Get(other)
		}
	}
	next.known = next.schema.Mapping()
	for {
		s := next.schema
		next.secret = next.secret || s.Get("writeOnly").Text() == "true"
		next.neverEmpty = next.neverEmpty || s.Get("neverEmpty").Text() == "true"
		next.message = cmp.Or(next.message, s.Get("errorMessage").Text())
		next.description = cmp.Or(next.description, s.Get("description").Text())
		ref := s.Get("$ref").Text()
		if ref == "" {
			return next
		}
		next.schema = p.root.At(strings.ReplaceAll(ref, "/", "."))
	}
}

// within says which members of a place have a member of that name; empty where none has.
func (p place) within(name string) string {
	var members []string
	for _, member := range p.schema.Get("properties").Names() {
		if p.step(member).schema.Get("properties").Get(name).Mapping() {
			members = append(members, member)
		}
	}
	if len(members) == 0 {
		return ""
	}
	return " here; it is a key of " + strings.Join(members, " and ")
}

// dropEmpty removes the members of n that are null and may be left out, but for those that are never empty.
func (p place) dropEmpty(n *Node) {
	for _, item := range n.items {
		next := p.step(item.Name)
		if item.kind == isNull && next.optional && !next.neverEmpty {
			item.remove()
		} else if next.known {
			next.dropEmpty(item)
		}
	}
}

// Setting is the tree of a file that has one value, under a key such as nats.url, but comes from elsewhere.
func Setting(source, key, value string, form *Form) *Node {
	names := strings.Split(key, ".")
	n := &Node{Position: Position{File: source}, kind: isText, text: value, json: quote(value)}
	if form.root().follow(names).schema.Get("type").Text() == "integer" && jsonNumber.MatchString(value) {
		n.kind, n.json = isNumber, value
	}
	for _, name := range slices.Backward(names) {
		n.Name = name
		n = &Node{Position: n.Position, kind: isMapping, items: []*Node{n}}
	}
	return n
}
