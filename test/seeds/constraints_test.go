package seeds_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentd/internal/approval"
	"agentd/internal/catalog"
	"agentd/internal/harness"
	"agentd/sdk"
	"agentd/sdk/sdktest"
	"agentd/sdk/wire"
)

// writer is a tool that writes files, and which it has written.
type writer struct {
	mu      sync.Mutex
	written []string
}

func (w *writer) tool(name string) sdk.Tool {
	return sdk.Tool{
		Definition: sdk.ToolDefinition{Name: name, Description: "Writes a file.", Parameters: []byte(anyObject)},
		Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) {
			var args struct{ Path, Content string }
			if err := json.Unmarshal(call.Args, &args); err != nil {
				return nil, err
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.written = append(w.written, args.Path)
			return []byte(`{}`), nil
		},
	}
}

// files are those that were written, sorted.
func (w *writer) files() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(slices.Values(w.written))
}

func writes(path, content string) sdk.ToolRequest {
	return sdktest.Tool("write", map[string]string{"path": path, "content": content})
}

// violations are what the results say that violate a constraint, and "" for the others.
func violations(t *testing.T, results []sdk.Content) []string {
	t.Helper()
	var all []string
	for _, c := range results {
		violation := ""
		if c.IsError {
			p := problem(t, c)
			equal(t, "code of what is not made", p.Code, sdk.CodeBlocked)
			violation, _, _ = strings.Cut(p.ErrorMessage, ":")
		}
		all = append(all, violation)
	}
	return all
}

// headless is row F52: a run that nobody watches is held to its constraints, in files, lines and tools, over rounds and workers; what would
// violate one is not made, and the model is told which, so that it finishes the task in another way. Tokens and time end it.
func headless(t *testing.T) {
	var w writer
	a := desk(service("shop.find"))
	look := internal("look", func(context.Context, sdk.ToolCall) ([]byte, error) { return []byte(`{}`), nil })
	look.Labels.ReadOnly = true
	a.Tools = []sdk.Tool{w.tool("write"), w.tool("wipe"), look}
	a.Spec.Builtin = []string{"task_completion"}
	a.Spec.Constraints = &sdk.Constraints{
		Allow: []string{"w*", "shop_*", "look"}, Deny: []string{"wipe"},
		Files: &sdk.FileConstraints{
			Writers: []sdk.FileWriter{{Tool: "w*", Path: "path", Content: "content"}},
			Most:    2, Lines: 5, Allow: []string{"src"}, Deny: []string{"*.key"},
		},
	}
	model := sdktest.Script(
		sdktest.Ask(writes("src/a", "one\ntwo\n"), writes("src/b", "three"), writes("src/c", "four"), sdktest.Tool("shop_find", n(1))),
		sdktest.Ask(
			writes("src/./a", "4\n5\n6"), writes("src/../etc/a", ""), writes("src/deep/k.key", ""), writes("", ""),
			sdktest.Tool("wipe", n(1)), sdktest.Tool("look", n(1)), writes("src/b", "4\n5\n"),
		),
		sdktest.Ask(writes("src/a", "6"), sdktest.Tool("task_completion", map[string]string{"result": "done"})),
	)
	h := start(t, model, a)
	r := h.Run("desk", message("write"))
	h.Suspended(r, 1)
	h.Restart()
	h.Call("shop.find").Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "violations", violations(t, results(t, h.Messages(r), 13)), []string{
		"", "", "file_count", "",
		"line_count", "file_pattern", "file_pattern", "file_pattern", "tool_restriction", "", "",
		"line_count", "",
	})
	equal(t, "what was written", w.files(), []string{"src/a", "src/b", "src/b"})

	narrowed(t, a, &w)

	a.Spec.Constraints = &sdk.Constraints{ReadOnly: true}
	h = start(t, sdktest.Script(sdktest.Ask(writes("src/a", ""), sdktest.Tool("look", n(1))), sdktest.Say("done")), a)
	r = h.Run("desk", message("read"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "violations", violations(t, results(t, h.Messages(r), 2)), []string{"read_only_mode", ""})
	equal(t, "what was written", len(w.files()), 4)

	a.Spec.Constraints = &sdk.Constraints{Deny: []string{"wipes"}}
	models := func(sdk.ModelSpec) (sdk.Provider, error) { return model, nil }
	err := catalog.New(nil, models, approval.Options{}).Set([]sdk.Agent{a})
	if !errors.Is(err, &sdk.Error{Code: sdk.CodeConfig}) || !strings.Contains(err.Error(), `did you mean "wipe"?`) {
		t.Errorf("a constraint on a tool that there is not: %v", err)
	}

	a.Spec.Constraints = nil
	for limit, limits := range map[string]sdk.Limits{"quota:tokens": {Tokens: 1}, "deadline:run": {DeadlineMillis: 1}} {
		a.Spec.Limits = limits
		h = start(t, sdktest.Script(sdktest.Ask(sdktest.Tool("look", n(1))), sdktest.Say("done")), a)
		r = h.Run("desk", message("read"))
		h.Done(r)
		equal(t, "how too much ends", reason(h, r), limit)
	}
}

// constrained starts a run with constraints of its own, as an init event has them.
func constrained(h *harness.Harness, name string, constraints any) harness.Run {
	event := other(h, "desk", name, message("write"))
	event.Extensions = map[string]any{wire.RunConstraints: constraints}
	return h.Send("desk", event)
}

// narrowed is of an agent with constraints: those of a run make them narrower, and never wider; the run keeps them; and what would not count is
// refused.
func narrowed(t *testing.T, a sdk.Agent, w *writer) {
	t.Helper()
	before := len(w.files())
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("shop_find", n(1))),
		sdktest.Ask(writes("src/a", "1\n2\n"), writes("lib/a", "1"), writes("src/b.key", "1"), writes("src/b", "2"), sdktest.Tool("wipe", n(1)), sdktest.Tool("look", n(1))),
		sdktest.Ask(writes("src/a", "3\n4\n")), sdktest.Say("done"))
	h := start(t, model, a)
	r := constrained(h, "narrow", `{"allow":["*"],"deny":["look"],"files":{"most":1,"lines":3,"allow":["lib","src"]}}`)
	call := h.Call("shop.find")
	h.Restart()
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)
	equal(t, "violations", violations(t, results(t, h.Messages(r), 8)), []string{
		"", "", "file_pattern", "file_pattern", "file_count", "tool_restriction", "tool_restriction", "line_count",
	})
	equal(t, "what was written", len(w.files()), before+1)

	refused := func(h *harness.Harness, constraints any) string {
		p := fails(t, h, constrained(h, fmt.Sprint(constraints), constraints), "test.desk")
		equal(t, "code", p.Code, sdk.CodeInvalidEvent)
		return p.ErrorMessage
	}
	for constraints, want := range map[any]string{
		`{"read_only":true,"wallow":[]}`:                        "want the constraints as JSON text",
		`{"deny":["[x"]}`:                                       "[x",
		`{"files":{"writers":[{"tool":"look","path":"path"}]}}`: "is for the agent to say",
		true: "want the constraints as JSON text",
	} {
		if got := refused(h, constraints); !strings.Contains(got, want) {
			t.Errorf("constraints %v are refused with %q, want %q", constraints, got, want)
		}
	}
	a.Spec.Constraints = nil
	h = start(t, sdktest.Script(sdktest.Say("done")), a)
	if got := refused(h, `{"read_only":true}`); !strings.Contains(got, "constraints: {read_only: false} at least") {
		t.Errorf("constraints that nothing would hold a run to are refused with %q", got)
	}
}
