package main

import (
	"path/filepath"
	"testing"
)

// TestMutants_FindTheirPlace sees that every mutant still changes one place in the sources as they are now, and that no two
// have one name.
func TestMutants_FindTheirPlace(t *testing.T) {
	t.Chdir("../..")
	seen := map[string]bool{}
	for i, m := range mutants {
		if _, err := m.overlay(filepath.Join(t.TempDir(), "mutant")); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
		if seen[m.name] || m.name == "" || m.old == m.new {
			t.Errorf("mutant %d: %q has no name of its own, or changes nothing", i, m.name)
		}
		seen[m.name] = true
	}
}
