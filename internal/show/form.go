package show

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// form is what a tool asks a person to fill in: the schema that the answer must have.
type form struct {
	Properties map[string]formField `json:"properties"`
	Required   []string             `json:"required"`
}

// formField is one property of a form.
type formField struct {
	Type        string            `json:"type"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Enum        []json.RawMessage `json:"enum"`
	EnumNames   []string          `json:"enumNames"`
	OneOf       []choice          `json:"oneOf"`
	Format      string            `json:"format"`
	Pattern     string            `json:"pattern"`
	Default     json.RawMessage   `json:"default"`
	Minimum     json.Number       `json:"minimum"`
	Maximum     json.Number       `json:"maximum"`
	MinLength   json.Number       `json:"minLength"`
	MaxLength   json.Number       `json:"maxLength"`
	Items       *formField        `json:"items"`
	AnyOf       []choice          `json:"anyOf"`
}

type choice struct {
	Const json.RawMessage `json:"const"`
	Title string          `json:"title"`
}

// formIn is the form that a schema describes; ok says that it has fields.
func formIn(schema json.RawMessage) (f form, ok bool) {
	if json.Unmarshal(schema, &f) != nil || len(f.Properties) == 0 {
		return form{}, false
	}
	return f, true
}

// write writes a line for each field, required ones first.
func (f form) write(w io.Writer) error {
	fmt.Fprintln(w, "\nfields of the answer, a JSON object")
	names := slices.Sorted(maps.Keys(f.Properties))
	required := func(name string) bool { return slices.Contains(f.Required, name) }
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case required(a) == required(b):
			return 0
		case required(a):
			return -1
		}
		return 1
	})
	var t Table
	for _, name := range names {
		need := "optional"
		if required(name) {
			need = "required"
		}
		one := f.Properties[name]
		t.Row(Visible(name), Visible(one.kind()), need, Visible(one.about()))
	}
	return t.Write(w, "  ", 0)
}

// kind is the field's type with its format.
func (f *formField) kind() string {
	text := f.Type
	if f.Format != "" {
		text += " (" + f.Format + ")"
	}
	if f.Items != nil && f.Items.Type != "" {
		text += " of " + f.Items.kind()
	}
	return text
}

// about is everything else that somebody must know to fill it in.
func (f *formField) about() string {
	var parts []string
	add := func(label, text string) {
		if text != "" {
			parts = append(parts, label+text)
		}
	}
	add("", f.Title)
	add("", f.Description)
	add("one of ", f.choices())
	if f.Items != nil {
		add("any of ", f.Items.choices())
	}
	add("at least ", f.Minimum.String())
	add("at most ", f.Maximum.String())
	add("characters at least ", f.MinLength.String())
	add("characters at most ", f.MaxLength.String())
	add("matching ", f.Pattern)
	add("default ", string(f.Default))
	return strings.Join(parts, "; ")
}

// choices are the values that the field may have, with what they mean.
func (f *formField) choices() string {
	var values []string
	for i, value := range f.Enum {
		text := string(value)
		if i < len(f.EnumNames) {
			text += " (" + f.EnumNames[i] + ")"
		}
		values = append(values, text)
	}
	for _, c := range append(slices.Clone(f.OneOf), f.AnyOf...) {
		text := string(c.Const)
		if c.Title != "" {
			text += " (" + c.Title + ")"
		}
		values = append(values, text)
	}
	return strings.Join(values, ", ")
}
