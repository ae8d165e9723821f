package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"agentd/sdk"
	"agentd/sdk/wire"
)

// ApplyDefaults returns data with the "default" of every missing property that has one, also inside objects that are
// present or come from a default, and inside items of arrays. References and "allOf" are followed; "anyOf", "oneOf" and
// conditions are not, because which branch holds is not known before. What is present keeps its bytes, what is added
// stands behind it in order of names. Data without a gap is returned as it is. Applying twice changes nothing.
//
// data need not be valid: a gap is filled wherever the part around it has the form that the schema expects.
func (s *Schema) ApplyDefaults(data json.RawMessage) (json.RawMessage, error) {
	if !s.tree.hasDefaults {
		return data, nil
	}
	doc, faults := decode(data)
	if len(faults) > 0 {
		return data, nil // it is refused when it is validated
	}
	if fault := s.tree.affordable(doc); fault != nil {
		return nil, &sdk.Error{Code: sdk.CodeContractViolation, Message: "the defaults cannot be applied", Faults: []sdk.Fault{*fault}}
	}
	filled, err := (&filler{tree: s.tree}).fill([]*node{s.tree.root}, data, nil)
	if err != nil {
		return nil, fmt.Errorf("apply defaults: %w", err)
	}
	return filled, nil
}

// Admit is the canonical form of data, with defaults filled in, or every fault. Defaults come first, so that a required property with a
// default may be left out, and what is admitted is valid.
func (s *Schema) Admit(data json.RawMessage) (json.RawMessage, []sdk.Fault) {
	canonical, err := wire.Canonicalize(data)
	if err != nil {
		return nil, unreadable(err)
	}
	filled, err := s.ApplyDefaults(canonical)
	if err != nil {
		return nil, unreadable(err)
	}
	if faults := s.Validate(filled); len(faults) > 0 {
		return nil, faults
	}
	if bytes.Equal(filled, canonical) {
		return canonical, nil
	}
	if filled, err = wire.Canonicalize(filled); err != nil {
		return nil, unreadable(err)
	}
	return filled, nil
}

// unreadable are the faults of data that is refused before it is validated.
func unreadable(err error) []sdk.Fault {
	e := sdk.AsError(err)
	if len(e.Faults) > 0 {
		return e.Faults
	}
	return []sdk.Fault{{Path: "$", Expected: "JSON that can be read", Got: e.Message}}
}

// maxDefaults is how many properties are filled in at most, where an object that comes from a default counts with those in
// it. Together they have at most wire.MaxData bytes, and nest no deeper than wire.MaxDepth.
const maxDefaults = 10_000

type filler struct {
	*tree
	// defaults and bytes are what was filled in.
	defaults, bytes int
}

// count notes a property that is filled in.
func (f *filler) count(g gap, from []*node) error {
	f.defaults++
	f.bytes += len(g.name) + len(g.value)
	if f.defaults <= maxDefaults && f.bytes <= wire.MaxData && len(from) < wire.MaxDepth {
		return nil
	}
	return &sdk.Error{Code: sdk.CodeContractViolation, Message: "the defaults cannot be applied", Faults: []sdk.Fault{{
		Path: "$", Got: "more: defaults multiply",
		Expected: fmt.Sprintf("at most %d defaults of %d bytes, nested %d deep", maxDefaults, wire.MaxData, wire.MaxDepth),
	}}}
}

// fill completes value, to which all of schemas apply. from holds the properties whose defaults value comes from: none is
// entered again, so that a recursive schema has a finite default.
func (f *filler) fill(schemas []*node, value json.RawMessage, from []*node) (json.RawMessage, error) {
	schemas = expand(schemas)
	if len(schemas) == 0 {
		return value, nil
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(value))
	switch d.PeekKind() {
	case '{':
		return f.fillObject(d, schemas, value, from)
	case '[':
		return f.fillArray(d, schemas, value, from)
	default:
		return value, nil
	}
}

// expand adds what the schemas refer to and are made of, each once.
func expand(schemas []*node) []*node {
	var all []*node
	var add func(n *node)
	add = func(n *node) {
		if n == nil || n.object == nil || slices.Contains(all, n) {
			return
		}
		all = append(all, n)
		add(n.ref)
		for _, part := range n.allOf {
			add(part)
		}
	}
	for _, n := range schemas {
		add(n)
	}
	return all
}

func (f *filler) fillObject(
	d *jsontext.Decoder, schemas []*node, value json.RawMessage, from []*node,
) (json.RawMessage, error) {
	out := bytes.NewBufferString("{")
	changed, present := false, map[string]bool{}
	member := func(name string, value json.RawMessage) error {
		quoted, err := jsontext.AppendQuote(nil, name)
		if err != nil {
			return err
		}
		if out.Len() > 1 {
			out.WriteByte(',')
		}
		out.Write(append(append(quoted, ':'), value...))
		return nil
	}
	err := members(d, func(name string, value json.RawMessage) error {
		present[name] = true
		filled, err := f.fill(propertySchemas(schemas, name), value, from)
		if err != nil {
			return err
		}
		changed = changed || !bytes.Equal(filled, value)
		return member(name, filled)
	})
	if err != nil {
		return nil, err
	}
	for _, gap := range gaps(schemas, present, from) {
		if err := f.count(gap, from); err != nil {
			return nil, err
		}
		filled, err := f.fill(propertySchemas(schemas, gap.name), gap.value, append(slices.Clip(from), gap.schema))
		if err != nil {
			return nil, err
		}
		changed = true
		if err := member(gap.name, filled); err != nil {
			return nil, err
		}
	}
	if !changed {
		return value, nil
	}
	out.WriteByte('}')
	return out.Bytes(), nil
}

func (f *filler) fillArray(
	d *jsontext.Decoder, schemas []*node, value json.RawMessage, from []*node,
) (json.RawMessage, error) {
	out := bytes.NewBufferString("[")
	changed, i := false, 0
	err := members(d, func(_ string, item json.RawMessage) error {
		filled, err := f.fill(itemSchemas(schemas, i), item, from)
		if err != nil {
			return fmt.Errorf("item %s: %w", strconv.Itoa(i), err)
		}
		changed = changed || !bytes.Equal(filled, item)
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(filled)
		i++
		return nil
	})
	if err != nil || !changed {
		return value, err
	}
	out.WriteByte(']')
	return out.Bytes(), nil
}

// members calls each with the parts of the object or array that d is at; an item has no name.
func members(d *jsontext.Decoder, each func(name string, value json.RawMessage) error) error {
	opening, err := d.ReadToken()
	if err != nil {
		return err
	}
	isObject := opening.Kind() == '{'
	for {
		kind := d.PeekKind()
		if kind == '}' || kind == ']' {
			return nil
		}
		if kind == 0 {
			if _, err := d.ReadToken(); err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			return io.ErrUnexpectedEOF
		}
		name := ""
		if isObject {
			token, err := d.ReadToken()
			if err != nil {
				return err
			}
			name = token.String()
		}
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := each(name, json.RawMessage(slices.Clone(value))); err != nil {
			return err
		}
	}
}

// propertySchemas are the schemas that apply to a property.
func propertySchemas(schemas []*node, name string) []*node {
	var all []*node
	for _, s := range schemas {
		i, found := slices.BinarySearchFunc(s.properties, name, func(p property, name string) int { return cmp.Compare(p.name, name) })
		if found {
			all = append(all, s.properties[i].schema)
		}
		for _, p := range s.patterns {
			if p.name.MatchString(name) {
				all, found = append(all, p.schema), true
			}
		}
		if !found && s.additional != nil {
			all = append(all, s.additional)
		}
	}
	return all
}

// itemSchemas are the schemas that apply to an item.
func itemSchemas(schemas []*node, i int) []*node {
	var all []*node
	for _, s := range schemas {
		switch {
		case i < len(s.prefix):
			all = append(all, s.prefix[i])
		case s.items != nil:
			all = append(all, s.items)
		}
	}
	return all
}

type gap struct {
	name   string
	value  json.RawMessage
	schema *node
}

// gaps lists the missing properties that have a default, in order of names. The first schema that has one decides.
func gaps(schemas []*node, present map[string]bool, from []*node) []gap {
	var gaps []gap
	listed := map[string]bool{}
	for _, s := range schemas {
		for _, p := range s.properties {
			if present[p.name] || listed[p.name] || slices.Contains(from, p.schema) {
				continue
			}
			if value := p.schema.fallback; value != nil {
				listed[p.name] = true
				gaps = append(gaps, gap{p.name, value, p.schema})
			}
		}
	}
	slices.SortFunc(gaps, func(a, b gap) int { return bytes.Compare([]byte(a.name), []byte(b.name)) })
	return gaps
}

// findDefaults gives every schema its default: its own, else that of what it refers to or is made of.
func (t *tree) findDefaults() {
	for _, n := range t.ordered { // what it refers to stands before it
		own, ok := n.object[keyDefault]
		switch {
		case ok && (n.ref == nil || !t.dialect.legacy()):
			n.fallback = json.RawMessage(compactJSON(own))
			continue
		case n.ref != nil:
			n.fallback = n.ref.fallback
		}
		for _, part := range n.allOf {
			if n.fallback == nil {
				n.fallback = part.fallback
			}
		}
	}
}
