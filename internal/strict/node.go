package strict

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
)

type kind int

const (
	absent kind = iota
	isNull
	isBool
	isNumber
	isText
	isList
	isMapping
)

// Node is a value of a file, or the absence of one. An absent value, and one that Check refused, has no content: every
// method gives what is zero. Nodes are not nil.
type Node struct {
	// Position is where the value stands; of an absent one it is where it should be.
	Position
	// Name and Key are the name of a member and where it stands.
	Name string
	Key  Position

	kind kind
	// text is a scalar as the file has it, json as JSON has it.
	text, json string
	// block says that each line of the text is one of the file, after the one where the value stands, and indented by so many spaces.
	block  bool
	indent int
	items  []*Node
}

// Get follows names of members. Where there is none, the result is absent and stands where the mapping does.
func (n *Node) Get(names ...string) *Node {
	for _, name := range names {
		n = n.member(name)
	}
	return n
}

func (n *Node) member(name string) *Node {
	if n.kind == isMapping {
		for _, item := range n.items {
			if item.Name == name {
				return item
			}
		}
	}
	return &Node{Position: n.Position}
}

// Items are the values of a list, or of a mapping in the order of the file. Of a mapping also those that Check refused: they
// still have their names.
func (n *Node) Items() []*Node {
	if n.kind == isMapping {
		return n.items
	}
	var items []*Node
	for _, item := range n.items {
		if item.exists() {
			items = append(items, item)
		}
	}
	return items
}

// Present reports whether there is a value other than null.
func (n *Node) Present() bool { return n.kind > isNull }

// exists reports whether the file has the value, if only as null.
func (n *Node) exists() bool { return n.kind > absent }

// holdsNothing reports whether the file has the value as null, or as a list or mapping without anything in it.
func (n *Node) holdsNothing() bool {
	return n.kind == isNull || (n.kind == isList || n.kind == isMapping) && len(n.items) == 0
}

// Mapping reports whether the value is a mapping.
func (n *Node) Mapping() bool { return n.kind == isMapping }

// Text is a scalar as the file has it.
func (n *Node) Text() string { return n.text }

// TextAt is where a line and a column of a text stand, from 1, as far as the form of the text shows it.
func (n *Node) TextAt(line, column int) Position {
	if !n.block {
		return n.Position
	}
	return Position{n.File, n.Line + line, n.indent + column}
}

// Texts are the scalars of a list.
func (n *Node) Texts() []string {
	var texts []string
	for _, item := range n.Items() {
		texts = append(texts, item.text)
	}
	return texts
}

// Names are the names of a mapping's members.
func (n *Node) Names() []string {
	var names []string
	for _, item := range n.Items() {
		names = append(names, item.Name)
	}
	return names
}

// JSON is the value with its members in the order of the file; nil when it is absent or null.
func (n *Node) JSON() json.RawMessage {
	if !n.Present() {
		return nil
	}
	var b bytes.Buffer
	n.write(&b)
	return b.Bytes()
}

func (n *Node) write(b *bytes.Buffer) {
	if n.kind != isList && n.kind != isMapping {
		b.WriteString(n.json)
		return
	}
	brackets := "[]"
	if n.kind == isMapping {
		brackets = "{}"
	}
	b.WriteByte(brackets[0])
	first := true
	for _, item := range n.items {
		if !item.exists() {
			continue
		}
		if !first {
			b.WriteByte(',')
		}
		first = false
		if n.kind == isMapping {
			b.WriteString(quote(item.Name))
			b.WriteByte(':')
		}
		item.write(b)
	}
	b.WriteByte(brackets[1])
}

// remove makes the value absent.
func (n *Node) remove() { *n = Node{Position: n.Position, Name: n.Name, Key: n.Key} }

// quote writes a text as JSON.
func quote(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string into memory: neither can fail
	return string(bytes.TrimSuffix(b.Bytes(), []byte("\n")))
}

// step is one part of a path: a name, an index, or a name in quotes.
var step = regexp.MustCompile(`\.([A-Za-z_$][A-Za-z0-9_$-]*)|\[([0-9]+)\]|\[("(?:[^"\\]|\\.)*")\]`)

// steps are the names and indexes of the path of an sdk.Fault, such as $.agents[0].name.
func steps(path string) []string {
	var names []string
	for _, m := range step.FindAllStringSubmatch(path, -1) {
		name := m[1] + m[2]
		if m[3] != "" {
			name, _ = strconv.Unquote(m[3]) // quoted by the pattern; what is not is a name that nothing has
		}
		names = append(names, name)
	}
	return names
}

// At follows the path of an sdk.Fault. Where it leads to nothing, the result is absent and stands where the path ends.
func (n *Node) At(path string) *Node { return n.at(steps(path)) }

func (n *Node) at(steps []string) *Node {
	for _, name := range steps {
		if i, err := strconv.Atoi(name); err == nil && n.kind == isList && i < len(n.Items()) {
			n = n.Items()[i]
		} else {
			n = n.member(name)
		}
	}
	return n
}
