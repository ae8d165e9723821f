package index

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"agentd/sdk/wire"
)

// Filter selects runs: the zero Filter selects all. As text it is what people write, in URLs, on the command line and for bulk jobs
// (ParseFilter). Terms of different keys must all hold, one of the terms with the same key and ":" must, and every term with "-", ">"
// or "<", and every word, holds for itself.
type Filter struct{ Terms []Term }

// Comparison is how a term compares.
type Comparison string

// The comparisons. Is is equality, or the beginning where the value ends with "*".
const (
	Is      Comparison = ":"
	Greater Comparison = ">"
	Less    Comparison = "<"
)

// The keys, besides TagPrefix with the key of a tag. KeyText is that of words.
const (
	KeyText     = ""
	KeyRun      = "run"
	KeyAgent    = "agent"
	KeySpec     = "spec"
	KeyStatus   = "status"
	KeyReason   = "reason"
	KeyCode     = "code"
	KeyWho      = "who"
	KeyParent   = "parent"
	KeyWaits    = "waits"
	KeyTool     = "tool"
	KeyStarted  = "started"
	KeyChanged  = "changed"
	KeyDue      = "due"
	KeyDeadline = "deadline"
	KeyDuration = "duration"
	KeyTurns    = "interactions"
	KeyTokens   = "tokens"
	TagPrefix   = "tag."
)

// Term is one condition of a filter.
type Term struct {
	// Not turns it round.
	Not bool
	// Key is what is compared; KeyText is a word, or words in that order, of the run's name or text.
	Key  string
	With Comparison
	// Value is what it is compared with. Prefix says that it is only the beginning: an empty one is any value but none.
	Value  string
	Prefix bool
	// amount is the Value of a key that is compared by size: milliseconds or a number. Relative says that the time now is added.
	amount   int64
	relative bool
}

// Amount is what a term with Greater or Less compares with: Unix milliseconds, milliseconds, or a number.
func (t *Term) Amount(now int64) int64 {
	if t.relative {
		return now + t.amount
	}
	return t.amount
}

// String is the filter as ParseFilter reads it.
func (f Filter) String() string {
	terms := make([]string, len(f.Terms))
	for i := range f.Terms {
		terms[i] = f.Terms[i].String()
	}
	return strings.Join(terms, " ")
}

// MarshalText and UnmarshalText make a filter its text in JSON.
func (f Filter) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText is ParseFilter.
func (f *Filter) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFilter(string(text))
	return err
}

// And is the filter that has the terms of both: terms of the same key are alternatives.
func (f Filter) And(o Filter) Filter { return Filter{Terms: slices.Concat(f.Terms, o.Terms)} }

// Without is the filter without the conditions on these keys.
func (f Filter) Without(keys ...string) Filter {
	return Filter{slices.DeleteFunc(slices.Clone(f.Terms), func(t Term) bool { return slices.Contains(keys, t.Key) })}
}

// At is the filter whose times are relative to now, in Unix milliseconds, with those times.
func (f Filter) At(now int64) Filter {
	terms := slices.Clone(f.Terms)
	for i := range terms {
		if t := &terms[i]; t.relative {
			t.amount, t.relative = t.Amount(now), false
			t.Value = time.UnixMilli(t.amount).UTC().Format("2006-01-02T15:04:05.000Z07:00")
		}
	}
	return Filter{terms}
}

// Uses reports whether the filter has a condition on one of these keys.
func (f Filter) Uses(keys ...string) bool {
	return slices.ContainsFunc(f.Terms, func(t Term) bool { return slices.Contains(keys, t.Key) })
}

// String is the term as ParseFilter reads it.
func (t *Term) String() string {
	text := ""
	if t.Not {
		text = "-"
	}
	if t.Key != KeyText {
		text += t.Key + string(t.With)
	}
	value := t.Value
	if value == "" && !t.Prefix || strings.ContainsFunc(value, mustQuote) || t.Key == KeyText && !plainWord(value) {
		value = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	}
	if t.Prefix {
		value += "*"
	}
	return text + value
}

func mustQuote(r rune) bool { return unicode.IsSpace(r) || r == '"' || r == '*' || r == '\\' }

// plainWord reports whether a word is read as one when it stands alone.
func plainWord(value string) bool {
	return !strings.HasPrefix(value, "-") && !strings.ContainsAny(value, ":<>")
}

// alternatives reports whether one of the terms of this key is enough.
func (t *Term) alternatives() bool { return !t.Not && t.With == Is && t.Key != KeyText }

// Groups are the conditions that must all hold. Of the terms of a group, one must.
func (f Filter) Groups() [][]Term {
	var groups [][]Term
	place := map[string]int{}
	for _, t := range f.Terms {
		if !t.alternatives() {
			groups = append(groups, []Term{t})
			continue
		}
		i, known := place[t.Key]
		if !known {
			i = len(groups)
			place[t.Key] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], t)
	}
	return groups
}

// Matches reports whether the filter selects the run as the document has it. Now is what relative times count from.
func (f Filter) Matches(d *Document, now time.Time) bool {
	at := now.UnixMilli()
	for _, group := range f.Groups() {
		if !slices.ContainsFunc(group, func(t Term) bool { return t.holds(d, at) != t.Not }) {
			return false
		}
	}
	return true
}

// holds reports whether the term holds for d, before Not.
func (t *Term) holds(d *Document, now int64) bool {
	if t.Key == KeyText {
		words := Words(t.Value)
		return containsWords(Words(d.Run), words, t.Prefix) || containsWords(Words(d.Text), words, t.Prefix)
	}
	if t.With != Is {
		amount, known := d.amount(t.Key, now)
		return known && (t.With == Greater && amount > t.Amount(now) || t.With == Less && amount < t.Amount(now))
	}
	return slices.ContainsFunc(d.values(t.Key), t.is)
}

// is reports whether the term's value is v.
func (t *Term) is(v string) bool {
	if t.Prefix {
		return v != "" && strings.HasPrefix(v, t.Value)
	}
	return v == t.Value
}

// Marks are what a run can have several of, or none, by the keys of filters: its tags, and what it waits for.
func (d *Document) Marks() map[string][]string {
	marks := map[string][]string{}
	for tag := range d.Tags {
		marks[TagPrefix+tag] = d.values(TagPrefix + tag)
	}
	if len(d.Waits) > 0 {
		marks[KeyWaits], marks[KeyTool] = d.values(KeyWaits), d.values(KeyTool)
	}
	return marks
}

// values are what d has under a key that is compared by equality. Of what a run has several of, or none, there may be none.
func (d *Document) values(key string) []string {
	switch key {
	case KeyRun:
		return []string{d.Run}
	case KeyAgent:
		return []string{d.Agent}
	case KeySpec:
		return []string{d.Spec}
	case KeyStatus:
		return []string{string(d.Status)}
	case KeyReason:
		return []string{string(d.Reason)}
	case KeyCode:
		return []string{d.Code}
	case KeyWho:
		return []string{d.Who}
	case KeyParent:
		return []string{d.Parent}
	case KeyWaits, KeyTool:
		values := make([]string, len(d.Waits))
		for i, w := range d.Waits {
			values[i] = w.Kind
			if key == KeyTool {
				values[i] = w.Tool
			}
		}
		return values
	}
	if v, has := d.Tags[strings.TrimPrefix(key, TagPrefix)]; has {
		return []string{v}
	}
	return nil
}

// amount is what d has under a key that is compared by size.
func (d *Document) amount(key string, now int64) (n int64, known bool) {
	switch key {
	case KeyStarted:
		n = d.Started
	case KeyChanged:
		n = d.Changed
	case KeyDue:
		n = d.Due
	case KeyDeadline:
		n = d.Deadline
	case KeyDuration:
		return d.Duration(now).Milliseconds(), d.Started > 0
	case KeyTurns:
		return int64(d.Turns), true
	case KeyTokens:
		return d.Tokens.Total(), true
	}
	return n, n > 0
}

// Words are those that a text is searched by: what is of letters and digits, in lower case.
func Words(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsNumber(r) })
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	return words
}

// containsWords reports whether the words stand in text one after the other; of the last, only the beginning has to with prefix.
func containsWords(text, words []string, prefix bool) bool {
	last := len(words) - 1
	for i := 0; i+len(words) <= len(text); i++ {
		if slices.Equal(text[i:i+last], words[:last]) &&
			(text[i+last] == words[last] || prefix && strings.HasPrefix(text[i+last], words[last])) {
			return true
		}
	}
	return false
}

// Failed selects the runs that ended otherwise than somebody wanted.
func Failed() Filter {
	var f Filter
	for _, r := range []wire.Reason{wire.ReasonError, wire.ReasonDeadline, wire.ReasonQuota, wire.ReasonStalled, wire.ReasonTerminated} {
		f.Terms = append(f.Terms, Term{Key: KeyReason, With: Is, Value: string(r)})
	}
	return f
}
