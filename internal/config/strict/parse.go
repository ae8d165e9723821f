package strict

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// MaxFile is the largest file in bytes.
const MaxFile = 4 << 20

// Node is a value of a file, before it is known what it should be. The zero Node is an absent value.
type Node struct {
	Position
	node *yaml.Node
}

// Parse reads a file of one document: JSON when its name ends in .json, else YAML. The faults are noted; the Node is
// absent when there is nothing to go on with.
func (r *Reader) Parse(file string, data []byte) Node {
	whole := Position{File: file}
	if len(data) > MaxFile {
		r.Faultf(whole, "the file has %d bytes; at most %d are read", len(data), MaxFile)
		return Node{Position: whole}
	}
	var root *yaml.Node
	if filepath.Ext(file) == ".json" {
		root = r.parseJSON(file, data)
	} else {
		root = r.parseYAML(file, data)
	}
	if root == nil {
		return Node{Position: whole}
	}
	return Node{at(file, root), root}
}

func at(file string, n *yaml.Node) Position { return Position{file, n.Line, n.Column} }

func (r *Reader) parseYAML(file string, data []byte) *yaml.Node {
	d := yaml.NewDecoder(bytes.NewReader(data))
	var document, second yaml.Node
	if err := d.Decode(&document); err != nil {
		if errors.Is(err, io.EOF) {
			r.Faultf(Position{File: file}, "the file is empty")
			return nil
		}
		r.yamlFault(file, err)
		return nil
	}
	if err := d.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			r.yamlFault(file, err)
		} else {
			r.Faultf(at(file, &second), "a second document begins here; a file has one")
		}
	}
	return document.Content[0]
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// yamlFault takes the line out of the library's text.
func (r *Reader) yamlFault(file string, err error) {
	where, message := Position{File: file}, err.Error()
	if m := yamlLine.FindStringSubmatch(strings.ReplaceAll(message, "\n", " ")); m != nil {
		where.Line, _ = strconv.Atoi(m[1]) // empty or digits; 0 is the whole file
		message = m[2]
	}
	r.Faultf(where, "not valid YAML: %s", message)
}

// jsonParser builds the tree that YAML would be read into. The YAML parser itself knows neither tabs nor surrogate pairs
// of JSON.
type jsonParser struct {
	file    string
	data    []byte
	decoder *jsontext.Decoder
	// lines are the offsets at which lines begin.
	lines []int
}

func (r *Reader) parseJSON(file string, data []byte) *yaml.Node {
	p := jsonParser{file: file, data: data, decoder: jsontext.NewDecoder(bytes.NewBuffer(data)), lines: []int{0}}
	for i, c := range data {
		if c == '\n' {
			p.lines = append(p.lines, i+1)
		}
	}
	root, err := p.value()
	if err == nil {
		if _, err = p.decoder.ReadToken(); err == nil {
			err = errors.New("more than one value")
		}
	}
	if errors.Is(err, io.EOF) && root != nil {
		return root
	}
	offset, message := p.offset(), err.Error()
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		offset, message = int(syntactic.ByteOffset), syntactic.Err.Error()
	}
	r.Faultf(p.position(offset), "not valid JSON: %s", message)
	return nil
}

func (p *jsonParser) position(offset int) Position {
	line := sort.SearchInts(p.lines, offset+1)
	return Position{p.file, line, offset - p.lines[line-1] + 1}
}

// offset is where the next token begins.
func (p *jsonParser) offset() int {
	i := int(p.decoder.InputOffset())
	for i < len(p.data) && strings.IndexByte(" \t\r\n,:", p.data[i]) >= 0 {
		i++
	}
	return i
}

// jsonTags are YAML's names of the kinds of JSON values.
var jsonTags = map[jsontext.Kind]string{'n': "!!null", 't': tagBool, 'f': tagBool, '"': "!!str"}

const tagBool = "!!bool"

func (p *jsonParser) value() (*yaml.Node, error) {
	where := p.position(p.offset())
	token, err := p.decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: where.Line, Column: where.Column}
	switch kind := token.Kind(); kind {
	case '{', '[':
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
		end := jsontext.Kind('}')
		if kind == '[' {
			n.Kind, n.Tag, end = yaml.SequenceNode, "!!seq", ']'
		}
		for p.decoder.PeekKind() != end {
			child, err := p.value() // names and values alternate, as in a yaml.Node
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, child)
		}
		_, err = p.decoder.ReadToken()
	case '0':
		n.Tag, n.Value = "!!float", token.String()
		if !strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!int"
		}
	default:
		n.Tag, n.Value = jsonTags[kind], token.String()
		if kind == '"' {
			n.Style = yaml.DoubleQuotedStyle
		}
	}
	return n, err
}
