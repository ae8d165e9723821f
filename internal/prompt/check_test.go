package prompt_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"agentd/internal/prompt"
	"agentd/sdk"
)

const accepts = `{"type":"object","properties":{
	"city":{"type":"string"},
	"who":{"type":"object","properties":{"name":{"type":"string"}}},
	"more":{"type":"object"},
	"legs":{"type":"array","items":{"type":"object","properties":{"from":{"type":"string"}}}}}}`

// Each template names what there is.
func TestCheck_PassesWhatThereMayBe(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		`{{.Input.city}} {{.Input.who.name}} {{.Input.more.what.ever}} {{.Run}} {{.Interactions.Current}}`,
		`{{range .Tools}}{{.Name}}: {{.Description}}{{end}}{{range $i, $t := .Tools}}{{$i}} {{$t.Name}} {{$.Run}}{{end}}`,
		`{{range .Input.legs}}{{.from}} {{.other}}{{end}}`,
		`{{with .DelegatedBy}}{{.Agent}}{{else}}{{.Run}}{{end}}`,
		`{{with $who := .Input.who}}{{$who.name}}{{end}} {{(index .Tools 0).Anything}} {{(.Input).city}}`,
		`{{define "a"}}{{.name}}{{end}}{{template "a" .Input.who}}`,
		`{{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}`,
		`{{$x := .Run}}{{$x = .Input}}{{$x.city}}`,
		`{{if and .Input.city (eq .Run "x")}}a{{end}}{{printf "%s" .Input.city | len}}{{/* a comment */}}`,
		``,
	} {
		if faults := prompt.Check[prompt.Data](text, json.RawMessage(accepts)); len(faults) > 0 {
			t.Errorf("%s: %v", text, faults)
		}
	}
	if faults := prompt.Check[prompt.Data](`{{.Input.anything}}`, nil); len(faults) > 0 {
		t.Errorf("of an input of which nothing is known: %v", faults)
	}
}

// Whatever there can never be is found, at its place.
func TestCheck_FindsWhatThereNeverIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{.Foo}}`: `1:3 the data has no .Foo; there is DelegatedBy, Input, Interactions, Run, Tools`,
		"Plan for ü:\n  {{.Input.ciyt}}, {{.Input.who.naem}}": `2:11 .Input has no .ciyt; did you mean "city"?` + "\n" +
			`2:32 .Input.who has no .naem; did you mean "name"?`,
		`{{if .Input.zzzzzz}}{{.Input.zzzzzz}}{{end}}`: `1:12 .Input has no .zzzzzz; there is city, legs, more, who` + "\n" +
			`1:29 .Input has no .zzzzzz; there is city, legs, more, who`,
		`{{.Input.city.code}}`:                                      `1:14 .Input.city has no .code: it has no members`,
		`{{.Run.ID}}`:                                               `1:7 .Run has no .ID: it has no members`,
		`{{range .Tools}}{{.Naem}}{{end}}`:                          `1:19 an item of .Tools has no .Naem; did you mean "Name"?`,
		`{{range $t := .Tools}}{{$t.Naem}}{{end}}`:                  `1:27 an item of .Tools has no .Naem; did you mean "Name"?`,
		`{{with .DelegatedBy}}{{.Input}}{{end}}`:                    `1:24 .DelegatedBy has no .Input; there is Agent, Call, Run`,
		`{{with .Input.who}}{{$.Inptu}}{{end}}`:                     `1:23 the data has no .Inptu; did you mean "Input"?`,
		`{{printf "%d" .Interactions.Count}}`:                       `1:28 .Interactions has no .Count; there is Current, Exhausted, Max`,
		`{{define "a"}}{{.naem}}{{end}}{{template "a" .Input.who}}`: `1:17 .Input.who has no .naem; did you mean "name"?`,
		`{{define "item"}}{{end}}{{template "itme"}}`:               `1:36 the template "itme" does not exist; did you mean "item"?`,
		"{{.Run}}\n{{nothing}}":                                     `2:1 function "nothing" not defined`,
		`{{range .Tools}}`:                                          `1:1 unexpected EOF`,
	} {
		var got []string
		for _, f := range prompt.Check[prompt.Data](text, json.RawMessage(accepts)) {
			got = append(got, fmt.Sprintf("%d:%d %s", f.Line, f.Column, f.Message))
		}
		if diff := cmp.Diff(want, strings.Join(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}

// What cannot be filled in is told with its place, and without what the data says.
func TestTemplate_SaysWhatItCannotFillIn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Hello\n{{.Input.name}}":      `the template "system" cannot be filled in, line 2: .Input.name: "name" is missing`,
		`{{.Input.secret.name}}`:      `the template "system" cannot be filled in, line 1: .Input.secret.name: can't evaluate field name in type interface {}`,
		`{{.DelegatedBy.Agent}}`:      `the template "system" cannot be filled in, line 1: .DelegatedBy.Agent: nil pointer evaluating *sdk.Delegation.Agent`,
		`{{index .Input.secret 900}}`: `the template "system" cannot be filled in, line 1: index .Input.secret 900: error calling index: index out of range: 900`,
		`{{template "item" .Input}}`:  `the template "system" cannot be filled in, line 1: {{template "item" .Input}}: template "item" not defined`,
	} {
		_, err := render(t, text, prompt.Data{Input: map[string]any{"secret": "s3cret"}})
		if e := sdk.AsError(err); e.Code != sdk.CodeConfig || e.Message != want {
			t.Errorf("%s:\ngot  %s: %s\nwant %s", text, e.Code, e.Message, want)
		}
	}
}

// Whatever may show something of the input is taken to do so.
func TestReadsInput_IsTrueOfWhateverMay(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		``: false, `Be brief about the Input.`: false, `{{.Run}} {{.Interactions.Current}}`: false,
		sdk.StandardGuidance().Capabilities:                                          false,
		`{{range $i, $t := .Tools}}{{$i}} {{$t.Name}} {{.Description}} {{.}}{{end}}`: false,
		`{{with .DelegatedBy}}{{.Agent}}{{else}}{{$.Run}}{{end}}`:                    false,
		`{{.Input.city}}`: true, `{{if .Input}}a{{end}}`: true, `{{(.Input).city}}`: true, `{{len .Input}}`: true,
		`{{range .Tools}}{{$.Input.city}}{{end}}`: true, `{{with .DelegatedBy}}{{else}}{{.Input}}{{end}}`: true,
		`{{.}}`: true, `{{printf "%v" .}}`: true, `{{$}}`: true, `{{$x := .}}{{$x.Run}}`: true, `{{with $}}{{.Run}}{{end}}`: true,
		`{{define "a"}}{{.Input}}{{end}}{{template "a" .}}`: true, `{{define "a"}}{{.Input}}{{end}}`: false,
		`{{define "a"}}{{$.Input}}{{end}}{{range .Tools}}{{template "a" $}}{{end}}`: true, `{{block "a" .}}{{.Run}}{{end}}`: true,
		`{{define "system"}}{{.Input}}{{end}}`: true, // it is the template of that name then
	} {
		parsed, err := prompt.Parse("system", text)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.ReadsInput(); got != want {
			t.Errorf("%s reads the input: %t, want %t", text, got, want)
		}
	}
}
