package seeds_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentd/sdk"
	"agentd/sdk/sdktest"
)

// manifests is a toolset of one tool for each file in a folder: its description. Whoever writes a file says so.
type manifests struct {
	folder  string
	changed chan struct{}
}

func (*manifests) Name() string { return "own" }

func (*manifests) Close() error { return nil }

func (m *manifests) Changed() <-chan struct{} { return m.changed }

func (m *manifests) Tools(context.Context) ([]sdk.Tool, error) {
	files, err := filepath.Glob(filepath.Join(m.folder, "*.json"))
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	var tools []sdk.Tool
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		tool := sdk.Tool{Run: func(_ context.Context, call sdk.ToolCall) (json.RawMessage, error) { return call.Args, nil }}
		if err := json.Unmarshal(data, &tool.Definition); err != nil {
			return nil, err
		}
		tool.Definition.Name = strings.TrimSuffix(filepath.Base(file), ".json")
		tools = append(tools, tool)
	}
	return tools, nil
}

func (m *manifests) add(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.folder, name+".json"), []byte(`{"description": "Does `+name+`."}`), 0o600); err != nil {
		t.Fatal(err)
	}
}

// customTools is row F51: tools that are described in files are found while an agent is at work. A run that is under way is offered in its
// next turn those that there are then, is told that one is gone which it calls all the same, and finds them on another worker.
func customTools(t *testing.T) {
	set := &manifests{folder: t.TempDir(), changed: make(chan struct{})}
	set.add(t, "first")
	a := desk(service("shop.find"))
	a.Toolsets = []sdk.Toolset{set}
	swap := internal("swap", func(context.Context, sdk.ToolCall) ([]byte, error) {
		set.add(t, "second")
		if err := os.Remove(filepath.Join(set.folder, "first.json")); err != nil {
			return nil, err
		}
		set.changed <- struct{}{}
		set.changed <- struct{}{} // the worker has listed its tools before it takes another change
		return []byte(`{}`), nil
	})
	a.Tools = []sdk.Tool{swap}
	model := sdktest.Script(
		sdktest.Ask(sdktest.Tool("own_first", n(1)), sdktest.Tool("swap", n(1))),
		sdktest.Ask(sdktest.Tool("own_first", n(2)), sdktest.Tool("own_second", n(3)), sdktest.Tool("shop_find", n(4))),
		sdktest.Ask(sdktest.Tool("own_second", n(5))), sdktest.Say("done"))
	h := start(t, model, a)
	r := h.Run("desk", message("hello"))
	call := h.Call("shop.find")
	h.Restart()
	call.Answer("shop.find.done", value("it"))
	succeeds(t, h, r, `{"response": "done"}`)

	requests := asked(t, model, 4)
	equal(t, "tools at first", toolNames(requests[0]), []string{"shop_find", "swap", "own_first"})
	for i := 1; i < 4; i++ {
		equal(t, "tools since they have changed", toolNames(requests[i]), []string{"shop_find", "swap", "own_second"})
	}
	all := results(t, requests[3].Messages, 6)
	equal(t, "what was called", []string{all[0].Text, all[3].Text, all[5].Text}, []string{`{"n":1}`, `{"n":3}`, `{"n":5}`})
	gone := problem(t, all[2])
	equal(t, "a tool that is gone", gone.Code, sdk.CodeUnknownTool)
	if !strings.Contains(gone.ErrorMessage, "own_second") {
		t.Errorf("of a tool that is gone the model is told %q, and not what there is", gone.ErrorMessage)
	}
}
