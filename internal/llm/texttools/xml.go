package texttools

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// The constants of JSON.
const (
	jsonTrue  = "true"
	jsonFalse = "false"
	jsonNull  = "null"
)

// element is an XML element without its attributes.
type element struct {
	name string
	text string
	// literal says that part of the text was character data, which is never taken for anything but a string.
	literal  bool
	children []*element
	// raw is what was written in the element, from the offset begin on.
	raw   string
	begin int64
}

// maxDepth bounds how deep elements are nested.
const maxDepth = 100

func parseXML(body string, schemas Schemas) (Call, *Fault) {
	root, err := readElements(body)
	if err != nil {
		var again error
		if root, again = readElements(repairXML(body)); again != nil {
			return Call{}, &Fault{Class: ParseError, Message: "the body is neither JSON nor XML: " + err.Error()}
		}
	}
	server, tool := root.leaf("server_name"), root.leaf("tool_name")
	c, fault := newCall(server, tool, nil)
	if fault != nil {
		return Call{}, fault
	}
	arguments := root.child("arguments")
	if arguments == nil {
		return c, nil
	}
	var schema json.RawMessage
	if schemas != nil {
		schema = schemas(c.Server, c.Tool)
	}
	return argumentsOf(c, arguments, readSchema(schema))
}

func argumentsOf(c Call, arguments *element, s schema) (Call, *Fault) {
	text := strings.TrimSpace(arguments.text)
	if len(arguments.children) == 0 && text != "" {
		// JSON inside of XML is what models write that mix the two forms up.
		return newCall(c.Server, c.Tool, json.RawMessage(text))
	}
	if len(arguments.children) > 0 && text != "" {
		return Call{}, &Fault{Class: InvalidArguments, Message: "arguments have text between their elements"}
	}
	c.Arguments = string(encode(arguments.object(s)))
	return c, nil
}

func readElements(body string) (*element, error) {
	written := "<tool>" + body + "</tool>"
	d := xml.NewDecoder(strings.NewReader(written))
	var stack []*element
	var root *element
	for {
		offset := d.InputOffset()
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && root != nil:
			return root, nil
		case err != nil:
			return nil, err
		}
		switch t := token.(type) {
		case xml.StartElement:
			e := &element{name: t.Name.Local, begin: d.InputOffset()}
			if len(stack) == maxDepth || (len(stack) == 0 && root != nil) {
				return nil, errors.New("elements are nested too deep, or follow the end")
			}
			if len(stack) > 0 {
				parent := stack[len(stack)-1]
				parent.children = append(parent.children, e)
			} else {
				root = e
			}
			stack = append(stack, e)
		case xml.EndElement:
			e := stack[len(stack)-1]
			e.raw = written[e.begin:offset]
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) == 0 {
				continue
			}
			e := stack[len(stack)-1]
			e.text += string(t)
			e.literal = e.literal || strings.HasPrefix(written[offset:], cdataOpen)
		}
	}
}

func (e *element) child(name string) *element {
	for _, c := range e.children {
		if strings.EqualFold(c.name, name) {
			return c
		}
	}
	return nil
}

func (e *element) leaf(name string) string {
	if c := e.child(name); c != nil {
		return c.text
	}
	return ""
}

// schema is what of a JSON Schema says how to read text.
type schema struct {
	Type       json.RawMessage            `json:"type"`
	Properties map[string]json.RawMessage `json:"properties"`
	Items      json.RawMessage            `json:"items"`
}

// readSchema returns the zero schema, which says nothing, for one of another form.
func readSchema(raw json.RawMessage) schema {
	var s schema
	if json.Unmarshal(raw, &s) != nil {
		return schema{}
	}
	return s
}

// is reports whether the schema allows values of that type, and says so.
func (s schema) is(name string) bool {
	var one string
	if json.Unmarshal(s.Type, &one) == nil {
		return one == name
	}
	var many []string
	if json.Unmarshal(s.Type, &many) != nil {
		return false
	}
	for _, t := range many {
		if t == name {
			return true
		}
	}
	return false
}

// field is one member of an object, in the order written.
type field struct {
	name  string
	value any
}

type object []field

// object is the element's children as an object. Children of one name are a list.
func (e *element) object(s schema) object {
	var out object
	at := map[string]int{}
	for _, c := range e.children {
		i, repeated := at[c.name]
		if !repeated {
			at[c.name] = len(out)
			out = append(out, field{c.name, c.value(readSchema(s.Properties[c.name]))})
			continue
		}
		items := readSchema(readSchema(s.Properties[c.name]).Items)
		list, ok := out[i].value.(repeatedValue)
		if !ok {
			list = repeatedValue{out[i].value}
			if first, isList := out[i].value.([]any); isList {
				list = first
			}
		}
		out[i].value = append(list, c.value(items))
	}
	return out
}

// repeatedValue is a list that came of elements of one name, as different from one element with a list in it.
type repeatedValue []any

func (e *element) value(s schema) any {
	switch {
	case len(e.children) > 0 && s.is("string"):
		return e.raw // markup that was meant as it stands
	case len(e.children) > 0 && (s.is("array") || (len(s.Type) == 0 && e.plural())):
		items := readSchema(s.Items)
		list := make([]any, len(e.children))
		for i, c := range e.children {
			list[i] = c.value(items)
		}
		return list
	case len(e.children) > 0:
		return e.object(s)
	case s.is("array"):
		return e.list(s)
	case s.is("object") && strings.TrimSpace(e.text) == "":
		return object{}
	case e.literal || s.is("string"):
		return e.text
	}
	return e.scalar(s)
}

// list is an array that was written without elements: as JSON, empty, or as its one item.
func (e *element) list(s schema) any {
	text := strings.TrimSpace(e.text)
	if text == "" {
		return []any{}
	}
	if strings.HasPrefix(text, "[") && json.Valid([]byte(text)) && !e.literal {
		return json.RawMessage(text)
	}
	return []any{e.value(readSchema(s.Items))}
}

// plural reports whether the element looks like a list: several children of one name, or one named like an item of it.
func (e *element) plural() bool {
	for _, c := range e.children {
		if c.name != e.children[0].name {
			return false
		}
	}
	item := e.children[0].name
	return len(e.children) > 1 || e.name == item+"s" || e.name == item+"es" || item == "item"
}

// scalar takes a text for what it looks like, as far as the schema does not say otherwise.
func (e *element) scalar(s schema) any {
	text := strings.TrimSpace(e.text)
	untyped := len(s.Type) == 0
	switch {
	case (untyped || s.is("boolean")) && (text == jsonTrue || text == jsonFalse):
		return text == jsonTrue
	case (untyped || s.is("null")) && text == jsonNull:
		return nil
	case untyped || s.is("number") || s.is("integer"):
		if _, err := strconv.ParseFloat(text, 64); err == nil && json.Valid([]byte(text)) {
			return json.RawMessage(text)
		}
	case s.is("object") && json.Valid([]byte(text)):
		return json.RawMessage(text)
	}
	return e.text
}

// encode writes a value as JSON with objects in the order written.
func encode(value any) []byte {
	switch v := value.(type) {
	case object:
		out := []byte{'{'}
		for i, f := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(append(out, encode(f.name)...), ':'), encode(f.value)...)
		}
		return append(out, '}')
	case repeatedValue:
		return encode([]any(v))
	case []any:
		out := []byte{'['}
		for i, item := range v {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, encode(item)...)
		}
		return append(out, ']')
	}
	data, err := json.Marshal(value)
	if err != nil {
		return []byte("null") // strings, bools and valid raw JSON always encode
	}
	return data
}

var bareAmpersand = regexp.MustCompile(`&(amp;|lt;|gt;|quot;|apos;|#[0-9]+;|#[xX][0-9a-fA-F]+;)?`)

// repairXML escapes each & that begins no entity, outside of character data.
func repairXML(text string) string {
	var out strings.Builder
	for {
		start := strings.Index(text, cdataOpen)
		if start < 0 {
			break
		}
		length := strings.Index(text[start:], cdataClose)
		if length < 0 {
			break
		}
		end := start + length + len(cdataClose)
		out.WriteString(escapeAmpersands(text[:start]) + text[start:end])
		text = text[end:]
	}
	out.WriteString(escapeAmpersands(text))
	return out.String()
}

func escapeAmpersands(text string) string {
	return bareAmpersand.ReplaceAllStringFunc(text, func(found string) string {
		if found == "&" {
			return "&amp;"
		}
		return found
	})
}
