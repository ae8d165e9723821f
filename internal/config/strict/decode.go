package strict

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Value is a scalar that remembers where it stood. Its zero value is an absent one.
type Value[T any] struct {
	V T
	Position
}

// Present reports whether the file has the value.
func (v Value[T]) Present() bool { return v.Line > 0 }

// Or returns the value, or fallback where it is absent.
func (v Value[T]) Or(fallback T) T {
	if v.Present() {
		return v.V
	}
	return fallback
}

// Entry is a member of Entries.
type Entry[T any] struct {
	Key   Value[string]
	Value T
}

// Entries is a mapping with free keys, in the order of the file.
type Entries[T any] []Entry[T]

// JSON is a value of any form, as JSON with the members in the order of the file. Raw is nil where it is absent.
type JSON struct {
	Raw json.RawMessage
	Position
}

// maxNodes bounds the values that one Decode visits: aliases could name exponentially many.
const maxNodes = 200_000

// Decode reads n into target, a pointer. Structs take mappings whose keys are in their "yaml" tags; a struct's field of
// type Position gets the place of the mapping. Absent and null values leave target as it was.
func (r *Reader) Decode(n Node, target any) {
	d := decoder{Reader: r, file: n.File}
	d.decode(n.node, reflect.ValueOf(target).Elem())
}

// Mapping reports whether the value is a mapping. An absent value has no form.
func (n Node) Mapping() bool { return n.kind() == yaml.MappingNode }

// List reports whether the value is a list.
func (n Node) List() bool { return n.kind() == yaml.SequenceNode }

// Scalar reports whether the value is text, a number or a boolean.
func (n Node) Scalar() bool { return n.kind() == yaml.ScalarNode }

// Empty reports whether the value is absent, null, or a mapping, list or text without content.
func (n Node) Empty() bool {
	resolved := resolve(n.node)
	return resolved == nil || len(resolved.Content) == 0 && resolved.Value == ""
}

func (n Node) kind() yaml.Kind {
	if resolved := resolve(n.node); resolved != nil {
		return resolved.Kind
	}
	return 0
}

// resolve follows aliases; null is absent.
func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil || n.ShortTag() == "!!null" {
		return nil
	}
	return n
}

type decoder struct {
	*Reader
	file  string
	nodes int
}

// custom is what the types of this package implement.
type custom interface {
	decode(d *decoder, n *yaml.Node)
}

func (d *decoder) decode(n *yaml.Node, target reflect.Value) {
	if d.nodes++; d.nodes > maxNodes {
		if d.nodes == maxNodes+1 {
			d.Faultf(Position{File: d.file}, "the file has more than %d values", maxNodes)
		}
		return
	}
	if n = resolve(n); n == nil {
		return
	}
	if c, ok := target.Addr().Interface().(custom); ok {
		c.decode(d, n)
		return
	}
	switch target.Kind() {
	case reflect.Struct:
		d.mapping(n, target)
	case reflect.Slice:
		d.list(n, target)
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		d.decode(n, target.Elem())
	default:
		d.scalar(n, target)
	}
}

func (d *decoder) want(n *yaml.Node, kind yaml.Kind, what string) bool {
	if n.Kind == kind {
		return true
	}
	d.Faultf(at(d.file, n), "want %s, got %s", what, describe(n))
	return false
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	default:
		return strconv.Quote(n.Value)
	}
}

// members calls each for every key of a mapping.
func (d *decoder) members(n *yaml.Node, each func(key, value *yaml.Node)) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := resolve(n.Content[i])
		switch {
		case key == nil || key.Kind != yaml.ScalarNode:
			d.Faultf(at(d.file, n.Content[i]), "want a key that is text")
		case key.ShortTag() == "!!merge":
			d.Faultf(at(d.file, key), "merge keys (<<) are not supported; repeat the values or use an alias for each")
		case seen[key.Value] > 0:
			d.Faultf(at(d.file, key), "key %q is already set in line %d", key.Value, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			each(key, n.Content[i+1])
		}
	}
}

func (d *decoder) mapping(n *yaml.Node, target reflect.Value) {
	if !d.want(n, yaml.MappingNode, "a mapping") {
		return
	}
	fields := map[string]reflect.Value{}
	d.fields(n, target, fields)
	d.members(n, func(key, value *yaml.Node) {
		field, ok := fields[key.Value]
		if !ok {
			known := make([]string, 0, len(fields))
			for name := range fields {
				known = append(known, name)
			}
			slices.Sort(known)
			d.Faultf(at(d.file, key), "unknown key %q; known are %s", key.Value, strings.Join(known, ", "))
			return
		}
		d.decode(value, field)
	})
}

// fields collects what a mapping can set, and sets where it stands. Embedded structs have their keys in the same mapping.
func (d *decoder) fields(n *yaml.Node, target reflect.Value, fields map[string]reflect.Value) {
	for i := range target.NumField() {
		field := target.Type().Field(i)
		key := field.Tag.Get("yaml")
		switch {
		case field.Type == reflect.TypeFor[Position]():
			target.Field(i).Set(reflect.ValueOf(at(d.file, n)))
		case key != "":
			fields[key] = target.Field(i)
		case field.Anonymous:
			d.fields(n, target.Field(i), fields)
		}
	}
}

func (d *decoder) list(n *yaml.Node, target reflect.Value) {
	if !d.want(n, yaml.SequenceNode, "a list") {
		return
	}
	list := reflect.MakeSlice(target.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		if resolve(item) == nil {
			d.Faultf(at(d.file, item), "an item of the list is empty")
		}
		d.decode(item, list.Index(i))
	}
	target.Set(list)
}

func (d *decoder) scalar(n *yaml.Node, target reflect.Value) {
	what := map[reflect.Kind]string{
		reflect.String: "text", reflect.Bool: "true or false", reflect.Int: "a whole number", reflect.Float64: "a number",
	}[target.Kind()]
	if target.Type() == reflect.TypeFor[time.Duration]() {
		what = durationForm
	}
	if !d.want(n, yaml.ScalarNode, what) {
		return
	}
	if err := setScalar(n, target); err != nil {
		d.Faultf(at(d.file, n), "want %s, got %q", what, n.Value)
	}
}

func setScalar(n *yaml.Node, target reflect.Value) error {
	if target.Type() == reflect.TypeFor[time.Duration]() {
		duration, err := ParseDuration(n.Value)
		target.SetInt(int64(duration))
		return err
	}
	switch target.Kind() {
	case reflect.String:
		target.SetString(n.Value)
		return nil
	case reflect.Bool:
		if n.ShortTag() != tagBool {
			return fmt.Errorf("%q is not a boolean", n.Value)
		}
		target.SetBool(strings.EqualFold(n.Value, "true"))
		return nil
	case reflect.Int:
		i, err := strconv.ParseInt(n.Value, 10, 64)
		target.SetInt(i)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		target.SetFloat(f)
		return err
	default:
		panic("strict: cannot decode into " + target.Type().String())
	}
}

func (v *Value[T]) decode(d *decoder, n *yaml.Node) {
	before := len(d.faults)
	d.scalar(n, reflect.ValueOf(&v.V).Elem())
	if len(d.faults) == before {
		v.Position = at(d.file, n)
	}
}

func (e *Entries[T]) decode(d *decoder, n *yaml.Node) {
	if !d.want(n, yaml.MappingNode, "a mapping") {
		return
	}
	d.members(n, func(key, value *yaml.Node) {
		entry := Entry[T]{Key: Value[string]{key.Value, at(d.file, key)}}
		d.decode(value, reflect.ValueOf(&entry.Value).Elem())
		*e = append(*e, entry)
	})
}

func (n *Node) decode(d *decoder, node *yaml.Node) { *n = Node{at(d.file, node), node} }
