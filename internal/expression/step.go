package expression

import (
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"agentd/internal/clip"
	"agentd/sdk"
)

// stepEnv is what expressions of a plan see: the results of steps, by those names.
func stepEnv(names []string) func() (*cel.Env, error) {
	return func() (*cel.Env, error) {
		variables := []cel.EnvOption{cel.CustomTypeAdapter(inOrder{})}
		for _, name := range names {
			variables = append(variables, cel.Variable(name, cel.DynType))
		}
		return cel.NewEnv(variables...)
	}
}

// CompileStepCondition compiles the condition of a step of a plan, over results with those names. What it returns says whether the condition
// holds for results, which are decoded JSON.
func CompileStepCondition(when string, names []string) (func(results map[string]any) (bool, error), error) {
	program, err := compileExpression(stepEnv(names), when)
	if err != nil {
		return nil, err
	}
	return func(results map[string]any) (bool, error) {
		value, _, err := program.Eval(results)
		if err != nil {
			return false, fmt.Errorf("evaluate %q: %w", when, err)
		}
		holds, ok := value.Value().(bool)
		if !ok {
			return false, sdk.Errorf(sdk.CodeTool, "%q yields %s, want true or false", when, value.Type().TypeName())
		}
		return holds, nil
	}, nil
}

// CompileStepList compiles the list of a step of a plan, as CompileStepCondition does its condition. What it returns gives the elements, as
// decoded JSON: most of them at most, and the same ones in the same order for the same results. An object in which one list is stands for that list.
func CompileStepList(each string, names []string) (func(results map[string]any, most int) ([]any, error), error) {
	program, err := compileYielding(stepEnv(names), each, "a list", cel.ListKind, cel.MapKind)
	if err != nil {
		return nil, err
	}
	if namesObject(stepEnv(names), each) {
		return nil, sdk.Errorf(sdk.CodeConfig, "%q goes through the names of an object that it writes itself; write a list of them", each)
	}
	return func(results map[string]any, most int) ([]any, error) {
		value, _, err := program.Eval(results)
		if err != nil {
			return nil, fmt.Errorf("evaluate %q: %w", each, err)
		}
		list, ok := listIn(value)
		if !ok {
			return nil, sdk.Errorf(sdk.CodeTool, "%q yields %s, want a list", each, value.Type().TypeName())
		}
		if n, ok := list.Size().(types.Int); !ok || int(n) > most {
			return nil, sdk.Errorf(sdk.CodeTool, "%q has %v elements, and there is room for %d", each, list.Size(), most)
		}
		all := []any{}
		for it := list.Iterator(); it.HasNext() == types.True; {
			d := decoder{left: MaxElement}
			all = append(all, d.decoded(it.Next()))
		}
		return all, nil
	}, nil
}

// MaxElement is how much there is of an element of a list, in bytes as JSON, about: what is longer is cut. An expression may have the same large
// value in many places.
const MaxElement = 16 << 10

// namesObject reports whether an expression goes through the names of an object that it writes itself, whose order nobody knows.
func namesObject(env func() (*cel.Env, error), text string) bool {
	e, err := env()
	if err != nil {
		return false
	}
	compiled, issues := e.Compile(text)
	if issues.Err() != nil {
		return false
	}
	found := false
	ast.PreOrderVisit(compiled.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		found = found || e.Kind() == ast.ComprehensionKind && e.AsComprehension().IterRange().Kind() == ast.MapKind
	}))
	return found
}

// listIn is a value that is a list, or the one list in an object.
func listIn(value ref.Val) (traits.Lister, bool) {
	object, ok := value.(traits.Mapper)
	if !ok {
		list, ok := value.(traits.Lister)
		return list, ok
	}
	var found []traits.Lister
	for it := object.Iterator(); it.HasNext() == types.True && len(found) < 2; {
		if list, ok := object.Get(it.Next()).(traits.Lister); ok {
			found = append(found, list)
		}
	}
	if len(found) != 1 {
		return nil, false
	}
	return found[0], true
}

// decoder makes decoded JSON of a value of CEL: as much of it as is left, in bytes as JSON, about.
type decoder struct{ left int }

func (d *decoder) decoded(value ref.Val) any {
	d.left--
	switch v := value.(type) {
	case traits.Lister:
		all := []any{}
		for it := v.Iterator(); it.HasNext() == types.True && d.left > 0; {
			all = append(all, d.decoded(it.Next()))
		}
		return all
	case traits.Mapper:
		return d.object(v)
	case types.String:
		return d.text(string(v))
	case types.Bytes:
		return d.text(string(v))
	case types.Null:
		return nil
	}
	return value.Value()
}

func (d *decoder) object(v traits.Mapper) any {
	if n, ok := v.Size().(types.Int); !ok || int(n) > d.left {
		return d.text(fmt.Sprintf("an object of %v fields", v.Size()))
	}
	object := map[string]any{}
	for it := v.Iterator(); it.HasNext() == types.True && d.left > 0; {
		key := it.Next()
		object[d.text(fmt.Sprint(key.Value()))] = d.decoded(v.Get(key))
	}
	return object
}

func (d *decoder) text(text string) string {
	text = clip.Text(text, max(d.left, 0))
	d.left -= len(text)
	return text
}

// inOrder has expressions go through the keys of objects in their order, so that they yield the same list each time.
type inOrder struct{}

// NativeToValue implements types.Adapter.
func (inOrder) NativeToValue(value any) ref.Val {
	switch v := value.(type) {
	case map[string]any:
		return ordered{types.NewStringInterfaceMap(inOrder{}, v)}
	case []any:
		return types.NewDynamicList(inOrder{}, v)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// ordered is an object of decoded JSON with its keys in their order.
type ordered struct{ traits.Mapper }

// mostOrdered is how many fields an object has at most that are put in order. No expression goes through all of more: that costs too much.
const mostOrdered = 32 << 10

// Iterator implements traits.Iterable.
func (o ordered) Iterator() traits.Iterator {
	if n, ok := o.Size().(types.Int); !ok || n > mostOrdered {
		return o.Mapper.Iterator()
	}
	var keys []ref.Val
	for it := o.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int {
		left, _ := a.Value().(string) // names in JSON are texts
		right, _ := b.Value().(string)
		return strings.Compare(left, right)
	})
	return types.NewRefValList(inOrder{}, keys).Iterator()
}
