package main

import "testing"

// TestMutants_Apply sees that every mutant changes one place of the sources as they are now and compiles, and that no two
// have one name. It does not see whether they are noticed: `make mutants` does.
func TestMutants_Apply(t *testing.T) {
	t.Parallel()
	sources, err := load("../..", folders())
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := sources.apply(m.change); err != nil {
				t.Error(err)
			}
		})
		if names[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		names[m.name] = true
	}
}
