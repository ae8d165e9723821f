package browser

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentd/sdk/service"
)

// hostile is text that tries to be markup, to run, to load something, and to look like other text.
const hostile = `<script>window.pwned=1</script><img src=//evil.example/x onerror="window.pwned=1"><svg onload=window.pwned=1>` +
	`"><a href="javascript:window.pwned=1">[a](https://evil.example)</a>` + "'\u202e\u200b\u0007 {{.}} </textarea></pre>"

// writeHostile writes a configuration, a contract and a script in whose every text is hostile.
func writeHostile(t *testing.T) (config, contract, script string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, v any) string {
		t.Helper()
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := map[string]any{"type": "string", "description": hostile, "title": hostile}
	contract = write("echo.json", map[string]any{
		"uri": "#/test/echo", "type": "test.echo", "description": hostile,
		"versions": map[string]any{"1.0.0": map[string]any{
			"accepts": map[string]any{"type": "object", "properties": map[string]any{"text": text, hostile[:20]: text, "kind": map[string]any{"enum": []string{hostile, "b"}}}},
			"emits":   map[string]any{"test.echoed": map[string]any{"type": "object", "properties": map[string]any{"text": text}}},
		}},
	})
	config = write("agentd.yaml", map[string]any{
		"contracts": []string{contract},
		"agents": []any{map[string]any{
			"name": "echoer", "description": hostile, "system": "hostile.md",
			"contract": map[string]any{
				"accepts": map[string]any{"type": "object", "properties": map[string]any{"message": text}},
				"emits":   map[string]any{"type": "object", "properties": map[string]any{"response": text}, "required": []string{"response"}},
			},
			"model":       map[string]any{"provider": "openai", "name": "gpt-4o-mini"},
			"tools":       map[string]any{"services": []any{map[string]any{"contract": "test.echo", "as": "echo"}}, "builtin": []string{"ask_question"}},
			"permissions": map[string]any{"rules": []any{map[string]any{"name": "all", "tools": []string{"echo"}, "reason": hostile, "risk": "high", "when": `args.text != "free"`}}},
		}},
	})
	if err := os.WriteFile(filepath.Join(dir, "hostile.md"), []byte(strings.ReplaceAll(hostile, "{{.}}", "")), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(name string, arguments any) any { return map[string]any{"name": name, "arguments": arguments} }
	script = write("script.json", map[string]any{"conversations": []any{map[string]any{
		"name": "hostile", "match": map[string]any{"contains": "pwned"},
		"replies": []any{
			map[string]any{"text": hostile, "calls": []any{call("echo", map[string]any{"text": "free"})}},
			map[string]any{"text": hostile, "calls": []any{call("echo", map[string]any{"text": hostile, "kind": "b"})}},
			map[string]any{"calls": []any{call("ask_question", map[string]any{"question": hostile, "suggestions": []string{hostile}})}},
			map[string]any{"text": `{"response": ` + quoted(hostile) + `}`},
		},
	}}})
	return config, contract, script
}

// untouched fails the test if anything that others wrote became more than text.
func (b *tab) untouched() {
	b.t.Helper()
	bad := eval[[]string](b, `[
		...[...document.scripts].filter((e) => !e.src.startsWith(location.origin + document.documentElement.dataset.base + "/static/")),
		...document.querySelectorAll("link[href^='http'], img, iframe, object, embed, base, style, math, svg [onload]"),
		...[...document.querySelectorAll("*")].filter((e) => [...e.attributes].some((a) => a.name.startsWith("on") || a.name === "style")),
		...[...document.querySelectorAll("[href], [src], [action], [formaction]")].filter((e) =>
			["href", "src", "action", "formAction"].some((n) => e.hasAttribute(n) && !new URL(e.getAttribute(n), location).href.startsWith(location.origin + "/"))),
	].map((e) => e.outerHTML.slice(0, 200))`)
	for _, html := range bad {
		b.t.Errorf("%s has %s", b.location(), html)
	}
	if eval[bool](b, `"pwned" in window`) {
		b.t.Errorf("%s has run what somebody wrote", b.location())
	}
	if text := eval[string](b, `document.title + document.body.innerText`); strings.ContainsAny(text, "\u202e\u200b\u0007") {
		b.t.Errorf("%s shows characters that cannot be seen", b.location())
	}
	loaded := eval[[]string](b, `performance.getEntriesByType("resource").map((e) => e.name).filter((n) => !n.startsWith(location.origin + "/"))`)
	if len(loaded) > 0 {
		b.t.Errorf("%s has loaded %q", b.location(), loaded)
	}
}

// Hostile text in every field is text on every page, also where it comes while the page is open.
func TestHostile_TextIsNeverMarkup(t *testing.T) {
	t.Parallel()
	config, contract, script := writeHostile(t)
	w := newWorldOf(t, script)
	w.config = config
	address := w.dev()
	echo(t, w, contract)
	list := newTab(t, address)
	list.open("/runs")
	name := `<b onclick="pwned=1">run</b>/` + "\u202e" + hostile[:40]
	input, err := json.Marshal(map[string]string{"message": hostile})
	if err != nil {
		t.Fatal(err)
	}
	w.agentd("run", "echoer", "--subject", name, "--input", string(input), "--detach", "--quiet", "--tag", "t="+strings.NewReplacer(",", "", "\u0007", "").Replace(hostile)[:100])
	permission := w.asked(name)
	list.shows("new or changed")
	list.untouched()
	list.click(".news")
	list.shows("permission for echo", `\u202e`)
	list.untouched()
	w.publish("agentd.in.x.y.echoer.z.c", "<script>window.pwned=1</script>\xff\xfe\u202e")

	b := newTab(t, address)
	b.expects("404", "422")
	b.open("/runs")
	run := eval[string](b, `document.querySelector("table.list a").getAttribute("href")`)
	visit := func(paths ...string) {
		t.Helper()
		for _, path := range paths {
			b.open(path)
			b.untouched()
		}
	}
	live := newTab(t, address)
	live.open(run + "/events")
	visit("/", "/runs", "/runs?q=%22%3Cscript%3E%E2%80%AE%22", "/runs?q=%3Cscript%3E:%E2%80%AE", "/inbox", permission, permission+"/edit", "/dead-letters", "/dead-letters/1",
		"/agents", "/agents/echoer", "/services", "/contracts/test.echo", "/contracts/%3Cscript%3E", "/runs/%3Cscript%3E", "/health", "/login?to=%22%3E%3Cscript%3E")
	b.open(permission)
	b.shows(`\u202e`, "<script>window.pwned=1</script>")
	b.fill("#reason", hostile)
	b.click("#approve")
	b.untouched()
	question := w.asked(name)
	if question == permission {
		await(t, "the run asks its question", func() bool { question = w.asked(name); return question != permission })
	}
	visit(question)
	b.fill("#answer", hostile)
	b.click(".decide form:last-child .primary")
	b.untouched()
	b.comesTo(run, "done: completed")
	visit(run, run+"/timeline", run+"/journal", run+"/journal/1", run+"/journal/5", run+"/state", run+"/events")
	b.open(run)
	b.shows("<script>window.pwned=1</script>", `\u202e`, `\u200b`)
	live.shows("The run has ended.")
	live.untouched()
	list.shows("done: completed")
	list.untouched()
}

// echo answers calls of test.echo with hostile text.
func echo(t *testing.T, w *world, contract string) {
	t.Helper()
	s, err := service.FromFile(contract)
	if err != nil {
		t.Fatal(err)
	}
	type said struct {
		Text string `json:"text"`
	}
	service.Handle(s, func(context.Context, service.Call, map[string]any) (said, error) { return said{hostile}, nil })
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- service.Server{URL: w.url(), Logger: slog.New(slog.DiscardHandler)}.Run(ctx, s) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
