package planning

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"agentd/internal/core"
	"agentd/internal/toolcall"
	"agentd/sdk"
)

// Plan is what a planner has written: steps, or an answer where none are needed.
type Plan struct {
	Steps  []core.PlanStep
	Answer string
}

// written is a step as it was written, with the number that the planner gave it; 0 is none.
type written struct {
	number     int
	text, tool string
	after      []int
	when, each string
}

// maxWritten is the size of what a planner writes, in bytes, at most.
const maxWritten = 64 << 10

// Parse reads a plan: calls of plan.add_step and plan.respond, one a line, or else a JSON object. kept are the steps of earlier plans that
// a step may refer to, and first is the number of the first new step. The error says what is wrong, for the planner.
func Parse(text string, kept []core.PlanStep, first int) (Plan, error) {
	if len(text) > maxWritten {
		return Plan{}, fmt.Errorf("the plan has %d bytes; at most %d are allowed", len(text), maxWritten)
	}
	steps, answer := parseCalls(text)
	if len(steps) == 0 && answer == "" {
		steps, answer = parseObject(text)
	}
	switch {
	case len(steps) == 0 && strings.TrimSpace(answer) == "":
		return Plan{}, fmt.Errorf("no step of a plan could be read")
	case len(steps) == 0:
		return Plan{Answer: strings.TrimSpace(answer)}, nil
	case len(steps) > core.MaxPlanSteps:
		return Plan{}, fmt.Errorf("the plan has %d steps; at most %d are allowed", len(steps), core.MaxPlanSteps)
	}
	return numbered(steps, kept, first)
}

// FromTemplate is the plan of a template, whose steps are numbered from first.
func FromTemplate(t *sdk.PlanTemplate, first int) (Plan, error) {
	var steps []written
	for i, s := range t.Steps {
		steps = append(steps, written{number: i + 1, text: s.Text, tool: s.Tool, after: s.After, when: s.When, each: s.Each})
	}
	if len(steps) == 0 || len(steps) > core.MaxPlanSteps {
		return Plan{}, fmt.Errorf("it has %d steps; want 1 to %d", len(steps), core.MaxPlanSteps)
	}
	return numbered(steps, nil, first)
}

// numbered gives steps their numbers in the run, and their references.
func numbered(steps []written, kept []core.PlanStep, first int) (Plan, error) {
	var plan Plan
	for i, w := range steps {
		s := core.PlanStep{Text: plain(w.text), Tool: plain(w.tool)}
		switch {
		case s.Text == "":
			return Plan{}, fmt.Errorf("step %d says nothing", i+1)
		case core.InJSON(s.Text) > core.MaxStepText:
			return Plan{}, fmt.Errorf("step %d has %d bytes; at most %d are allowed", i+1, core.InJSON(s.Text), core.MaxStepText)
		}
		before := func(n int) (int, error) {
			at, ok := refer(n, steps[:i], kept, first)
			switch {
			case !ok:
				return n, errors.New("which is not before it")
			case severally(steps[:i], n):
				return n, errors.New("and several steps have that number")
			}
			return at, nil
		}
		for _, n := range w.after {
			at, err := before(n)
			if err != nil {
				return Plan{}, fmt.Errorf("step %d comes after step %d, %w", i+1, n, err)
			}
			s.After = append(s.After, at)
		}
		for _, n := range mentioned(s.Text) {
			if at, err := before(n); err == nil {
				s.After = append(s.After, at)
			} else if severally(steps[:i], n) {
				return Plan{}, fmt.Errorf("step %d names step %d, %w", i+1, n, err)
			}
		}
		if err := w.expressions(&s, before); err != nil {
			return Plan{}, fmt.Errorf("step %d: %w", i+1, err)
		}
		slices.Sort(s.After)
		s.After = slices.Compact(s.After)
		plan.Steps = append(plan.Steps, s)
	}
	return plan, nil
}

// severally reports whether more than one of those steps has that number.
func severally(steps []written, number int) bool {
	n := 0
	for _, w := range steps {
		if w.number == number && number != 0 {
			n++
		}
	}
	return n > 1
}

// expressions gives the step its condition and its list. It comes after the steps whose results they call.
func (w *written) expressions(s *core.PlanStep, before func(n int) (int, error)) error {
	for _, e := range []struct {
		is    *string
		text  string
		bytes int
		what  string
	}{
		{&s.When, asWritten(w.when), core.MaxStepWhen, "condition"},
		{&s.Each, listExpression(asWritten(w.each)), core.MaxStepEach, "list"},
	} {
		text, calls, err := rewrite(e.text, before)
		if err != nil {
			return fmt.Errorf("its %s cannot be: %w", e.what, err)
		}
		if n := core.InJSON(text); n > e.bytes {
			return fmt.Errorf("its %s has %d bytes; at most %d are allowed", e.what, n, e.bytes)
		}
		*e.is = text
		s.After = append(s.After, calls...)
	}
	return checkExpressions(s)
}

// refer is the number in the run of the step that a plan means by n: one before it in the plan, or one that is done.
func refer(n int, before []written, kept []core.PlanStep, first int) (int, bool) {
	for i, w := range before {
		if w.number == n || w.number == 0 && first+i == n {
			return first + i, true
		}
	}
	return n, slices.ContainsFunc(kept, func(s core.PlanStep) bool { return s.Number == n && s.Status == core.StepDone })
}

var (
	mention = regexp.MustCompile(`(?i)\bsteps?\s+#?(\d{1,4}(?:\s*(?:,|&|and|or)\s*#?\d{1,4})*)`)
	number  = regexp.MustCompile(`\d+`)
)

// mentioned are the steps that a text names by their numbers.
func mentioned(text string) []int {
	var all []int
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		for _, digits := range number.FindAllString(m[1], -1) {
			n, _ := strconv.Atoi(digits) // four digits at most
			all = append(all, n)
		}
	}
	return all
}

// plain is a text in one line, without control characters.
func plain(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && !unicode.IsSpace(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

var call = regexp.MustCompile(`(?:^|[^.\w])plan\.(add_step|respond)\s*\(`)

// parseCalls reads calls of plan.add_step and plan.respond, wherever they stand.
func parseCalls(text string) (steps []written, answer string) {
	for {
		at := call.FindStringSubmatchIndex(text)
		if at == nil {
			return steps, answer
		}
		name := text[at[2]:at[3]]
		args, rest := arguments(text[at[1]:])
		text = rest
		if name == "respond" {
			answer = first(args, "message", "text", "response", "")
			continue
		}
		w := written{text: first(args, "text", "description", "task"), tool: first(args, "tool", "server", "expected_server")}
		if n, err := strconv.Atoi(first(args, "step", "number", "step_number")); err == nil {
			w.number = n
		} else if w.text == "" {
			w.text = first(args, "step", "")
		}
		w.after = numbersIn(first(args, "after", "depends_on"))
		w.when, w.each = first(args, conditionNames...), first(args, listNames...)
		steps = append(steps, w)
	}
}

// How planners call the condition of a step, and its list.
var (
	conditionNames = []string{"when", "condition", "if"}
	listNames      = []string{"each", "for_each", "foreach", "over"}
)

// first is the first argument that is there of those names.
func first(args map[string]string, names ...string) string {
	for _, name := range names {
		if value := args[name]; value != "" {
			return value
		}
	}
	return ""
}

// arguments reads name=value pairs up to the closing bracket, as models write them: texts in quotation marks of either kind, lists in
// brackets, other values as they are. A value without a name has the name "". What cannot be read ends them.
func arguments(text string) (args map[string]string, rest string) {
	args = map[string]string{}
	for {
		text = strings.TrimLeft(text, " \t\r\n,")
		if text == "" || text[0] == ')' {
			return args, strings.TrimPrefix(text, ")")
		}
		name := ""
		if m := argumentName.FindStringSubmatch(text); m != nil {
			name, text = m[1], text[len(m[0]):]
		}
		value, after, ok := argumentValue(text)
		if !ok {
			return args, text
		}
		args[name], text = value, after
	}
}

var argumentName = regexp.MustCompile(`^([A-Za-z_]\w*)\s*[=:]\s*`)

func argumentValue(text string) (value, rest string, ok bool) {
	if text == "" {
		return "", "", false
	}
	switch quote := text[0]; quote {
	case '"', '\'':
		var b strings.Builder
		for i := 1; i < len(text); i++ {
			switch {
			case text[i] == '\\' && i+1 < len(text):
				i++
				b.WriteByte(unescaped(text[i]))
			case text[i] == quote:
				return b.String(), text[i+1:], true
			default:
				b.WriteByte(text[i])
			}
		}
		return "", text, false // cut off
	case '[':
		if end := strings.IndexByte(text, ']'); end >= 0 {
			return text[1:end], text[end+1:], true
		}
		return "", text, false
	}
	end := strings.IndexAny(text, ",)\n")
	if end < 0 {
		end = len(text)
	}
	return strings.TrimSpace(text[:end]), text[end:], true
}

func unescaped(b byte) byte {
	if b == 'n' || b == 't' || b == 'r' {
		return ' '
	}
	return b
}

// fields are those of an object, as they were written.
type fields map[string]json.RawMessage

// parseObject reads a plan as a JSON object, in the names that planners use, and repaired where it has to be.
func parseObject(text string) (steps []written, answer string) {
	from, to := strings.IndexByte(text, '{'), strings.LastIndexByte(text, '}')
	if from < 0 {
		return nil, ""
	}
	if text = text[from:]; to > from {
		text = text[:to-from+1]
	}
	type object struct {
		Answer   string   `json:"direct_response"`
		Response string   `json:"response"`
		Steps    []fields `json:"steps"`
	}
	var o object
	if json.Unmarshal([]byte(text), &o) != nil {
		repaired, _, ok := toolcall.Repair(text, true)
		o = object{}
		if !ok || json.Unmarshal([]byte(repaired), &o) != nil {
			return nil, ""
		}
	}
	for _, f := range o.Steps {
		w := written{
			text: firstOf(f.text("text"), f.text("description")), tool: firstOf(f.text("tool"), f.text("expected_server"), f.text("server")),
			after: append(f.numbers("after"), f.numbers("depends_on")...),
			when:  firstOf(f.written("when"), f.written("condition")), each: firstOf(f.written("each"), f.written("for_each")),
		}
		w.number = cmp.Or(f.number("step_number"), f.number("step"))
		w.text = firstOf(w.text, f.text("step"))
		steps = append(steps, w)
	}
	return steps, firstOf(o.Answer, o.Response)
}

// text is a field that is a text.
func (f fields) text(name string) string {
	var text string
	_ = json.Unmarshal(f[name], &text) // what is none says nothing
	return text
}

// written is an expression: a text, or what stands in its place, as a list does.
func (f fields) written(name string) string {
	if data := string(f[name]); !strings.HasPrefix(data, `"`) && data != "null" {
		return data
	}
	return f.text(name)
}

// bareNumber is a text that is the number of a step, and nothing else.
var bareNumber = regexp.MustCompile(`(?i)^\s*(?:step)?\s*#?(\d+)\s*$`)

// number is a field that is the number of a step; 0 is none.
func (f fields) number(name string) int {
	text := strings.TrimSuffix(string(f[name]), ".0")
	if strings.HasPrefix(text, `"`) {
		text = f.text(name)
	}
	if m := bareNumber.FindStringSubmatch(text); m != nil {
		return numbersIn(m[1])[0]
	}
	return 0
}

// numbersIn are the numbers of steps in a text; one that no step can have is too large for any.
func numbersIn(text string) []int {
	var all []int
	for _, digits := range number.FindAllString(text, -1) {
		n, err := strconv.Atoi(digits)
		if err != nil {
			n = maxNumber + 1
		}
		all = append(all, min(n, maxNumber+1))
	}
	return all
}

// numbers are those of a field: a number, a text with numbers, or a list of either.
func (f fields) numbers(name string) []int {
	var all []int
	var add func(value any)
	add = func(value any) {
		switch v := value.(type) {
		case float64:
			all = append(all, int(min(max(v, -1), maxNumber+1)))
		case string:
			all = append(all, numbersIn(v)...)
		case []any:
			for _, element := range v {
				add(element)
			}
		}
	}
	var value any
	_ = json.Unmarshal(f[name], &value) // what is none says nothing
	add(value)
	return all
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}
