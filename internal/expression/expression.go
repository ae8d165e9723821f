// Package expression is the language of conditions, patterns, tags and steps of plans: CEL, in which each is compiled for what it may name,
// bounded in its length and in what it costs, and evaluated. It is pure: the same text means the same for the same values.
package expression

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"agentd/sdk"
)

// Bounds of one expression: its length in bytes, and what evaluating it may cost, in CEL's own units (about one for each
// operation).
const (
	maxExpression = 4096
	maxCost       = 100_000
)

// permissionEnv is what conditions of permissions see; patternEnv is what patterns of grants see.
var (
	permissionEnv = sync.OnceValues(func() (*cel.Env, error) { return newEnv(cel.DynType, permissionTexts) })
	patternEnv    = sync.OnceValues(func() (*cel.Env, error) { return newEnv(cel.DynType, nil) })
)

// VariableTool and VariableType are what conditions of permissions call the tool, and the type of its contract.
const (
	VariableTool = "tool"
	VariableType = "type"
)

// permissionTexts are the variables of conditions of permissions that are texts.
var permissionTexts = []string{VariableTool, VariableType, "agent", "run", "initiator"}

func newEnv(args *cel.Type, texts []string, options ...cel.EnvOption) (*cel.Env, error) {
	options = append(options, cel.Variable(variableArgs, args), cel.Variable("labels", cel.MapType(cel.StringType, cel.BoolType)))
	for _, name := range texts {
		options = append(options, cel.Variable(name, cel.StringType))
	}
	return cel.NewEnv(options...)
}

// compileExpression compiles a CEL expression that must yield a boolean. The error is CodeConfig.
func compileExpression(env func() (*cel.Env, error), text string) (cel.Program, error) {
	return compileYielding(env, text, "true or false", cel.BoolKind)
}

// compileYielding compiles a CEL expression that must yield one of those kinds, which want is in words; none is any. The error is CodeConfig.
func compileYielding(env func() (*cel.Env, error), text, want string, kinds ...cel.Kind) (cel.Program, error) {
	if len(text) > maxExpression {
		return nil, sdk.Errorf(sdk.CodeConfig, "the expression has %d bytes, the limit is %d", len(text), maxExpression)
	}
	e, err := env()
	if err != nil {
		return nil, fmt.Errorf("make the CEL environment: %w", err)
	}
	compiled, issues := e.Compile(text)
	if issues.Err() != nil {
		first := issues.Errors()[0]
		return nil, sdk.Errorf(sdk.CodeConfig, "%q is not a CEL expression: column %d: %s", text, first.Location.Column()+1, first.Message)
	}
	if yields := compiled.OutputType(); len(kinds) > 0 && yields != cel.DynType && !slices.Contains(kinds, yields.Kind()) {
		return nil, sdk.Errorf(sdk.CodeConfig, "%q yields %s, want %s", text, yields, want)
	}
	program, err := e.Program(compiled, cel.CostLimit(maxCost))
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeConfig, "%q cannot be evaluated: %s", text, err)
	}
	return program, nil
}

// Comparison is of a variable with a text.
type Comparison struct{ Variable, Value string }

// Comparisons are those of a condition of permissions by ==, != and in, where a side is a variable and the other a text, or a list of them. Of one that
// cannot be compiled there are none.
func Comparisons(when string) []Comparison {
	env, err := permissionEnv()
	if err != nil {
		return nil
	}
	compiled, issues := env.Compile(when)
	if issues.Err() != nil {
		return nil
	}
	var found []Comparison
	ast.PreOrderVisit(compiled.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !slices.Contains([]string{operators.Equals, operators.NotEquals, operators.In}, e.AsCall().FunctionName()) {
			return
		}
		sides := e.AsCall().Args()
		for i, side := range sides {
			if side.Kind() != ast.IdentKind {
				continue
			}
			others := []ast.Expr{sides[1-i]}
			if others[0].Kind() == ast.ListKind {
				others = others[0].AsList().Elements()
			}
			for _, other := range others {
				if text, ok := literal(other); ok {
					found = append(found, Comparison{side.AsIdent(), text})
				}
			}
		}
	}))
	return found
}

// literal is the text that an expression is.
func literal(e ast.Expr) (text string, ok bool) {
	if e.Kind() == ast.LiteralKind {
		text, ok = e.AsLiteral().Value().(string)
	}
	return text, ok
}

// evaluate is ok when the expression yields a boolean at all.
func evaluate(program cel.Program, variables map[string]any) (result, ok bool) {
	value, _, err := program.Eval(variables)
	if err != nil {
		return false, false
	}
	result, ok = value.Value().(bool)
	return result, ok
}

// CheckPattern reports what is wrong with the pattern of a grant: a CEL expression over args.
func CheckPattern(pattern string) error {
	_, err := compileExpression(patternEnv, pattern)
	return err
}

// Matches reports whether arguments match the pattern of a grant. It is not known of a pattern that cannot be read, or be evaluated over
// them within its bounds, and then matches is false. It is pure, so that the core may use it.
func Matches(pattern string, args json.RawMessage) (matches, known bool) {
	program, err := compileExpression(patternEnv, pattern)
	if err != nil {
		return false, false
	}
	var decoded any
	if err := json.Unmarshal(args, &decoded); err != nil {
		return false, false
	}
	return evaluate(program, map[string]any{variableArgs: decoded, "labels": map[string]bool{}})
}

// ruleEnv is what the conditions of an agent's rules see (sdk.HookRule).
var ruleEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("step", cel.IntType), cel.Variable("interactions", cel.IntType), cel.Variable("tokens", cel.IntType),
		cel.Variable("units", cel.DoubleType), cel.Variable("lifecycle", cel.StringType), cel.Variable("input", cel.DynType),
		cel.Variable("run", cel.StringType), cel.Variable("agent", cel.StringType),
	)
})

// gateEnv is what the condition of a gate of outputs sees.
var gateEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("output", cel.DynType), cel.Variable("input", cel.DynType), cel.Variable("run", cel.StringType),
		cel.Variable("agent", cel.StringType),
	)
})

// tagEnv is what tags of an agent's runs are made of.
var tagEnv = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		cel.Variable("input", cel.DynType), cel.Variable("run", cel.StringType), cel.Variable("agent", cel.StringType),
		cel.Variable("initiator", cel.StringType),
	)
})

// CompileTag compiles the value of a tag. What it returns is ok when the expression yields a text, a number or a boolean.
func CompileTag(text string) (func(variables map[string]any) (value string, ok bool), error) {
	program, err := compileYielding(tagEnv, text, "a value")
	if err != nil {
		return nil, err
	}
	return func(variables map[string]any) (string, bool) {
		value, _, err := program.Eval(variables)
		if err != nil {
			return "", false
		}
		switch value.Type() {
		case types.StringType, types.IntType, types.UintType, types.DoubleType, types.BoolType:
			text, ok := value.ConvertToType(types.StringType).Value().(string)
			return text, ok
		}
		return "", false
	}, nil
}

// Condition says whether a condition holds for variables, which are decoded JSON. It is ok when that can be said at all.
type Condition func(variables map[string]any) (holds, ok bool)

// CompilePermission compiles the condition of a permission (sdk.PermissionRule).
func CompilePermission(when string) (Condition, error) { return compileCondition(permissionEnv, when) }

// CompileGate compiles the condition of a gate of outputs.
func CompileGate(when string) (Condition, error) { return compileCondition(gateEnv, when) }

// CompileRule compiles the condition of a rule (sdk.HookRule).
func CompileRule(when string) (Condition, error) { return compileCondition(ruleEnv, when) }

func compileCondition(env func() (*cel.Env, error), when string) (Condition, error) {
	program, err := compileExpression(env, when)
	if err != nil {
		return nil, err
	}
	return func(variables map[string]any) (bool, bool) { return evaluate(program, variables) }, nil
}
