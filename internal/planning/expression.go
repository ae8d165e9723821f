package planning

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentd/internal/core"
	"agentd/internal/expression"
)

// variable is how expressions call the result of a step; planners write it in other ways too.
var variable = regexp.MustCompile(`(?i)\bsteps?[ _#]{0,3}(\d{1,4})\b`)

// nameOf is the variable for the result of the step of that number.
func nameOf(step int) string { return "step" + strconv.Itoa(step) }

// rewrite has an expression call the steps as refer does, and returns the steps that it calls.
func rewrite(text string, refer func(n int) (int, error)) (string, []int, error) {
	var out strings.Builder
	var calls []int
	for text != "" {
		code, quoted, rest := cutQuoted(text)
		text = rest
		last := 0
		for _, m := range variable.FindAllStringSubmatchIndex(code, -1) {
			if m[0] > 0 && strings.IndexByte("._$", code[m[0]-1]) >= 0 {
				continue // a field of something
			}
			n, _ := strconv.Atoi(code[m[2]:m[3]]) // four digits at most
			at, err := refer(n)
			if err != nil {
				return "", nil, fmt.Errorf("it calls step %d, %w", n, err)
			}
			calls = append(calls, at)
			out.WriteString(code[last:m[0]] + nameOf(at))
			last = m[1]
		}
		out.WriteString(code[last:] + quoted)
	}
	slices.Sort(calls)
	return out.String(), slices.Compact(calls), nil
}

// cutQuoted cuts an expression after its first text in quotation marks.
func cutQuoted(text string) (code, quoted, rest string) {
	from := strings.IndexAny(text, `"'`)
	if from < 0 {
		return text, "", ""
	}
	for i := from + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case text[from]:
			return text[:from], text[from : i+1], text[i+1:]
		}
	}
	return text[:from], text[from:], ""
}

// asWritten is an expression as it was written: texts in it keep their spaces, and comments end where their lines do.
func asWritten(written string) string {
	return strings.TrimSpace(strings.ToValidUTF8(written, "\uFFFD"))
}

// calledIn are the steps whose results an expression calls.
func calledIn(text string) []int {
	_, calls, _ := rewrite(text, func(n int) (int, error) { return n, nil }) // never fails
	return calls
}

func namesIn(text string) []string {
	var names []string
	for _, n := range calledIn(text) {
		names = append(names, nameOf(n))
	}
	return names
}

// bareStep is a list that is the result of a step, written as its number.
var bareStep = regexp.MustCompile(`^[\s\[]*#?(\d{1,4})[\s\]]*$`)

// listExpression is the expression for a list as a planner has written it.
func listExpression(written string) string {
	if m := bareStep.FindStringSubmatch(written); m != nil {
		return "step" + m[1]
	}
	if strings.HasPrefix(written, `"`) || strings.HasPrefix(written, "'") {
		return "[" + written + "]"
	}
	return written
}

// checkExpressions says what is wrong with what a step says in CEL.
func checkExpressions(s *core.PlanStep) error {
	if s.When != "" {
		if _, err := expression.CompileStepCondition(s.When, namesIn(s.When)); err != nil {
			return fmt.Errorf("its condition cannot be read: %w", err)
		}
	}
	if s.Each != "" {
		if _, err := expression.CompileStepList(s.Each, namesIn(s.Each)); err != nil {
			return fmt.Errorf("its list cannot be read: %w", err)
		}
	}
	return nil
}

// Calls are the steps whose results the condition of a step and its list call.
func Calls(s *core.PlanStep) []int {
	calls := append(calledIn(s.When), calledIn(s.Each)...)
	slices.Sort(calls)
	return slices.Compact(calls)
}

// Holds reports whether the condition of a step holds for results, by their steps. The error says why nobody can tell.
func Holds(s *core.PlanStep, results map[int]json.RawMessage) (bool, error) {
	if s.When == "" {
		return true, nil
	}
	holds, err := expression.CompileStepCondition(s.When, namesIn(s.When))
	if err != nil {
		return false, err
	}
	return holds(variables(results))
}

// Elements are those of the list of a step, in results by their steps, most of them at most. Whoever evaluates it has the same ones in the same
// order.
func Elements(s *core.PlanStep, results map[int]json.RawMessage, most int) ([]json.RawMessage, error) {
	list, err := expression.CompileStepList(s.Each, namesIn(s.Each))
	if err != nil {
		return nil, err
	}
	elements, err := list(variables(results), most)
	if err != nil {
		return nil, err
	}
	all := make([]json.RawMessage, len(elements))
	for i, e := range elements {
		if all[i], err = core.EncodeJSON(e); err != nil {
			return nil, fmt.Errorf("element %d of %q: %w", i+1, s.Each, err)
		}
	}
	return all, nil
}

// variables are results as expressions see them. A text that is JSON counts as that, also the text that most MCP servers answer with.
func variables(results map[int]json.RawMessage) map[string]any {
	all := map[string]any{}
	for n, data := range results {
		var value any
		if json.Unmarshal(data, &value) != nil {
			value = string(data)
		}
		all[nameOf(n)] = inText(value)
	}
	return all
}

// inText is the JSON that a result has as its only text, or the result. An object in it has the text, too, where it has no such member.
func inText(result any) any {
	object, _ := result.(map[string]any)
	text, is := result.(string)
	if len(object) == 1 {
		text, is = object["text"].(string)
	}
	var inner any
	if !is || strings.IndexAny(strings.TrimSpace(text), "{[") != 0 || json.Unmarshal([]byte(text), &inner) != nil {
		return result
	}
	if members, ok := inner.(map[string]any); ok && object != nil && members["text"] == nil {
		members["text"] = text
	}
	return inner
}
