package schema

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"sync"

	"github.com/xeipuuv/gojsonschema"

	"agentd/internal/clip"
	"agentd/sdk"
)

// delimiter separates the tokens of a gojsonschema context. It is not valid UTF-8, so no name contains it.
const delimiter = "\xff"

// refusing makes gojsonschema load nothing from files or the network. The tree has already refused such references; this
// is the second lock.
type refusing struct{ gojsonschema.JSONLoader }

func (refusing) LoaderFactory() gojsonschema.JSONLoaderFactory { return refusingFactory{} }

type refusingFactory struct{}

func (refusingFactory) New(source string) gojsonschema.JSONLoader {
	if isMetaschema(strings.TrimSuffix(source, "#")) {
		return gojsonschema.NewReferenceLoader(source) // built in
	}
	return refusedLoader{gojsonschema.NewGoLoader(nil), source}
}

type refusedLoader struct {
	gojsonschema.JSONLoader
	source string
}

func (l refusedLoader) LoadJSON() (any, error) {
	return nil, fmt.Errorf("reference to %s: nothing is loaded from elsewhere", l.source)
}

// compileLegacy compiles a schema of draft 4, 6 or 7. It changes the tree's document, see prepareLegacy.
func compileLegacy(t *tree) (func(any) []violation, []sdk.Fault) {
	meta, err := legacyMetaschema(t.dialect)
	if err != nil {
		return nil, []sdk.Fault{libraryFault(err)}
	}
	if violations := validateLegacy(meta, t.doc); len(violations) > 0 {
		return nil, toFaults(t.doc, violations)
	}
	loader := gojsonschema.NewSchemaLoader()
	loader.AutoDetect, loader.Draft = false, legacyDraft[t.dialect]
	schema, err := loader.Compile(refusing{gojsonschema.NewBytesLoader(prepareLegacy(t))})
	if err != nil {
		return nil, []sdk.Fault{libraryFault(err)}
	}
	return func(instance any) []violation { return validateLegacy(schema, instance) }, nil
}

// libraryFault is for what a validator refuses without saying where.
func libraryFault(err error) sdk.Fault {
	return sdk.Fault{Path: "$", Expected: "a schema that compiles", Got: clip.Text(err.Error(), maxExpected)}
}

var legacyDraft = map[dialect]gojsonschema.Draft{
	draft4: gojsonschema.Draft4, draft6: gojsonschema.Draft6, draft7: gojsonschema.Draft7,
}

var legacyMetaschemas = map[dialect]func() (*gojsonschema.Schema, error){
	draft4: onceMetaschema(draft4), draft6: onceMetaschema(draft6), draft7: onceMetaschema(draft7),
}

func onceMetaschema(d dialect) func() (*gojsonschema.Schema, error) {
	return sync.OnceValues(func() (*gojsonschema.Schema, error) {
		return gojsonschema.NewSchema(gojsonschema.NewReferenceLoader(metaschemas[d]))
	})
}

func legacyMetaschema(d dialect) (*gojsonschema.Schema, error) {
	schema, err := legacyMetaschemas[d]()
	if err != nil {
		return nil, fmt.Errorf("compile metaschema %s: %w", metaschemas[d], err)
	}
	return schema, nil
}

func validateLegacy(schema *gojsonschema.Schema, instance any) []violation {
	result, err := schema.Validate(gojsonschema.NewRawLoader(instance))
	if err != nil { // a raw loader cannot fail
		return []violation{{expected: "a document that can be validated", got: err.Error()}}
	}
	var violations []violation
	// below is where the rejected candidates of a "contains" stand, which follow its error. They are not faults: not every
	// item has to fit.
	var below []string
	for _, e := range result.Errors() {
		at := contextTokens(e.Context())
		if below != nil {
			if len(at) > len(below) && slices.Equal(at[:len(below)], below) {
				continue
			}
			below = nil
		}
		if _, ok := e.(*gojsonschema.ArrayContainsError); ok {
			below = at
		}
		if v, ok := legacyViolation(e, at, instance); ok {
			violations = append(violations, v)
		}
	}
	return violations
}

func contextTokens(c *gojsonschema.JsonContext) []string {
	return strings.Split(c.String(delimiter), delimiter)[1:]
}

// legacyViolation translates an error; it is not ok for errors that only wrap others.
func legacyViolation(e gojsonschema.ResultError, at []string, instance any) (violation, bool) {
	v := violation{at: at}
	property, _ := e.Details()["property"].(string)
	switch e.(type) {
	case *gojsonschema.NumberAllOfError, *gojsonschema.ConditionThenError, *gojsonschema.ConditionElseError:
		return v, false
	case *gojsonschema.RequiredError:
		v.at, v.expected, v.got = append(at, property), expectPresent, gotNothing
		return v, true
	case *gojsonschema.MissingDependencyError:
		dependency, _ := e.Details()["dependency"].(string)
		v.at, v.expected, v.got = append(at, dependency), expectPresent, gotNothing
		return v, true
	case *gojsonschema.AdditionalPropertyNotAllowedError:
		v.at, v.expected = append(at, property), expectNoProperty
		return v, true
	case *gojsonschema.InvalidPropertyNameError:
		v.at, v.expected, v.got = append(at, property), expectName, show(property)
		return v, true
	}
	if name, ok := e.Value().(string); ok {
		// What is wrong with a name is told in detail after the error about the name itself.
		if value, found := lookup(instance, at); found && value != name {
			return v, false
		}
	}
	if legacyValue(e, &v) || legacySize(e, &v) || legacyBound(e, &v) {
		return v, true
	}
	v.expected, v.got = clip.Text(e.Description(), maxExpected), ""
	return v, true
}

func legacyValue(e gojsonschema.ResultError, v *violation) bool {
	detail := func(name string) string { return fmt.Sprint(e.Details()[name]) }
	switch e.(type) {
	case *gojsonschema.InvalidTypeError:
		types := strings.Split(strings.Trim(detail("expected"), "[]"), ",")
		v.expected, v.mistyped = eitherType(types), true
	case *gojsonschema.EnumError:
		allowed, _ := e.Details()["allowed"].(string)
		v.expected = "one of " + allowed
		if !strings.Contains(allowed, ", ") {
			v.expected = allowed
		}
	case *gojsonschema.ConstError:
		v.expected = detail("allowed")
	case *gojsonschema.DoesNotMatchPatternError:
		v.expected = expectPattern(detail("pattern"))
	case *gojsonschema.DoesNotMatchFormatError:
		v.expected = expectFormat(detail(keyFormat))
	case *gojsonschema.FalseError:
		v.expected = expectNoValue
	case *gojsonschema.NumberAnyOfError:
		v.expected = expectAnyOf
	case *gojsonschema.NumberOneOfError:
		v.expected = expectOneOf
	case *gojsonschema.NumberNotError:
		v.expected = expectNot
	case *gojsonschema.ArrayContainsError:
		v.expected = expectContains
	case *gojsonschema.ArrayNoAdditionalItemsError:
		v.expected = expectNoMore
	case *gojsonschema.ItemsMustBeUniqueError:
		v.expected = expectDistinct
		v.got = fmt.Sprintf("items %s and %s are equal", detail("i"), detail("j"))
	default:
		return false
	}
	return true
}

func legacySize(e gojsonschema.ResultError, v *violation) bool {
	bound := func(name string) int {
		n, _ := e.Details()[name].(int)
		return n
	}
	var size int
	switch value := e.Value().(type) {
	case string:
		size = len([]rune(value))
	case []any:
		size = len(value)
	case map[string]any:
		size = len(value)
	}
	switch e.(type) {
	case *gojsonschema.StringLengthGTEError:
		*v = sized(v.at, "at least", bound("min"), size, "character")
	case *gojsonschema.StringLengthLTEError:
		*v = sized(v.at, "at most", bound("max"), size, "character")
	case *gojsonschema.ArrayMinItemsError:
		*v = sized(v.at, "at least", bound("min"), size, "item")
	case *gojsonschema.ArrayMaxItemsError:
		*v = sized(v.at, "at most", bound("max"), size, "item")
	case *gojsonschema.ArrayMinPropertiesError:
		*v = sized(v.at, "at least", bound("min"), size, "property")
	case *gojsonschema.ArrayMaxPropertiesError:
		*v = sized(v.at, "at most", bound("max"), size, "property")
	default:
		return false
	}
	return true
}

func sized(at []string, bound string, want, have int, unit string) violation {
	return violation{at: at, expected: bound + " " + plural(want, unit), got: plural(have, unit)}
}

func legacyBound(e gojsonschema.ResultError, v *violation) bool {
	bound := func(name string) string {
		f, _ := e.Details()[name].(*big.Float)
		return floatText(f)
	}
	switch e.(type) {
	case *gojsonschema.NumberGTEError:
		v.expected = "at least " + bound("min")
	case *gojsonschema.NumberGTError:
		v.expected = "more than " + bound("min")
	case *gojsonschema.NumberLTEError:
		v.expected = "at most " + bound("max")
	case *gojsonschema.NumberLTError:
		v.expected = "less than " + bound("max")
	case *gojsonschema.MultipleOfError:
		v.expected = "a multiple of " + bound("multiple")
	default:
		return false
	}
	return true
}

// floatText writes a bound of a schema.
func floatText(f *big.Float) string {
	if f == nil {
		return "a number"
	}
	return f.Text('g', -1)
}
