package expression

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"

	"agentd/internal/schema"
	"agentd/internal/spelling"
	"agentd/sdk"
)

// Arguments are what a tool takes: a JSON Schema.
type Arguments struct {
	Tool   string
	Schema json.RawMessage
}

// CheckArguments refuses a condition over args that names a property, such as args.sum, which none of the tools takes. A schema
// says what a tool takes where it declares properties and does not admit others expressly: one with additionalProperties,
// patternProperties, references or alternatives may take anything, and so may what is reached by args["sum"]. The error is
// CodeConfig. That a condition does not compile is for CompilePermission to report.
func CheckArguments(when string, tools []Arguments) error {
	t := argumentTypes{fields: map[string]map[string]*types.Type{}}
	var names []string
	var schemas []json.RawMessage
	for _, tool := range tools {
		names, schemas = append(names, tool.Tool), append(schemas, tool.Schema)
	}
	args := t.read("#", schemas)
	if args == types.DynType {
		return nil
	}
	has := names[0] + " has"
	if len(names) > 1 {
		has = strings.Join(names, ", ") + " have"
	}
	return t.check(when, has, args)
}

// variableArgs is what conditions call the arguments.
const variableArgs = "args"

// argumentTypes tells CEL what arguments have which fields. Types are named by the path to them after a "#", which no expression can
// name.
type argumentTypes struct {
	types.Provider
	fields map[string]map[string]*types.Type
}

// read returns the type of what one of the schemas describes: an object whose fields are known, or anything.
func (t *argumentTypes) read(name string, schemas []json.RawMessage) *types.Type {
	declared := map[string][]json.RawMessage{}
	for _, data := range schemas {
		properties := schema.Properties(data)
		if len(properties) == 0 {
			return types.DynType
		}
		for property, value := range properties {
			declared[property] = append(declared[property], value)
		}
	}
	if len(declared) == 0 {
		return types.DynType
	}
	fields := map[string]*types.Type{}
	t.fields[name] = fields
	for property, values := range declared {
		fields[property] = t.read(name+"."+property, values)
	}
	return types.NewObjectType(name)
}

// undefined is how CEL says that a field is not there; the field is in the group.
var undefined = regexp.MustCompile(`^undefined field '(.*)'$`)

// check returns what is wrong with the fields that the condition names. That CEL finds no way to use a field is passed over: an
// object is also a map, and a number compares with any other.
func (t *argumentTypes) check(when, has string, args *types.Type) error {
	base, err := permissionEnv()
	if err != nil {
		return err
	}
	t.Provider = base.CELTypeProvider()
	env, err := newEnv(args, permissionTexts, cel.CustomTypeProvider(t))
	if err != nil {
		return err
	}
	_, issues := env.Compile(when)
	for _, issue := range issues.Errors() {
		if m := undefined.FindStringSubmatch(issue.Message); m != nil {
			return sdk.Errorf(sdk.CodeConfig, "%q, column %d: %s no argument %q%s",
				when, issue.Location.Column()+1, has, m[1], spelling.Suggest(m[1], t.names()))
		}
	}
	return nil
}

// names are those of all fields, in order.
func (t *argumentTypes) names() []string {
	var names []string
	for _, fields := range t.fields {
		names = slices.AppendSeq(names, maps.Keys(fields))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FindStructType implements types.Provider, as do the methods that follow.
func (t *argumentTypes) FindStructType(name string) (*types.Type, bool) {
	if _, known := t.fields[name]; known {
		return types.NewTypeTypeWithParam(types.NewObjectType(name)), true
	}
	return t.Provider.FindStructType(name)
}

// FindStructFieldNames lists the fields of an object.
func (t *argumentTypes) FindStructFieldNames(name string) ([]string, bool) {
	if fields, known := t.fields[name]; known {
		return slices.Sorted(maps.Keys(fields)), true
	}
	return t.Provider.FindStructFieldNames(name)
}

// FindStructFieldType is the type of one field.
func (t *argumentTypes) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if fields, known := t.fields[name]; known {
		kind, ok := fields[field]
		return &types.FieldType{Type: kind}, ok
	}
	return t.Provider.FindStructFieldType(name, field)
}
