package strict

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	day := 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "250ms": 250 * time.Millisecond, "30d": 30 * day, "0.5d": day / 2,
		"1d12h": 36 * time.Hour, "36500d": 36500 * day,
		"": 0, "0s": 0, "0d": 0, "-1s": 0, "1d-1h": 0, "5": 0, "5 s": 0, "1w": 0, "d": 0, "1h1d": 0, "1e3s": 0, "999999999d": 0,
		"36500d2562047h": 0, "NaNd": 0, "Infd": 0,
	} {
		got, err := ParseDuration(text)
		if got != want || (err != nil) != (want == 0) {
			t.Errorf("ParseDuration(%q) = %s, %v; want %s", text, got, err, want)
		}
	}
}

func TestReader_JSONOfYAML(t *testing.T) {
	t.Parallel()
	tests := []struct{ yaml, want string }{
		{`{b: 1, a: 2}`, `{"b":1,"a":2}`},
		{`[yes, "true", true, TRUE, null, ~, ]`, `["yes","true",true,true,null,null]`},
		{
			`[1, -0, 1.50, 1e3, 9007199254740993, 0x1F, 0o17, 1_000, +1, .5, 1.]`,
			`[1,-0,1.50,1e3,9007199254740993,31,15,1000,1,0.5,1]`,
		},
		{`[2024-01-31, "<é>", 'it''s', 1.0.0]`, `["2024-01-31","<é>","it's","1.0.0"]`},
		{`{1: a, true: b, 1.5: c}`, `{"1":"a","true":"b","1.5":"c"}`},
		{"a: &x {n: 1}\nb: *x\n", `{"a":{"n":1},"b":{"n":1}}`},
		{"a: |\n  two\n  lines\n", `{"a":"two\nlines\n"}`},
	}
	for _, tt := range tests {
		var r Reader
		var got JSON
		r.Decode(r.Parse("f.yaml", []byte(tt.yaml)), &got)
		if err := r.Err(); err != nil || string(got.Raw) != tt.want {
			t.Errorf("%s became %s, %v; want %s", tt.yaml, got.Raw, err, tt.want)
		}
	}
}

func TestReader_RefusesWhatJSONDoesNotHave(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1, .inf]`:       `f.yaml:1:5: .inf is no number of JSON`,
		`a: .nan`:         `f.yaml:1:4: .nan is no number of JSON`,
		`a: !!binary aGk`: `f.yaml:1:4: a value tagged !!binary has no form in JSON`,
		`{[1]: 2}`:        `f.yaml:1:2: want a key that is text`,
		"a: 1\na: 2":      `f.yaml:2:1: key "a" is already set in line 1`,
	} {
		var r Reader
		var got JSON
		r.Decode(r.Parse("f.yaml", []byte(text)), &got)
		if err := r.Err(); err == nil || err.Error() != want || got.Raw != nil {
			t.Errorf("%s: %s, %v", text, got.Raw, err)
		}
	}
}

func TestReader_Decode(t *testing.T) {
	t.Parallel()
	type part struct {
		At   Position
		Name Value[string] `yaml:"name"`
	}
	type form struct {
		Text     Value[string]        `yaml:"text"`
		Whole    Value[int]           `yaml:"whole"`
		Number   Value[float64]       `yaml:"number"`
		Is       Value[bool]          `yaml:"is"`
		Time     Value[time.Duration] `yaml:"time"`
		Parts    []part               `yaml:"parts"`
		Optional *part                `yaml:"optional"`
		Free     Entries[part]        `yaml:"free"`
		Any      Node                 `yaml:"any"`
	}
	const text = `text: 1.0
whole: 7
number: 2
is: True
time: 2d
parts: [{name: a}, {}]
optional: {name: b}
free: {x: {name: c}, y: }
any: [1]
`
	at := func(line, column int) Position { return Position{"f.yaml", line, column} }
	var r Reader
	var got form
	r.Decode(r.Parse("f.yaml", []byte(text)), &got)
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if !got.Any.List() || got.Any.Mapping() || got.Any.Scalar() || got.Any.Empty() || got.Any.Position != at(9, 6) {
		t.Errorf("any %+v", got.Any)
	}
	got.Any = Node{}
	want := form{
		Text: Value[string]{"1.0", at(1, 7)}, Whole: Value[int]{7, at(2, 8)}, Number: Value[float64]{2, at(3, 9)},
		Is: Value[bool]{true, at(4, 5)}, Time: Value[time.Duration]{48 * time.Hour, at(5, 7)},
		Parts:    []part{{At: at(6, 9), Name: Value[string]{"a", at(6, 16)}}, {At: at(6, 20)}},
		Optional: &part{At: at(7, 11), Name: Value[string]{"b", at(7, 18)}},
		Free: Entries[part]{
			{Value[string]{"x", at(8, 8)}, part{At: at(8, 11), Name: Value[string]{"c", at(8, 18)}}},
			{Value[string]{"y", at(8, 22)}, part{}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Node{}), cmp.Comparer(func(a, b *yaml.Node) bool { return a == b })); diff != "" {
		t.Errorf("form (-want +got):\n%s", diff)
	}
	if got.Optional.Name.Or("z") != "b" || got.Parts[1].Name.Or("z") != "z" || got.Parts[1].Name.Present() {
		t.Error("Or and Present")
	}
}

// drawJSON draws a JSON value.
func drawJSON(t *rapid.T, depth int) any {
	kinds := 5
	if depth > 0 {
		kinds = 7
	}
	switch rapid.IntRange(1, kinds).Draw(t, "kind") {
	case 1:
		return nil
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return json.Number(fmt.Sprint(rapid.Int64().Draw(t, "int")))
	case 4:
		return json.Number(new(big.Float).SetFloat64(rapid.Float64Range(-1e300, 1e300).Draw(t, "float")).Text('e', 20))
	case 5:
		return rapid.String().Draw(t, "string")
	case 6:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawJSON(t, depth-1))
		}
		return list
	default:
		object := map[string]any{}
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			object[rapid.String().Draw(t, "name")] = drawJSON(t, depth-1)
		}
		return object
	}
}

// A JSON file is read for what it says, however it is laid out.
func TestReader_JSONFilesSurvive(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want, err := json.Marshal(map[string]any{"v": drawJSON(t, 3)})
		if err != nil {
			t.Fatal(err)
		}
		laid, err := json.MarshalIndent(json.RawMessage(want), "", rapid.SampledFrom([]string{"", "\t", "  "}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		var r Reader
		var got JSON
		r.Decode(r.Parse("f.json", laid), &got)
		if err := r.Err(); err != nil {
			t.Fatalf("%s: %v", laid, err)
		}
		// Texts may be escaped otherwise, numbers not.
		if string(got.Raw) != string(want) && !sameJSON(t, got.Raw, want) {
			t.Fatalf("%s became %s", want, got.Raw)
		}
	})
}

func sameJSON(t *rapid.T, a, b []byte) bool {
	var x, y any
	for data, v := range map[*[]byte]*any{&a: &x, &b: &y} {
		if err := json.Unmarshal(*data, v); err != nil {
			t.Fatal(err)
		}
	}
	return cmp.Equal(x, y)
}
