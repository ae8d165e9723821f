package strict

import (
	"encoding/json"
	"fmt"
	"math/big"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"agentd/sdk"
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
		got := r.Parse("f.yaml", []byte(tt.yaml)).JSON()
		if err := r.Err(); err != nil || string(got) != tt.want {
			t.Errorf("%s became %s, %v; want %s", tt.yaml, got, err, tt.want)
		}
	}
}

func TestReader_RefusesWhatJSONDoesNotHave(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1, .inf]`:       `f.yaml:1:5: .inf is not a number of JSON`,
		`a: .nan`:         `f.yaml:1:4: .nan is not a number of JSON`,
		`a: !!binary aGk`: `f.yaml:1:4: a value tagged !!binary has no form in JSON`,
		`{[1]: 2}`:        `f.yaml:1:2: want a key that is text`,
		"a: 1\na: 2":      `f.yaml:2:1: key "a" is already set in line 1`,
	} {
		var r Reader
		r.Parse("f.yaml", []byte(text))
		if err := r.Err(); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestReader_Decode(t *testing.T) {
	t.Parallel()
	type form struct {
		Text    string                   `json:"text"`
		Whole   int                      `json:"whole"`
		Number  float64                  `json:"number"`
		Is      bool                     `json:"is"`
		Time    time.Duration            `json:"time"`
		Never   time.Duration            `json:"never"`
		Price   sdk.Units                `json:"price"`
		List    []string                 `json:"list"`
		Periods map[string]time.Duration `json:"periods"`
		Kept    string                   `json:"kept"`
	}
	const text = "text: 1.0\nwhole: 7\nnumber: 2\nis: True\ntime: 2d\nnever: 0\nprice: 0.15\nlist: [a, 2]\nperiods: {x: 1s}\nunknown: 1\n"
	var r Reader
	got := form{Kept: "kept", Never: 1}
	r.Decode(r.Parse("f.yaml", []byte(text)), &got)
	want := form{
		Text: "1.0", Whole: 7, Number: 2, Is: true, Time: 48 * time.Hour, Price: 150_000, List: []string{"a", "2"},
		Periods: map[string]time.Duration{"x": time.Second}, Kept: "kept",
	}
	if diff := cmp.Diff(want, got); diff != "" || r.Err() != nil {
		t.Errorf("%v, form (-want +got):\n%s", r.Err(), diff)
	}
	got = form{}
	r.Decode(r.Parse("f.yaml", []byte("whole: 1\ntime: 1w\nperiods:\n  x: 1s\n  y: 5\nprice: cheap\n")), &got)
	const faults = `f.yaml:2:7: "1w" is not a duration such as 30s, 15m, 72h or 30d
f.yaml:5:6: "5" is not a duration such as 30s, 15m, 72h or 30d
f.yaml:6:8: execution units "cheap": not a JSON number`
	if err := r.Err(); err == nil || err.Error() != faults {
		t.Errorf("faults %v", err)
	}
	if got.Whole != 1 || got.Periods["x"] != time.Second {
		t.Errorf("beside faults: %+v", got)
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
		got := r.Parse("f.json", laid).JSON()
		if err := r.Err(); err != nil {
			t.Fatalf("%s: %v", laid, err)
		}
		// Texts may be escaped otherwise, numbers not.
		if string(got) != string(want) && !sameJSON(t, got, want) {
			t.Fatalf("%s became %s", want, got)
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
