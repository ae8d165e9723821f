package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/clip"
	"agentd/sdk"
)

const (
	// maxShown bounds, in bytes, what a fault quotes of a value; maxExpected what it says of the schema.
	maxShown    = 80
	maxExpected = 400
	// maxFaults bounds the faults of one validation: they are meant to be read.
	maxFaults = 50
)

// violation is what both validators' errors are turned into before they become faults.
type violation struct {
	// at locates the offending value in the instance.
	at       []string
	expected string
	// got is empty to show the value itself.
	got string
	// mistyped says that the value is of a wrong JSON type.
	mistyped bool
}

// How violations say what was expected; both validators use these and no other words.
const (
	expectPresent    = "a value (required)"
	expectNoProperty = "no such property"
	expectNoValue    = "no value"
	expectNoMore     = "no further items"
	expectAnyOf      = "a value that fits one of the alternatives (anyOf)"
	expectOneOf      = "a value that fits exactly one of the alternatives (oneOf)"
	expectNot        = "a value that does not fit the schema of \"not\""
	expectName       = "a property name that is allowed (propertyNames)"
	expectContains   = "at least one item that fits (contains)"
	expectDistinct   = "items that are all different"
	gotNothing       = "nothing"
)

func expectPattern(p string) string { return "text that matches " + p }

func expectFormat(format string) string {
	if format == "regex" {
		return "a regular expression without look-around and back-references (RE2)"
	}
	return "text in the format " + format
}

func plural(n int, unit string) string {
	if n == 1 {
		return "1 " + unit
	}
	if cut, ok := strings.CutSuffix(unit, "y"); ok {
		unit = cut + "ie"
	}
	return strconv.Itoa(n) + " " + unit + "s"
}

// eitherType lists JSON types, in the same order whichever way the schema has them.
func eitherType(types []string) string {
	return strings.Join(slices.Sorted(slices.Values(types)), " or ")
}

// oneOf lists JSON texts.
func oneOf(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return "one of " + strings.Join(values, ", ")
}

// toFaults gives violations of doc the form and order in which they are told: by place, each once.
func toFaults(doc any, violations []violation) []sdk.Fault {
	slices.SortStableFunc(violations, func(a, b violation) int {
		return cmp.Or(
			slices.CompareFunc(a.at, b.at, compareTokens),
			cmp.Compare(a.expected, b.expected), cmp.Compare(a.got, b.got),
		)
	})
	violations = slices.CompactFunc(violations, func(a, b violation) bool {
		return a.expected == b.expected && a.got == b.got && slices.Equal(a.at, b.at)
	})
	more := max(0, len(violations)-maxFaults)
	var faults []sdk.Fault
	for _, v := range violations[:len(violations)-more] {
		got := v.got
		if value, ok := lookup(doc, v.at); ok && got == "" {
			got = show(value)
		}
		f := sdk.Fault{Path: pathOf(doc, v.at), Expected: clip.Text(v.expected, maxExpected), Got: clip.Text(got, maxShown)}
		if len(faults) == 0 || faults[len(faults)-1] != f {
			faults = append(faults, f)
		}
	}
	if more > 0 {
		faults = append(faults, sdk.Fault{
			Path: "$", Expected: "no further faults", Got: fmt.Sprintf("%d more, not listed", more),
		})
	}
	return faults
}

// compareTokens puts array indexes in numerical order.
func compareTokens(a, b string) int {
	i, errA := strconv.Atoi(a)
	j, errB := strconv.Atoi(b)
	if errA == nil && errB == nil {
		return cmp.Compare(i, j)
	}
	return cmp.Compare(a, b)
}

var plainName = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// pathOf writes a place in doc as a JSON path. Only doc tells an index from a name of digits.
func pathOf(doc any, at []string) string {
	return path(at, func(i int) bool {
		value, _ := lookup(doc, at[:i])
		return isArray(value)
	})
}

// path writes a JSON path; isIndex tells whether a token is an index of an array.
func path(at []string, isIndex func(i int) bool) string {
	var b strings.Builder
	b.WriteString("$")
	for i, token := range at {
		switch {
		case isIndex(i):
			b.WriteString("[" + token + "]")
		case plainName.MatchString(token):
			b.WriteString("." + token)
		default:
			b.WriteString("[" + strconv.Quote(token) + "]")
		}
	}
	return b.String()
}

func isArray(value any) bool {
	_, ok := value.([]any)
	return ok
}

// lookup returns the value at a place of doc.
func lookup(doc any, at []string) (any, bool) {
	for _, token := range at {
		switch value := doc.(type) {
		case map[string]any:
			next, ok := value[token]
			if !ok {
				return nil, false
			}
			doc = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(value) {
				return nil, false
			}
			doc = value[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// tokensOf lists the names or indexes of a value's parts.
func tokensOf(value any) []string {
	switch value := value.(type) {
	case map[string]any:
		return sortedKeys(value)
	case []any:
		tokens := make([]string, len(value))
		for i := range value {
			tokens[i] = strconv.Itoa(i)
		}
		return tokens
	default:
		return nil
	}
}

// show describes a JSON value in a few words.
func show(value any) string {
	text := compactJSON(value)
	switch value.(type) {
	case nil, bool:
	case json.Number:
		text = "number " + text
	case string:
		text = "string " + text
	case []any:
		text = "array " + text
	case map[string]any:
		text = "object " + text
	}
	return clip.Text(text, maxShown)
}

func compactJSON(value any) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return fmt.Sprintf("%v", value) // not of JSON's types
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
