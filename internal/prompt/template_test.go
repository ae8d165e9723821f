package prompt_test

import (
	"fmt"
	"strings"
	"testing"

	"agentd/internal/prompt"
	"agentd/sdk"
	"agentd/test/peak"
)

func render(t *testing.T, text string, data any) (string, error) {
	t.Helper()
	parsed, err := prompt.Parse("system", text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed.Render(data)
}

// What is counted changes nothing of what a template writes.
func TestTemplate_RendersAsTextTemplateDoes(t *testing.T) {
	t.Parallel()
	data := map[string]any{
		"name": "Ann", "none": nil, "items": []any{"a", "b", "c"}, "empty": []any{}, "map": map[string]any{"x": 1, "a": 2}, "n": 3,
	}
	for text, want := range map[string]string{
		"":                               "",
		"Hello\n{ {.name}} }}\n":         "Hello\n{ {.name}} }}\n",
		`Hello {{.name}}!`:               "Hello Ann!",
		`{{range .items}}<{{.}}>{{end}}`: "<a><b><c>",
		`{{range $i, $item := .items}}{{if $i}}, {{end}}{{$item}}{{end}}`: "a, b, c",
		`{{range $k, $v := .map}}{{$k}}={{$v}};{{end}}`:                   "a=2;x=1;",
		`{{range .empty}}x{{else}}nothing{{end}}`:                         "nothing",
		`{{range .none}}x{{else}}nil{{end}}`:                              "nil",
		`{{range .n}}{{.}}{{end}}`:                                        "012",
		`{{range .items}}{{if eq . "b"}}{{break}}{{end}}{{.}}{{end}}`:     "a",
		`{{with .name}}{{printf "%s-%d" . 7}}{{end}} {{print 1 2}} {{println "x"}}{{html "<"}} {{"'" | js}} {{urlquery "a b"}}`: `Ann-7 1 2 x` + "\n" + `&lt; \' a+b`,
		`{{define "item"}}[{{.}}]{{end}}{{range .items}}{{template "item" .}}{{end}}`:                                           "[a][b][c]",
		`{{- range .items -}} {{.}} {{- end -}}`:                                                                                "abc",
	} {
		if got, err := render(t, text, data); err != nil || got != want {
			t.Errorf("%s\ngives %q, %v\nwant  %q", text, got, err, want)
		}
	}
}

// Input that makes loops multiply costs one rendering.
func TestTemplate_IsBounded(t *testing.T) {
	t.Parallel()
	list := make([]any, 3000)
	keys := map[string]any{}
	for i := range list {
		list[i] = strings.Repeat("x", 100)
		keys[fmt.Sprint("k", i)] = i
	}
	const large = `the template "system" makes more than 2097152 bytes of this input`
	const long = `the template "system" takes more than 100000 steps with this input`
	for name, tt := range map[string]struct{ text, want string }{
		"output of nested loops":         {`{{range .list}}{{range $.list}}{{range $.list}}{{.}}{{end}}{{end}}{{end}}`, large},
		"loops that write nothing":       {`{{range .list}}{{range $.list}}{{range $.list}}{{end}}{{end}}{{end}}`, long},
		"loops that stop at once":        {`{{range .list}}{{range $.list}}{{range $.keys}}{{break}}{{end}}{{end}}{{end}}`, long},
		"a number":                       {`{{range 1000000000}}{{range 1000000000}}{{end}}{{end}}`, long},
		"a text that doubles":            {`{{$x := "x"}}{{range .list}}{{$x = printf "%s%s" $x $x}}{{end}}`, large},
		"a text that grows":              {`{{$x := "x"}}{{range .list}}{{$x = print $x .}}{{end}}`, large},
		"escapes":                        {`{{$x := "&"}}{{range .list}}{{$x = html $x $x}}{{end}}`, large},
		"without an action":              {strings.Repeat("x", 3<<20), large},
		"wide":                           {`{{range .list}}{{printf "%1000000d" 1}}{{end}}`, large},
		"templates that call each other": {`{{define "a"}}{{template "b" .}}{{template "b" .}}{{end}}{{define "b"}}{{template "a" .}}{{end}}{{template "a" .}}`, long},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peak.Memory(t, func(t *testing.T) {
				_, err := render(t, tt.text, map[string]any{"list": list, "keys": keys})
				if e := sdk.AsError(err); e.Code != sdk.CodeTooLarge || e.Message != tt.want {
					t.Errorf("error %v; want %s", err, tt.want)
				}
			})
		})
	}
}

// What a rendering may take is its own, and so is what it writes, however many there were before.
func TestTemplate_RenderingsShareNothing(t *testing.T) {
	t.Parallel()
	tmpl, err := prompt.Parse("system", `{{range 60000}}{{end}}{{.said}}`)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{"one", "two", "three"} {
		if got, err := tmpl.Render(map[string]any{"said": said}); err != nil || got != said {
			t.Errorf("rendered %q, %v; want %q", got, err, said)
		}
	}
}
