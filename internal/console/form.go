package console

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"

	"agentd/internal/show"
	"agentd/sdk"
)

// form is an object as fields that people fill in, by a JSON Schema. Values keep their types: what is written for a number is a
// number, and what has no field of its own is JSON.
type form struct {
	Fields []field
	// JSON is the whole object, for who would rather write that.
	JSON string
}

// The kinds of fields: a line, several lines, a number, one of some values, and JSON.
const (
	fieldText   = "text"
	fieldLines  = "lines"
	fieldNumber = "number"
	fieldChoice = "choice"
	fieldJSON   = "json"
)

// field is one property of the object.
type field struct {
	Name, Kind, Value string
	Label, Help       string
	Required          bool
	Min, Max, Step    string
	Choices           []choice
	// ID names the value in the form; given says that the object has one.
	ID    string
	given bool
}

// choice is one value that a field may have, as JSON, and its name.
type choice struct {
	Value, Label string
	Chosen       bool
}

// property is what a form needs of a property's schema.
type property struct {
	Type        any               `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	EnumNames   []string          `json:"enumNames"`
	OneOf       []struct {
		Const json.RawMessage `json:"const"`
		Title string          `json:"title"`
	} `json:"oneOf"`
	Default json.RawMessage `json:"default"`
	Minimum json.Number     `json:"minimum"`
	Maximum json.Number     `json:"maximum"`
}

// fieldPrefix begins the names of a form's values, jsonField is that of the whole object.
const (
	fieldPrefix = "field."
	jsonField   = "object"
	byJSON      = "as_json"
)

// newForm is the form of a schema with the values of an object; both may be empty.
func newForm(schema, object json.RawMessage) form {
	var s struct {
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required"`
	}
	_ = json.Unmarshal(schema, &s) // a schema of another form leaves JSON to be written
	values := map[string]json.RawMessage{}
	_ = json.Unmarshal(object, &values) // what is not an object is shown as JSON alone
	names := slices.Collect(maps.Keys(s.Properties))
	for name := range values {
		if _, has := s.Properties[name]; !has {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if x, y := slices.Contains(s.Required, a), slices.Contains(s.Required, b); x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	f := form{JSON: "{}"}
	if len(object) > 0 {
		f.JSON = string(show.EscapeJSON([]byte(show.Indent(object))))
	}
	for _, name := range names {
		p := s.Properties[name]
		value, given := values[name]
		if !given {
			value = p.Default
		}
		one := p.field(name, value)
		one.Required, one.given = slices.Contains(s.Required, name), given
		f.Fields = append(f.Fields, one)
	}
	return f
}

func (p *property) field(name string, value json.RawMessage) field {
	f := field{Name: name, ID: fieldPrefix + name, Label: name, Help: p.Description, Kind: fieldJSON}
	if p.Title != "" {
		f.Label = p.Title
	}
	kind, _ := p.Type.(string)
	for i, v := range p.Enum {
		label := strings.Trim(string(v), `"`)
		if i < len(p.EnumNames) {
			label = p.EnumNames[i]
		}
		f.Choices = append(f.Choices, choice{string(v), label, bytes.Equal(v, value)})
	}
	for _, one := range p.OneOf {
		if len(one.Const) > 0 {
			f.Choices = append(f.Choices, choice{string(one.Const), one.Title, bytes.Equal(one.Const, value)})
		}
	}
	var text string
	isText := len(value) == 0 || json.Unmarshal(value, &text) == nil
	known := len(value) == 0 || slices.ContainsFunc(f.Choices, func(c choice) bool { return c.Chosen })
	switch {
	case len(f.Choices) > 0 && known:
		f.Kind = fieldChoice
		return f
	case kind == "boolean" && (len(value) == 0 || json.Unmarshal(value, new(bool)) == nil):
		f.Kind = fieldChoice
		f.Choices = []choice{{"true", "yes", string(value) == "true"}, {"false", "no", string(value) == "false"}}
		return f
	case (kind == fieldNumber || kind == "integer") && isNumber(value):
		f.Kind, f.Value, f.Min, f.Max, f.Step = fieldNumber, string(value), p.Minimum.String(), p.Maximum.String(), "any"
		if kind == "integer" {
			f.Step = "1"
		}
		return f
	// A text with characters that cannot be seen is written as JSON, in which they can.
	case kind == "string" && isText && show.VisibleLines(text) == text:
		f.Kind, f.Value = fieldText, text
		if strings.Contains(text, "\n") || len(text) > shortLength {
			f.Kind = fieldLines
		}
		return f
	}
	f.Choices = nil
	f.Value = string(show.EscapeJSON([]byte(show.Indent(value))))
	return f
}

// Bounds says between which numbers the value must be.
func (f field) Bounds() string {
	var parts []string
	if f.Min != "" {
		parts = append(parts, "at least "+f.Min)
	}
	if f.Max != "" {
		parts = append(parts, "at most "+f.Max)
	}
	if f.Step == "1" {
		parts = append(parts, "a whole number")
	}
	return strings.Join(parts, ", ")
}

func isNumber(value json.RawMessage) bool {
	var n json.Number
	return len(value) == 0 || value[0] != '"' && json.Unmarshal(value, &n) == nil
}

// read is the object that somebody filled in. The error says which fields have values that are not of their types.
func (f form) read(values url.Values) (json.RawMessage, error) {
	if values.Has(byJSON) {
		object := json.RawMessage(strings.TrimSpace(values.Get(jsonField)))
		if !json.Valid(object) || object[0] != '{' {
			return nil, sdk.Errorf(sdk.CodeContractViolation, "what you wrote is not a JSON object; correct it, or fill in the fields")
		}
		return object, nil
	}
	object := map[string]json.RawMessage{}
	var faults []sdk.Fault
	for i := range f.Fields {
		one := &f.Fields[i]
		value, expected := one.read(values)
		switch {
		case expected != "":
			faults = append(faults, sdk.Fault{Path: "$." + one.Name, Expected: expected, Got: show.Line(values.Get(one.ID), shortLength)})
		case value != nil:
			object[one.Name] = value
		}
	}
	if len(faults) > 0 {
		return nil, &sdk.Error{Code: sdk.CodeContractViolation, Message: "not all fields can be read", Faults: faults}
	}
	return json.Marshal(object)
}

// with is the form with what somebody filled in, which could not be read.
func (f form) with(values url.Values) form {
	f.JSON = values.Get(jsonField)
	for i := range f.Fields {
		one := &f.Fields[i]
		one.Value = values.Get(one.ID)
		for n := range one.Choices {
			one.Choices[n].Chosen = one.Choices[n].Value == one.Value
		}
	}
	return f
}

// read is the value of a field, nil for none, or what it must be.
func (f *field) read(values url.Values) (value json.RawMessage, expected string) {
	if !values.Has(f.ID) {
		return nil, ""
	}
	text := strings.ReplaceAll(values.Get(f.ID), "\r\n", "\n") // forms end lines so
	switch f.Kind {
	case fieldText, fieldLines:
		if text == "" && !f.Required && !f.given {
			return nil, ""
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			return nil, fieldText
		}
		return encoded, ""
	case fieldNumber:
		text = strings.TrimSpace(text)
		if text != "" && !isNumber(json.RawMessage(text)) {
			return nil, "a number"
		}
	}
	if text = strings.TrimSpace(text); text == "" {
		return nil, ""
	}
	if !json.Valid([]byte(text)) {
		return nil, "JSON"
	}
	return json.RawMessage(text), ""
}
