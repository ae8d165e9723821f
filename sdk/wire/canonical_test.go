package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/sdk"
)

func TestCanonicalize_RFC8785(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, in, want string }{
		{"white space", " {\n\"a\" :\t1 , \"b\":[ ] }\r\n", `{"a":1,"b":[]}`},
		{"order of names", `{"b":1,"a":2,"A":3,"":4}`, `{"":4,"A":3,"a":2,"b":1}`},
		{
			"order by UTF-16 code units, RFC 8785 section 3.2.3",
			`{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",` +
				`"\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}`,
			`{"\r":"Carriage Return","1":"One","` + "\u0080" + `":"Control","ö":"Latin Small Letter O With Diaeresis",` +
				`"€":"Euro Sign","😀":"Emoji: Grinning Face","` + "\ufb33" + `":"Hebrew Letter Dalet With Dagesh"}`,
		},
		{"strings", `"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/</"`, `"€$\u000f\nA'B\"\\\\\"/</"`},
		{"literals", `[ null,true , false]`, `[null,true,false]`},
		{
			"numbers", `[1.0,1e2,-0,-0.0,0e99999999999,1E+21,1e20,0.000001,1e-7,4.50,2e-3,-1.5,5e-324,1.7976931348623157e308]`,
			`[1,100,0,0,0,1e+21,100000000000000000000,0.000001,1e-7,4.5,0.002,-1.5,5e-324,1.7976931348623157e+308]`,
		},
		{
			"the largest exact integers", `[9007199254740991,9007199254740992,-9007199254740994]`,
			`[9007199254740991,9007199254740992,-9007199254740994]`,
		},
		{"64 levels", strings.Repeat("[", 64) + strings.Repeat("]", 64), strings.Repeat("[", 64) + strings.Repeat("]", 64)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := []byte(c.in)
			got, err := Canonicalize(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("canonical form (-want +got):\n%s", diff)
			}
			if string(in) != c.in {
				t.Error("the input was modified")
			}
		})
	}
}

func TestCanonicalize_RefusesAmbiguity(t *testing.T) {
	t.Parallel()
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(`,"k` + strconv.Itoa(i) + `":0`)
		}
		return "{" + b.String()[1:] + "}"
	}
	if _, err := Canonicalize([]byte(keys(MaxKeys))); err != nil {
		t.Errorf("%d members: %v", MaxKeys, err)
	}
	for _, c := range []struct {
		name, in string
		paths    []string
	}{
		{"nothing", "", []string{"$"}},
		{"white space", " \n", []string{"$"}},
		{"two values", "1 2", []string{"$"}},
		{"truncated", `{"a":[1`, []string{"$.a"}},
		{"bad literal", `{"a":[1,2,{"b":tru}]}`, []string{"$.a[2].b"}},
		{"duplicate name", `{"x":[{"a":1,"b":2,"a":1}]}`, []string{"$.x[0].a"}},
		{"duplicate name in another spelling", `{"a":1,"\u0061":2}`, []string{"$.a"}},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", []string{"$.a"}},
		{"lone surrogate", `["\ud800"]`, []string{"$[0]"}},
		{"NaN", `[NaN]`, []string{"$[0]"}},
		{"leading zero", `[01]`, []string{"$"}},
		{
			"every inexact number",
			`{"x":[1,{"y":9007199254740993,"odd name":1e400}],"0":1e-400,"p":0.10000000000000000001,"q":-1e999999999}`,
			[]string{"$.x[1].y", `$.x[1]["odd name"]`, `$["0"]`, "$.p", "$.q"},
		},
		{"65 levels", strings.Repeat("[", 65) + strings.Repeat("]", 65), []string{"$" + strings.Repeat("[0]", 31) + "[0…"}},
		{"10001 members", keys(MaxKeys + 1), []string{"$"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Canonicalize([]byte(c.in))
			if got != nil {
				t.Errorf("returned %q beside an error", got)
			}
			wantFaults(t, err, c.paths...)
		})
	}
}

// wantFaults checks that err is a refusal of an event with faults at exactly these paths.
func wantFaults(t testing.TB, err error, paths ...string) {
	t.Helper()
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || e.Code != sdk.CodeInvalidEvent {
		t.Fatalf("error %v, want one with code %s", err, sdk.CodeInvalidEvent)
	}
	var got []string
	for _, f := range e.Faults {
		if f.Expected == "" {
			t.Errorf("fault at %s does not say what was expected", f.Path)
		}
		got = append(got, f.Path)
	}
	if diff := cmp.Diff(paths, got); diff != "" {
		t.Errorf("paths of faults (-want +got):\n%s\n%v", diff, err)
	}
}

func TestCanonicalize_BoundsItsError(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("9", 1<<16)
	_, err := Canonicalize([]byte("[" + long + strings.Repeat(","+long, 99) + "]"))
	e, ok := errors.AsType[*sdk.Error](err)
	if !ok || len(e.Faults) != maxFaults || !strings.Contains(e.Message, "68 more faults") {
		t.Errorf("error lists %d faults, message %q", len(e.Faults), e.Message)
	}
	if n := len(err.Error()); n > 16<<10 {
		t.Errorf("error has %d bytes", n)
	}
}

// drawJSON makes any JSON value in some spelling, with exact numbers only.
func drawJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Float64().Draw(t, "number")
	case 3:
		return rapid.String().Draw(t, "string")
	case 4:
		n := rapid.IntRange(0, 4).Draw(t, "length")
		list := make([]any, n)
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	default:
		object := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			object[rapid.String().Draw(t, "name")] = drawJSON(t, depth-1)
		}
		return object
	}
}

func TestCanonicalize_IsIdempotentAndKeepsTheValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := drawJSON(t, 4)
		raw, err := json.MarshalIndent(value, " ", "\t") // escapes and spaces that the canonical form has not
		if err != nil {
			t.Fatal(err)
		}
		once, err := Canonicalize(raw)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Canonicalize(once)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("canonical form of %s is %s, %v", once, twice, err)
		}
		var back, want any
		if err := errors.Join(json.Unmarshal(once, &back), json.Unmarshal(raw, &want)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, back); diff != "" {
			t.Fatalf("value changed (-want +got):\n%s", diff)
		}
	})
}

func FuzzCanonicalize(f *testing.F) {
	for _, seed := range []string{
		`{"b":[1,2.50,-0],"a":{"":null}}`, `"\ud83d\ude00\u0000"`, `1e999999999`, `[0.1,1E-7,9007199254740993]`, `{"a":1,"a":2}`,
		"\xef\xbb\xbf{}", strings.Repeat(`{"a":[`, 40), ` `, `{"":{"":{}},"\u0000":"\ud800"}`, strings.Repeat("[", MaxDepth+1),
		`{"a~/b":[1e-400,-0.0,1E400]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		once, err := Canonicalize(raw)
		if err != nil {
			if e, ok := errors.AsType[*sdk.Error](err); !ok || len(e.Faults) == 0 || e.Cause != nil {
				t.Fatalf("refused without a fault: %v", err)
			}
			return
		}
		var value, back any
		if err := errors.Join(json.Unmarshal(raw, &value), json.Unmarshal(once, &back)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(value, back); diff != "" {
			t.Fatalf("value changed (-want +got):\n%s", diff)
		}
		if twice, err := Canonicalize(once); err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("canonical form of %s is %s, %v", once, twice, err)
		}
	})
}
