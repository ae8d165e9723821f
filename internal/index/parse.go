package index

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"agentd/internal/spelling"
	"agentd/internal/strict"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Limits of filters and tags.
const (
	// MaxFilter is how long a filter is at most, in bytes, and MaxTerms how many terms it has.
	MaxFilter = 4096
	MaxTerms  = 32
)

// form is how the values of a key are written.
type form int

const (
	asText form = iota
	asOneOf
	asTime
	asDuration
	asNumber
)

// keys are all keys but those of tags and words, with their forms; those with asOneOf take only these values.
var keys = map[string]struct {
	form
	values []string
}{
	KeyRun: {}, KeyAgent: {}, KeySpec: {}, KeyCode: {}, KeyWho: {}, KeyParent: {}, KeyTool: {},
	KeyStatus: {asOneOf, []string{string(wire.StatusRunning), string(wire.StatusWaiting), string(wire.StatusDone)}},
	KeyReason: {asOneOf, []string{
		string(wire.ReasonCompleted), string(wire.ReasonStopped), string(wire.ReasonCancelled), string(wire.ReasonDeadline), string(wire.ReasonQuota),
		string(wire.ReasonError), string(wire.ReasonStalled), string(wire.ReasonTerminated), string(wire.ReasonUndone),
	}},
	KeyWaits: {asOneOf, []string{
		"service", "inline", "turn", "permission", "question", "context",
		string(wire.ParkModel), string(wire.ParkRate), string(wire.ParkPaused), string(wire.ParkBudget), string(wire.ParkSlot),
	}},
	KeyStarted: {form: asTime}, KeyChanged: {form: asTime}, KeyDue: {form: asTime}, KeyDeadline: {form: asTime},
	KeyDuration: {form: asDuration}, KeyTurns: {form: asNumber}, KeyTokens: {form: asNumber},
}

// Reasons are those that runs end with.
func Reasons() []string { return slices.Clone(keys[KeyReason].values) }

// Fault is one thing that is wrong with a filter. At counts its characters from 1.
type Fault struct {
	At      int    `json:"at"`
	Message string `json:"message"`
}

// Faults is everything that is wrong with a filter, in order. As an error it has the code sdk.CodeInvalidEvent.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i, fault := range f {
		lines[i] = fmt.Sprintf("filter, character %d: %s", fault.At, fault.Message)
	}
	return strings.Join(lines, "\n")
}

// As makes Faults an *sdk.Error of CodeInvalidEvent.
func (f Faults) As(target any) bool {
	e, ok := target.(**sdk.Error)
	if ok {
		*e = sdk.Errorf(sdk.CodeInvalidEvent, "%s", f.Error())
	}
	return ok
}

// Is reports whether target is an *sdk.Error of CodeInvalidEvent.
func (f Faults) Is(target error) bool {
	e, ok := target.(*sdk.Error)
	return ok && e.Code == sdk.CodeInvalidEvent
}

// ParseFilter reads a filter such as
//
//	agent:travel.* status:waiting waits:permission tag.tenant:acme who:anna changed>-1h -reason:completed "lisbon"
//
// Times are relative to now (-1h, +30m, -7d) or absolute (2026-11-22, 2026-11-22T10:00:00Z). A value that ends with "*" is the beginning
// of what is looked for, "*" alone any value but none, and "" none. The error is Faults, with every fault.
func ParseFilter(text string) (Filter, error) {
	p := parser{text: []rune(text)}
	if len(text) > MaxFilter {
		return Filter{}, Faults{{1, fmt.Sprintf("the filter has %d bytes; %d are allowed", len(text), MaxFilter)}}
	}
	var f Filter
	for p.skip(); p.at < len(p.text); p.skip() {
		start := p.at
		term := p.term()
		if len(f.Terms) == MaxTerms {
			p.faultf(start, "more than %d conditions; leave some out", MaxTerms)
			break
		}
		f.Terms = append(f.Terms, term)
	}
	if len(p.faults) > 0 {
		return Filter{}, p.faults
	}
	return f, nil
}

type parser struct {
	text   []rune
	at     int
	faults Faults
}

func (p *parser) faultf(at int, format string, args ...any) {
	p.faults = append(p.faults, Fault{at + 1, fmt.Sprintf(format, args...)})
}

func (p *parser) skip() {
	for p.at < len(p.text) && unicode.IsSpace(p.text[p.at]) {
		p.at++
	}
}

// next reports whether the next character is one of these.
func (p *parser) next(chars string) bool {
	return p.at < len(p.text) && strings.ContainsRune(chars, p.text[p.at])
}

// term reads the next term, which begins where the parser is.
func (p *parser) term() Term {
	var t Term
	if p.next("-") {
		t.Not = true
		p.at++
	}
	start := p.at
	if !p.next(`"`) {
		for p.at < len(p.text) && !unicode.IsSpace(p.text[p.at]) && !p.next(`:<>"`) {
			p.at++
		}
		if !p.next(":<>") {
			p.at = start // a word
		} else {
			t.Key, t.With = string(p.text[start:p.at]), Comparison(p.text[p.at])
			p.at++
		}
	}
	value := p.at
	quoted := p.value(&t)
	switch {
	case p.at == start:
		p.faultf(start, `nothing follows "-"; write what is to be left out, such as -status:done`)
	case t.With == "":
		if len(Words(t.Value)) == 0 {
			p.faultf(start, "write a word with letters or digits to look for, or a condition such as status:waiting")
		}
	case t.Value == "" && !t.Prefix && !quoted:
		p.faultf(value, `%s%s has no value; write %s%s"" for runs without one`, t.Key, t.With, t.Key, t.With)
	default:
		p.check(&t, start, value)
	}
	return t
}

// value reads the value of a term, and reports whether it is quoted.
func (p *parser) value(t *Term) (quoted bool) {
	var b strings.Builder
	start := p.at
	quoted = p.next(`"`)
	if quoted {
		p.at++
		for p.at < len(p.text) && !p.next(`"`) {
			if p.next(`\`) && p.at+1 < len(p.text) {
				p.at++
			}
			b.WriteRune(p.text[p.at])
			p.at++
		}
		if !p.next(`"`) {
			p.faultf(start, `the closing " is missing`)
			t.Value = b.String()
			return true
		}
		p.at++
	}
	end := p.at
	for p.at < len(p.text) && !unicode.IsSpace(p.text[p.at]) {
		p.at++
	}
	rest := string(p.text[end:p.at])
	t.Prefix = strings.HasSuffix(rest, "*")
	rest = strings.TrimSuffix(rest, "*")
	switch {
	case strings.Contains(rest, "*"):
		p.faultf(end+strings.IndexRune(rest, '*'), `"*" can stand only at the end of a value; put the value in quotes to look for the character`)
	case strings.Contains(rest, `"`) || quoted && rest != "":
		p.faultf(end, "leave a space after the value, or put all of it in quotes")
	}
	t.Value = b.String() + rest
	return quoted
}

// check looks up the key of t and reads its value. Key and value are where they begin.
func (p *parser) check(t *Term, key, value int) {
	if tag, is := strings.CutPrefix(t.Key, TagPrefix); is {
		if err := wire.CheckTagKey(tag); err != nil {
			p.faultf(key, "%s", sdk.AsError(err).Message)
		}
		if t.With != Is {
			p.faultf(key, "tags are compared with \":\", not with %q", t.With)
		}
		return
	}
	known, ok := keys[t.Key]
	if !ok {
		p.faultf(key, "the key %q is not known%s", t.Key, spelling.Suggest(t.Key, keyNames()))
		return
	}
	if bySize := known.form > asOneOf; bySize != (t.With != Is) {
		if bySize {
			p.faultf(key, "%s is compared with > or <, such as %s", t.Key, t.Key+known.example())
		} else {
			p.faultf(key, "%s is compared with \":\", not with %q", t.Key, t.With)
		}
		return
	}
	if known.form > asOneOf && t.Prefix {
		p.faultf(value, "%s takes a whole value, without \"*\"", t.Key)
		return
	}
	if err := t.read(known.form, known.values); err != nil {
		p.faultf(value, "%s", err)
	}
}

func (f form) example() string {
	return map[form]string{asTime: ">-1h", asDuration: ">5m", asNumber: ">1000"}[f]
}

// read takes the value in the form of its key.
func (t *Term) read(as form, values []string) (err error) {
	switch as {
	case asOneOf:
		if !t.Prefix && t.Value != "" && !slices.Contains(values, t.Value) {
			return fmt.Errorf("%s is %s, not %q", t.Key, strings.Join(values, ", "), t.Value)
		}
	case asNumber:
		if t.amount, err = strconv.ParseInt(t.Value, 10, 64); err != nil || t.amount < 0 {
			return fmt.Errorf("%q is not a whole number such as 1000", t.Value)
		}
	case asDuration:
		var d time.Duration
		d, err = strict.ParseDuration(t.Value)
		t.amount = d.Milliseconds()
	case asTime:
		return t.readTime()
	case asText:
	}
	return err
}

func (t *Term) readTime() error {
	if rest := strings.TrimLeft(t.Value, "+-"); len(rest) == len(t.Value)-1 {
		d, err := strict.ParseDuration(rest)
		t.amount, t.relative = d.Milliseconds(), true
		if t.Value[0] == '-' {
			t.amount = -t.amount
		}
		return err
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if at, err := time.Parse(layout, t.Value); err == nil {
			t.amount = at.UnixMilli()
			return nil
		}
	}
	return fmt.Errorf("%q is not a time; write -1h (an hour ago), +30m, 2026-11-22 or 2026-11-22T10:00:00Z", t.Value)
}

func keyNames() []string {
	names := []string{TagPrefix + "NAME"}
	for name := range keys {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
