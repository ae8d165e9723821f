package selection

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"agentd/sdk"
)

func lines[T any](tb testing.TB, file string) []T {
	tb.Helper()
	f, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []T
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		var v T
		if err := json.Unmarshal(scan.Bytes(), &v); err != nil {
			tb.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

type request struct {
	Request string   `json:"request"`
	Tools   []string `json:"tools"`
}

func published(tb testing.TB) []sdk.ToolDefinition {
	tb.Helper()
	var all []sdk.ToolDefinition
	for _, d := range lines[struct {
		sdk.ToolDefinition
		Server string `json:"server"`
	}](tb, "testdata/tools.jsonl") {
		d.ToolDefinition.Server = d.Server
		all = append(all, d.ToolDefinition)
	}
	return all
}

func TestIndex_Requests(t *testing.T) {
	t.Parallel()
	tools := published(t)
	x := NewIndex(tools)
	var hits, of [2]int
	for i, r := range lines[request](t, "testdata/requests.jsonl") {
		hit := false
		for _, place := range Best(x.Scores(r.Request), 15) {
			hit = hit || slices.Contains(r.Tools, tools[place].Name)
		}
		of[i%2]++
		if hit {
			hits[i%2]++
		} else if i%2 == 0 {
			t.Logf("missed: %d %s %v", i+1, r.Request, r.Tools)
		}
	}
	t.Logf("%d tools; looked at: %d of %d; held back: %d of %d", len(tools), hits[0], of[0], hits[1], of[1])
}
