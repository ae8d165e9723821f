package texttools_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentd/internal/golden"
	"agentd/internal/llm/texttools"
)

// schemas are those of the tools in testdata/matrix.
func schemas(server, tool string) json.RawMessage {
	if server+"."+tool != "local.edit" {
		return nil
	}
	return json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"count":{"type":"integer"},
		"zip":{"type":"string"},"edits":{"type":"array","items":{"type":"object","properties":{"find":{"type":"string"}}}},
		"tags":{"type":"array","items":{"type":"string"}}}}`)
}

// TestMatrix_Golden reads every reply of testdata/matrix: what is text, what are calls, what are faults.
func TestMatrix_Golden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/matrix/*.txt")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d replies in testdata/matrix, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			written, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(texttools.Parse(strings.TrimSuffix(string(written), "\n"), schemas), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden.Check(t, strings.TrimSuffix(file, ".txt")+".golden.json", append(got, '\n'))
		})
	}
}
