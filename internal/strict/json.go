package strict

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonTree reads JSON. The YAML parser would not do: it knows neither tabs nor surrogate pairs of JSON.
type jsonTree struct {
	data    []byte
	decoder *jsontext.Decoder
	// at is where the offset read is.
	at   Position
	read int
}

func (r *Reader) parseJSON(file string, data []byte) *Node {
	t := jsonTree{data: data, decoder: jsontext.NewDecoder(bytes.NewBuffer(data)), at: Position{file, 1, 1}}
	root, err := t.node()
	if err == nil {
		if _, err = t.decoder.ReadToken(); err == nil {
			err = errors.New("more than one value")
		} else if errors.Is(err, io.EOF) {
			return root
		}
	}
	at, message := t.next(), err.Error()
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		at, message = int(syntactic.ByteOffset), syntactic.Err.Error()
	}
	r.Faultf(position(file, data, at), "not valid JSON: %s", message)
	return nil
}

// next is the offset of the next token.
func (t *jsonTree) next() int {
	i := int(t.decoder.InputOffset())
	for i < len(t.data) && strings.IndexByte(" \t\r\n,:", t.data[i]) >= 0 {
		i++
	}
	return i
}

// position is that of the next token.
func (t *jsonTree) position() Position {
	for next := t.next(); t.read < next; t.read++ {
		switch c := t.data[t.read]; {
		case c == '\n':
			t.at.Line, t.at.Column = t.at.Line+1, 1
		case utf8.RuneStart(c):
			t.at.Column++
		}
	}
	return t.at
}

var jsonKinds = map[jsontext.Kind]kind{
	'n': isNull, 't': isBool, 'f': isBool, '"': isText, '0': isNumber, '{': isMapping, '[': isList,
}

func (t *jsonTree) node() (*Node, error) {
	n := &Node{Position: t.position()}
	token, err := t.decoder.ReadToken()
	if err != nil {
		return nil, err
	}
	n.kind = jsonKinds[token.Kind()]
	switch n.kind {
	case isMapping, isList:
		end := jsontext.Kind('}')
		if n.kind == isList {
			end = ']'
		}
		for t.decoder.PeekKind() != end {
			item, err := t.item(n.kind)
			if err != nil {
				return nil, err
			}
			n.items = append(n.items, item)
		}
		_, err = t.decoder.ReadToken()
		return n, err
	case isText:
		n.text = token.String()
		n.json = quote(n.text)
	case isNull:
		n.json = "null"
	default:
		n.text = token.String()
		n.json = n.text
	}
	return n, nil
}

// item is an item of a list, or a member of a mapping with its name.
func (t *jsonTree) item(of kind) (*Node, error) {
	if of == isList {
		return t.node()
	}
	key, err := t.node()
	if err != nil {
		return nil, err
	}
	item, err := t.node()
	if err != nil {
		return nil, err
	}
	item.Name, item.Key = key.text, key.Position
	return item, nil
}
