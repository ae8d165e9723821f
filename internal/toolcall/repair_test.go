package toolcall_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/toolcall"
)

func TestRepair(t *testing.T) {
	t.Parallel()
	type steps = []toolcall.Step
	for _, c := range []struct {
		text, want string
		done       steps
	}{
		{`{"a":1,}`, `{"a":1}`, steps{toolcall.TrailingComma}},
		{`{"a":[1,2, ] ,}`, `{"a":[1,2 ] }`, steps{toolcall.TrailingComma}},
		{`{""a":""b","c":""}`, `{"a":"b","c":""}`, steps{toolcall.DoubledQuote}},
		{`{"a":"x"`, `{"a":"x"}`, steps{toolcall.MissingBracket}},
		{`{"a":[{"b":true`, `{"a":[{"b":true}]}`, steps{toolcall.MissingBracket}},
		{`{"a":{},`, "", nil}, // there was to be more
		{"{\"a\":\"x\ty\x00z\"\x02}", `{"a":"x\ty\u0000z" }`, steps{toolcall.ControlSign}},
		{`{'a': 'it\'s "so"'}`, `{"a": "it's \"so\""}`, steps{toolcall.OtherQuotes}},
		{`{“a”: „b“}`, `{"a": "b"}`, steps{toolcall.OtherQuotes}},
		{`{"a": True, "b": [None, False]}`, `{"a": true, "b": [null, false]}`, steps{toolcall.OtherConstants}},
		{`"{\"a\":1}"`, `{"a":1}`, steps{toolcall.ObjectInText}},
		{`"{\"a\":1,}"`, `{"a":1}`, steps{toolcall.ObjectInText, toolcall.TrailingComma}},
		{`{"a": "True, None,}"}`, "", nil}, // is JSON
		{`{"a":1}`, "", nil},
		{`{"a":12`, "", nil}, // it may be 120
		{`{"a":"x`, "", nil}, // the text has no end
		{`{"a"`, "", nil},
		{`{"a":`, "", nil},
		{`{"a":1]`, "", nil},
		{`{"a":1}}`, "", nil},
		{`a = 1`, "", nil},
		{``, "", nil},
		{"{\"a\":\"\xff\"", "", nil},
		{`"text"`, "", nil},
	} {
		got, done, ok := toolcall.Repair(c.text, true)
		if got != c.want || ok != (c.want != "") || !cmp.Equal(done, c.done) {
			t.Errorf("%q: got %q %q %v, want %q %q", c.text, got, done, ok, c.want, c.done)
		}
		if c.done != nil && c.done[0] == toolcall.MissingBracket {
			if got, _, ok := toolcall.Repair(c.text, false); ok {
				t.Errorf("%q was cut off, and is read as %q", c.text, got)
			}
		}
	}
}

// TestRepair_JoinsNothing: what control characters stand between stays apart, and what is no JSON then is not repaired.
func TestRepair_JoinsNothing(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{\"n\": 1\x002}", "[tr\x01ue]", "[-\x021]", "[1\x00\x002]"} {
		if got, _, ok := toolcall.Repair(text, true); ok {
			t.Errorf("%q is repaired to %s", text, got)
		}
	}
}

// TestRepair_IsBounded has texts on which work could explode. Each takes milliseconds; the test's time is the bound.
func TestRepair_IsBounded(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	for name, text := range map[string]string{
		"brackets":     strings.Repeat("[", size),
		"pairs":        strings.Repeat("[]", size/2),
		"commas":       "[" + strings.Repeat(",", size),
		"spaced":       "[" + strings.Repeat(", ", size/2),
		"quotes":       strings.Repeat(`"`, size),
		"apostrophes":  strings.Repeat(`'`, size),
		"backslashes":  `{"a":"` + strings.Repeat(`\`, size),
		"words":        strings.Repeat("True", size/4),
		"control":      strings.Repeat("\x01", size),
		"nested texts": strings.Repeat(`"{\"a\":`, size/8),
		"objects":      strings.Repeat(`{"a":`, size/5),
	} {
		if got, _, ok := toolcall.Repair(text, true); ok {
			t.Errorf("%s: repaired to %.40q", name, got)
		}
	}
}

// FuzzRepair holds Repair to what it promises: what it returns is JSON, it is stable, and no text or number comes out of nothing.
func FuzzRepair(f *testing.F) {
	for _, text := range []string{`{"a":1,}`, `{""a":""b"}`, `{"a":[true`, `{'a': None}`, `"{\"a\":1,}"`, "{\"a\":\"\x01\"}", `{“a”:1}`} {
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, whole bool) {
		got, done, ok := toolcall.Repair(text, whole)
		if !ok {
			return
		}
		if !json.Valid([]byte(got)) || len(done) == 0 {
			t.Fatalf("%q became %q by %q", text, got, done)
		}
		if again, steps, ok := toolcall.Repair(got, whole); ok && again != got && steps[0] != toolcall.ObjectInText {
			t.Fatalf("%q became %q, which becomes %q", text, got, again)
		}
		for _, digit := range "0123456789" {
			written := strings.Count(text, string(digit))
			if read := strings.Count(strings.ReplaceAll(got, `\u00`, ""), string(digit)); read > written+strings.Count(got, `\u00`)*2 {
				t.Fatalf("%q became %q, with more digits", text, got)
			}
		}
	})
}
