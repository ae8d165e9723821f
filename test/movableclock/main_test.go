package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"
)

// The version of Go that builds this reads its clock where the file expects it to, and builds a program with another one.
func TestPrepare_BuildsAProgramThatSetsItsClock(t *testing.T) {
	t.Parallel()
	overlay, err := prepare(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source, err := filepath.Abs("testdata/ahead.go")
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.CommandContext(t.Context(), "go", "run", "-overlay", overlay, source).CombinedOutput()
	if err != nil || string(bytes.TrimSpace(said)) != "1h0m0s later, after no time" {
		t.Errorf("the program says %q: %v", said, err)
	}
}
