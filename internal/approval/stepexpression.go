package approval

import (
	"fmt"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"agentd/sdk"
)

// stepEnv is what expressions of a plan see: the results of steps, by those names.
func stepEnv(names []string) func() (*cel.Env, error) {
	return func() (*cel.Env, error) {
		var variables []cel.EnvOption
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
// decoded JSON. An object in which one list is stands for that list.
func CompileStepList(each string, names []string) (func(results map[string]any) ([]any, error), error) {
	program, err := compileYielding(stepEnv(names), each, "a list", cel.ListKind, cel.MapKind)
	if err != nil {
		return nil, err
	}
	return func(results map[string]any) ([]any, error) {
		value, _, err := program.Eval(results)
		if err != nil {
			return nil, fmt.Errorf("evaluate %q: %w", each, err)
		}
		if elements, ok := listIn(decoded(value)); ok {
			return elements, nil
		}
		return nil, sdk.Errorf(sdk.CodeTool, "%q yields %s, want a list", each, value.Type().TypeName())
	}, nil
}

// listIn is a value that is a list, or the one list in an object.
func listIn(value any) ([]any, bool) {
	object, ok := value.(map[string]any)
	if !ok {
		list, ok := value.([]any)
		return list, ok
	}
	var found [][]any
	for _, field := range object {
		if list, ok := field.([]any); ok {
			found = append(found, list)
		}
	}
	if len(found) != 1 {
		return nil, false
	}
	return found[0], true
}

// decoded is a value of CEL as decoded JSON has it.
func decoded(value ref.Val) any {
	switch v := value.(type) {
	case traits.Lister:
		list := []any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			list = append(list, decoded(it.Next()))
		}
		return list
	case traits.Mapper:
		object := map[string]any{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			object[fmt.Sprint(key.Value())] = decoded(v.Get(key))
		}
		return object
	}
	if value == types.NullValue {
		return nil
	}
	return value.Value()
}
