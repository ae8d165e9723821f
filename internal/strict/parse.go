package strict

import (
	"encoding/json"
	"errors"
	"math/big"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"agentd/sdk/wire"
)

const (
	// MaxFile is the largest file in bytes.
	MaxFile = 4 << 20
	// maxValues bounds the values of a file: aliases could name exponentially many.
	maxValues = 200_000
)

// Parse reads a file of one document: JSON when its name ends in .json, else YAML. The faults are noted; the Node is
// absent when there is nothing to go on with.
func (r *Reader) Parse(file string, data []byte) *Node {
	whole := &Node{Position: Position{file, 1, 1}}
	if len(data) > MaxFile {
		r.Faultf(whole.Position, "the file has %d bytes; at most %d are read", len(data), MaxFile)
		return whole
	}
	if i := indexNot(data, func(c rune, size int) bool { return c != utf8.RuneError || size > 1 }); i >= 0 {
		r.Faultf(position(file, data, i), "not text in UTF-8")
		return whole
	}
	before := r.Count()
	root := whole
	if filepath.Ext(file) == ".json" {
		root = r.parseJSON(file, data)
	} else {
		root = r.parseYAML(file, data)
	}
	if root == nil || r.Count() > before && !root.Mapping() {
		return whole
	}
	return root
}

// indexNot is the offset of the first character that is not as wanted, or -1.
func indexNot(data []byte, wanted func(c rune, size int) bool) int {
	for i := 0; i < len(data); {
		c, size := utf8.DecodeRune(data[i:])
		if !wanted(c, size) {
			return i
		}
		i += size
	}
	return -1
}

// position is that of an offset. Columns count characters.
func position(file string, data []byte, offset int) Position {
	before := string(data[:offset])
	line := before[strings.LastIndexByte(before, '\n')+1:]
	return Position{file, strings.Count(before, "\n") + 1, utf8.RuneCountInString(line) + 1}
}

func (r *Reader) parseYAML(file string, data []byte) *Node {
	var documents []yaml.Node
	if err := yaml.Load(data, &documents, yaml.WithAllDocuments()); err != nil {
		at, message := Position{file, 1, 1}, err.Error()
		e, ok := errors.AsType[*yaml.LoadError](err)
		switch {
		case ok && e.Mark.Line > 0:
			at.Line, at.Column, message = e.Mark.Line, e.Mark.Column, e.Message
			if end := position(file, data, len(data)); at.Line > end.Line {
				at = end // the library counts a line that is not there
			}
		case ok && e.Stage == yaml.ReaderStage: // it does not say where
			printable := func(c rune, _ int) bool { return !unicode.IsControl(c) || strings.ContainsRune("\t\n\r\u0085", c) }
			at, message = position(file, data, max(0, indexNot(data, printable))), "there is a control character"
		}
		if lines := strings.Split(string(data), "\n"); at.Line <= len(lines) && strings.HasPrefix(strings.TrimLeft(lines[at.Line-1], " "), "\t") {
			message = "a tab; indent with spaces"
		}
		r.Faultf(at, "not valid YAML: %s", message)
		return nil
	}
	if len(documents) == 0 {
		r.Faultf(Position{file, 1, 1}, "the file is empty")
		return nil
	}
	if len(documents) > 1 {
		r.Faultf(Position{file, documents[1].Line, documents[1].Column}, "a second document begins here; a file has one")
	}
	t := yamlTree{Reader: r, file: file, lines: strings.Split(string(data), "\n")}
	root := t.node(documents[0].Content[0], 0)
	if t.values > maxValues {
		return nil
	}
	return root
}

type yamlTree struct {
	*Reader
	file   string
	lines  []string
	values int
}

func (t *yamlTree) node(y *yaml.Node, depth int) *Node {
	n := &Node{Position: Position{t.file, y.Line, y.Column}}
	if t.values++; t.values > maxValues || depth > wire.MaxDepth {
		if t.values <= maxValues+1 { // one fault is enough
			t.values = maxValues + 1
			t.Faultf(n.Position, "a file has at most %d values, nested at most %d levels deep; aliases count as what they name", maxValues, wire.MaxDepth)
		}
		return n
	}
	switch y.Kind {
	case yaml.AliasNode:
		return t.node(y.Alias, depth)
	case yaml.MappingNode:
		n.kind = isMapping
		t.members(n, y, depth)
	case yaml.SequenceNode:
		n.kind = isList
		for _, item := range y.Content {
			n.items = append(n.items, t.node(item, depth+1))
		}
	default:
		t.scalar(n, y)
	}
	return n
}

func (t *yamlTree) members(n *Node, y *yaml.Node, depth int) {
	lines := map[string]int{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		key := y.Content[i]
		at := Position{t.file, key.Line, key.Column}
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() == "!!null":
			t.Faultf(at, "want a key that is text")
		case key.ShortTag() == "!!merge":
			t.Faultf(at, "merge keys (<<) are not supported; repeat the values or use an alias for each")
		case lines[key.Value] > 0:
			t.Faultf(at, "key %q is already set in line %d", key.Value, lines[key.Value])
		default:
			lines[key.Value] = at.Line
			item := t.node(y.Content[i+1], depth+1)
			item.Name, item.Key = key.Value, at
			n.items = append(n.items, item)
		}
	}
}

func (t *yamlTree) scalar(n *Node, y *yaml.Node) {
	if n.text, n.block = y.Value, y.Style&yaml.LiteralStyle != 0; n.block {
		n.indent = t.indent(y)
	}
	switch tag := y.ShortTag(); tag {
	case "!!str", "!!timestamp":
		n.kind, n.json = isText, quote(y.Value)
	case "!!bool":
		n.kind, n.json = isBool, strings.ToLower(y.Value)
	case "!!null":
		n.kind, n.text, n.json = isNull, "", "null"
	case "!!int", "!!float":
		n.kind = isNumber
		if n.json = numberJSON(y.Value); n.json == "" {
			t.Faultf(n.Position, "%s is not a number of JSON", y.Value)
			n.remove()
		}
	default:
		t.Faultf(n.Position, "a value tagged %s has no form in JSON", tag)
		n.remove()
	}
}

// indent is by how much the file indents the lines of a block more than its text does.
func (t *yamlTree) indent(y *yaml.Node) int {
	for i, line := range strings.Split(y.Value, "\n") {
		if at := y.Line + i; line != "" && at < len(t.lines) {
			return len(t.lines[at]) - len(strings.TrimLeft(t.lines[at], " ")) - (len(line) - len(strings.TrimLeft(line, " ")))
		}
	}
	return 0
}

var jsonNumber = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)

// numberJSON writes a YAML number as JSON, digit for digit where JSON has the form; empty where JSON has no such number.
func numberJSON(text string) string {
	if jsonNumber.MatchString(text) {
		return text
	}
	if i, ok := new(big.Int).SetString(text, 0); ok { // 0x1f, 0o17, 1_000
		return i.String()
	}
	f, err := strconv.ParseFloat(text, 64) // .5, 1., +1
	if err != nil {
		return ""
	}
	encoded, err := json.Marshal(f)
	if err != nil { // infinity and not-a-number
		return ""
	}
	return string(encoded)
}
