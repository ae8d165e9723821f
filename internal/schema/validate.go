package schema

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"agentd/internal/clip"
	"agentd/sdk"
)

// noLoading makes jsonschema load nothing. The tree has already refused references that would; this is the second lock.
type noLoading struct{}

func (noLoading) Load(url string) (any, error) {
	return nil, fmt.Errorf("reference to %s: nothing is loaded from elsewhere", url)
}

var drafts = []*jsonschema.Draft{
	draft4: jsonschema.Draft4, draft6: jsonschema.Draft6, draft7: jsonschema.Draft7, draft2019: jsonschema.Draft2019, draft2020: jsonschema.Draft2020,
}

// validator compiles a schema of a dialect.
func validator(doc any, d dialect) (func(any) []violation, []sdk.Fault) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(drafts[d])
	c.UseLoader(noLoading{})
	c.UseRegexpEngine(boundedRegexp)
	if d.assertsFormats() {
		assertFormats(c)
	}
	if err := c.AddResource(baseURI, doc); err != nil {
		return nil, []sdk.Fault{libraryFault(err)}
	}
	schema, err := c.Compile(baseURI)
	if refused, ok := errors.AsType[*jsonschema.SchemaValidationError](err); ok {
		return nil, toFaults(doc, violationsIn(doc, refused.Err))
	}
	if err != nil {
		return nil, []sdk.Fault{libraryFault(err)}
	}
	return func(instance any) []violation { return violationsIn(instance, schema.Validate(instance)) }, nil
}

// metaschema is the metaschema of a dialect, with regular expressions checked.
func metaschema(d dialect) (*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoading{})
	c.AssertFormat()
	schema, err := c.Compile(metaschemas[d])
	if err != nil {
		return nil, fmt.Errorf("compile metaschema %s: %w", metaschemas[d], err)
	}
	return schema, nil
}

// libraryFault is for what the validator refuses without saying where.
func libraryFault(err error) sdk.Fault {
	return sdk.Fault{Path: "$", Expected: "a schema that compiles", Got: clip.Text(err.Error(), maxExpected)}
}

func violationsIn(instance any, err error) []violation {
	if err == nil {
		return nil
	}
	invalid, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []violation{{expected: "a document that can be validated", got: err.Error()}}
	}
	return flatten(instance, invalid)
}

// flatten turns the library's tree of errors into a list.
func flatten(instance any, e *jsonschema.ValidationError) []violation {
	at := slices.Clip(e.InstanceLocation)
	child := func(name string) []string { return append(at, name) }
	missing := func(names []string) []violation {
		var all []violation
		for _, name := range names {
			all = append(all, violation{at: child(name), expected: expectPresent, got: gotNothing})
		}
		return all
	}
	switch k := e.ErrorKind.(type) {
	case *kind.AnyOf:
		return alternatives(instance, e, expectAnyOf)
	case *kind.OneOf:
		return alternatives(instance, e, expectOneOf)
	case *kind.Required:
		return missing(k.Missing)
	case *kind.Dependency:
		return missing(k.Missing)
	case *kind.DependentRequired:
		return missing(k.Missing)
	case *kind.AdditionalProperties:
		var all []violation
		for _, name := range k.Properties {
			all = append(all, violation{at: child(name), expected: expectNoProperty})
		}
		return all
	case *kind.PropertyNames:
		at := ownerOf(instance, e.InstanceLocation, k.Property)
		return []violation{{at: append(at, k.Property), expected: expectName, got: show(k.Property)}}
	}
	v := violation{at: at}
	if valueViolation(e.ErrorKind, &v) || arrayViolation(e.ErrorKind, &v) || boundViolation(e.ErrorKind, &v) {
		return []violation{v}
	}
	var all []violation
	for _, cause := range e.Causes {
		all = append(all, flatten(instance, cause)...)
	}
	if len(all) == 0 {
		v.expected = "a value that fits " + strings.Join(e.ErrorKind.KeywordPath(), ".")
		all = []violation{v}
	}
	return all
}

// alternatives tells what is wrong with the alternative that comes closest. Where only the type is wrong everywhere, it
// lists the types.
func alternatives(instance any, e *jsonschema.ValidationError, expected string) []violation {
	var best []violation
	var types []string
	own := func(v violation) bool { return v.mistyped && len(v.at) == len(e.InstanceLocation) }
	distance := func(vs []violation) int {
		if slices.ContainsFunc(vs, own) {
			return 1_000_000 // another kind of value altogether
		}
		return len(vs)
	}
	for i, cause := range e.Causes {
		violations := flatten(instance, cause)
		if i == 0 || distance(violations) < distance(best) {
			best = violations
		}
		if len(violations) == 1 && own(violations[0]) && !slices.Contains(types, violations[0].expected) {
			types = append(types, violations[0].expected)
		}
	}
	at := slices.Clip(e.InstanceLocation)
	if len(types) > 0 && len(types) == len(e.Causes) {
		return []violation{{at: at, expected: eitherType(types), mistyped: true}}
	}
	return append([]violation{{at: at, expected: expected}}, best...)
}

// ownerOf finds the object that has the property. The library hands out the location of a bad property name in memory
// that it uses again, so the last tokens of at may belong to a neighbour.
func ownerOf(instance any, at []string, name string) []string {
	if object, ok := lookup(instance, at); ok {
		if fields, ok := object.(map[string]any); ok {
			if _, ok := fields[name]; ok {
				return slices.Clip(slices.Clone(at))
			}
		}
	}
	var find func(value any, depth int, path []string) []string
	find = func(value any, depth int, path []string) []string {
		fields, ok := value.(map[string]any)
		if depth == 0 {
			if _, has := fields[name]; ok && has {
				return path
			}
			return nil
		}
		for _, token := range tokensOf(value) {
			next, _ := lookup(value, []string{token})
			if found := find(next, depth-1, append(slices.Clip(path), token)); found != nil {
				return found
			}
		}
		return nil
	}
	return slices.Clip(find(instance, len(at), []string{}))
}

func valueViolation(k jsonschema.ErrorKind, v *violation) bool {
	switch k := k.(type) {
	case *kind.Type:
		v.expected, v.mistyped = eitherType(k.Want), true
	case *kind.Enum:
		allowed := make([]string, len(k.Want))
		for i, value := range k.Want {
			allowed[i] = compactJSON(value)
		}
		v.expected = oneOf(allowed)
	case *kind.Const:
		v.expected = compactJSON(k.Want)
	case *kind.Pattern:
		v.expected = expectPattern(k.Want)
	case *kind.Format:
		v.expected = expectFormat(k.Want)
	case *kind.FalseSchema:
		v.expected = expectNoValue
	case *kind.Not:
		v.expected = expectNot
	default:
		return false
	}
	return true
}

func arrayViolation(k jsonschema.ErrorKind, v *violation) bool {
	switch k := k.(type) {
	case *kind.Contains:
		v.expected = expectContains
	case *kind.MinContains:
		v.expected = "at least " + plural(k.Want, "item") + " that fit (contains)"
		v.got = plural(len(k.Got), "such item")
	case *kind.MaxContains:
		v.expected = "at most " + plural(k.Want, "item") + " that fit (contains)"
		v.got = plural(len(k.Got), "such item")
	case *kind.AdditionalItems:
		v.expected = expectNoMore
	case *kind.UniqueItems:
		v.expected = expectDistinct
		v.got = fmt.Sprintf("items %d and %d are equal", k.Duplicates[0], k.Duplicates[1])
	case *kind.MinItems:
		*v = sized(v.at, "at least", k.Want, k.Got, "item")
	case *kind.MaxItems:
		*v = sized(v.at, "at most", k.Want, k.Got, "item")
	default:
		return false
	}
	return true
}

func boundViolation(k jsonschema.ErrorKind, v *violation) bool {
	switch k := k.(type) {
	case *kind.MinLength:
		*v = sized(v.at, "at least", k.Want, k.Got, "character")
	case *kind.MaxLength:
		*v = sized(v.at, "at most", k.Want, k.Got, "character")
	case *kind.MinProperties:
		*v = sized(v.at, "at least", k.Want, k.Got, "property")
	case *kind.MaxProperties:
		*v = sized(v.at, "at most", k.Want, k.Got, "property")
	case *kind.Minimum:
		v.expected = "at least " + ratText(k.Want)
	case *kind.Maximum:
		v.expected = "at most " + ratText(k.Want)
	case *kind.ExclusiveMinimum:
		v.expected = "more than " + ratText(k.Want)
	case *kind.ExclusiveMaximum:
		v.expected = "less than " + ratText(k.Want)
	case *kind.MultipleOf:
		v.expected = "a multiple of " + ratText(k.Want)
	default:
		return false
	}
	return true
}

func sized(at []string, bound string, want, have int, unit string) violation {
	return violation{at: at, expected: bound + " " + plural(want, unit), got: plural(have, unit)}
}

// ratText writes a bound of a schema.
func ratText(r *big.Rat) string { return new(big.Float).SetRat(r).Text('g', -1) }
