package planning_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/core"
	"agentd/internal/planning"
)

// TestElements_AreInOneOrder: whoever evaluates a list has its elements in the same places, also where it is made of an object. A list that is
// longer than a round is evaluated for each round of it.
func TestElements_AreInOneOrder(t *testing.T) {
	t.Parallel()
	var want []string
	object := map[string]any{}
	for i := range 70 {
		key := fmt.Sprintf("k%02d", i)
		object[key] = map[string]any{"n": i}
		want = append(want, fmt.Sprintf("%q", key))
	}
	data, err := json.Marshal(map[string]any{"all": object})
	if err != nil {
		t.Fatal(err)
	}
	for each, want := range map[string]string{
		"step1.all.map(k, k)":            strings.Join(want, " "),
		"step1.all.filter(k, k < 'k03')": `"k00" "k01" "k02"`,
	} {
		for range 4 {
			elements, err := planning.Elements(&core.PlanStep{Each: each}, map[int]json.RawMessage{1: data}, core.MaxElements)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range elements {
				got = append(got, string(e))
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Fatalf("%s, -want +got:\n%s", each, diff)
			}
		}
	}
}

// TestElements_AreBounded: a list is refused that is too long, before anybody makes its elements; of an element that is large, there is its
// beginning, however often an expression has it.
func TestElements_AreBounded(t *testing.T) {
	t.Parallel()
	fields := map[string]int{}
	for i := range 40_000 {
		fields[fmt.Sprint(i)] = i
	}
	many, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	results := map[int]json.RawMessage{
		1: json.RawMessage(`[` + strings.Repeat(`"`+strings.Repeat("x", 20<<10)+`",`, 95) + `1]`),
		2: json.RawMessage(`[` + strings.Repeat(`[],`, 100_000) + `1]`),
		3: many,
	}
	for each, want := range map[string]string{
		"step1":                      `"xxx`,
		"step1.map(x, step1)":        `["xxx`,
		"step1.map(x, [x, step2])":   `["xxx`,
		"step1.map(x, step2)":        `[[],[],[]`,
		"step1.map(x, step3)":        `"an object of 40000 fields"`,
		"[step2].map(x, [x, x, x])":  `[[[],[]`,
		"step2":                      `"step2" has 100001 elements, and there is room for 96`,
		"{'b': 1, 'a': 2}.map(k, k)": `"{'b': 1, 'a': 2}.map(k, k)" goes through the names of an object that it writes itself; write a list of them`,
	} {
		elements, err := planning.Elements(&core.PlanStep{Each: each}, results, core.MaxElements)
		got := ""
		if err != nil {
			_, got, _ = strings.Cut(err.Error(), ": ")
		}
		for _, e := range elements {
			got += string(e)
		}
		if !strings.HasPrefix(got, want) || len(got) > core.MaxElements*(64<<10) {
			t.Errorf("%s: %d bytes, %.100s, want %s", each, len(got), got, want)
		}
	}
}

// TestParse_ReadsWhatPlannersWriteInPlaceOfNumbersAndTexts: references as texts, one without a list, lists and conditions that are not texts.
func TestParse_ReadsWhatPlannersWriteInPlaceOfNumbersAndTexts(t *testing.T) {
	t.Parallel()
	const one = `{"steps":[{"step":1,"text":"a"},`
	for written, want := range map[string]string{
		one + `{"step":2,"text":"b","after":["1"]}]}`:                                            "a||[]\nb||[5]\n",
		one + `{"step":2,"text":"b","after":["step 1"]}]}`:                                       "a||[]\nb||[5]\n",
		one + `{"step":2,"text":"b","after":1}]}`:                                                "a||[]\nb||[5]\n",
		one + `{"step":2,"text":"b","depends_on":"1"}]}`:                                         "a||[]\nb||[5]\n",
		one + `{"step":2.0,"text":"b","after":[1.0]}]}`:                                          "a||[]\nb||[5]\n",
		`{"steps":[{"step_number":"10","text":"a"},{"step":"step 20","text":"b","after":[10]}]}`: "a||[]\nb||[5]\n",
		`{"steps":[{"step":"Find the orders of May 2031"},{"step":"b","after":[5]}]}`:            "Find the orders of May 2031||[]\nb||[5]\n",
		`{"steps":[{"text":"a","tool":null,"after":null,"each":null,"when":null}]}`:              "a||[]\n",
	} {
		p, err := planning.Parse(written, kept, 5)
		if diff := cmp.Diff(want, brief(p)); diff != "" || err != nil {
			t.Errorf("%s: %v, -want +got:\n%s", written, err, diff)
		}
	}
	for written, want := range map[string]string{
		one + `{"step":2,"text":"b","each":["x","y"]}]}`: `["x","y"]|`,
		one + `{"step":2,"text":"b","each":1}]}`:         `step5|`,
		one + `{"step":2,"text":"b","when":false}]}`:     `|false`,
		// Texts in expressions stay as they are, and a comment ends with its line.
		one + `{"step":2,"text":"b","when":" step1.name == \"a  b\" "}]}`:     `|step5.name == "a  b"`,
		one + `{"step":2,"text":"b","when":"step1.a // or b\n && step1.c"}]}`: "|step5.a // or b\n && step5.c",
	} {
		p, err := planning.Parse(written, kept, 5)
		if err != nil || len(p.Steps) != 2 {
			t.Errorf("%s: %v, %+v", written, err, p)
			continue
		}
		if diff := cmp.Diff(want, p.Steps[1].Each+"|"+p.Steps[1].When); diff != "" {
			t.Errorf("%s: -want +got:\n%s", written, diff)
		}
	}
}

// TestParse_RefusesReferencesThatNobodyUnderstands: to one of several steps with a number, and to numbers that no step can have.
func TestParse_RefusesReferencesThatNobodyUnderstands(t *testing.T) {
	t.Parallel()
	const twice = `plan.add_step(step=1, text="a") plan.add_step(step=1, text="b") `
	for written, want := range map[string]string{
		twice + `plan.add_step(step=2, text="c", after=[1])`:               "step 3 comes after step 1, and several steps have that number",
		twice + `plan.add_step(step=2, text="Send what step 1 has found")`: "step 3 names step 1, and several steps have that number",
		twice + `plan.add_step(step=2, text="c", each="step1.orders")`:     "step 3: its list cannot be: it calls step 1, and several steps have that number",
		`plan.add_step(text="a", after=[99999999999999999999])`:            "step 1 comes after step 10000, which is not before it",
		`{"steps":[{"text":"a","after":[99999999999999999999]}]}`:          "step 1 comes after step 10000, which is not before it",
		`{"steps":[{"text":"a","after":[-1e300]}]}`:                        "step 1 comes after step -1, which is not before it",
	} {
		if p, err := planning.Parse(written, kept, 5); err == nil || err.Error() != want {
			t.Errorf("%s: %v and %q, want %q", written, err, brief(p), want)
		}
	}
	if p, err := planning.Parse(twice, kept, 5); err != nil || brief(p) != "a||[]\nb||[]\n" {
		t.Errorf("steps that nobody refers to: %v and %q", err, brief(p))
	}
}
