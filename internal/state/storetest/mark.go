package storetest

import (
	"testing"

	"agentd/internal/runner"
)

// marks says that a store has the last mark of each name, and that none is a run or a spec.
func marks(t *testing.T, s runner.Store) {
	f, ctx := forgetful(t, s), testContext(t)
	has := func(name, mark string, want bool) {
		t.Helper()
		got, err := f.Marked(ctx, name, mark)
		if err != nil || got != want {
			t.Errorf("the store has mark %q under %q: %t, %v, want %t", mark, name, got, err, want)
		}
	}
	set := func(name, mark string) {
		t.Helper()
		if err := f.Mark(ctx, name, mark); err != nil {
			t.Fatalf("mark: %v", err)
		}
	}
	has("clerk", "first", false)
	set("clerk", "first")
	set("desk", "other")
	has("clerk", "first", true)
	has("desk", "other", true)
	set("clerk", "second")
	set("clerk", "second") // may be repeated
	has("clerk", "first", false)
	has("clerk", "second", true)
	has("desk", "other", true)
	if runs, _, err := f.Runs(ctx, "", 10); err != nil || len(runs) != 0 {
		t.Errorf("runs of a store that has marks alone: %v, %v", runs, err)
	}
	for _, bad := range []string{"", "a b", "a*", "a.b"} {
		if err := f.Mark(ctx, bad, "mark"); err == nil {
			t.Errorf("the name %q is taken", bad)
		}
		if _, err := f.Marked(ctx, "name", bad); err == nil {
			t.Errorf("the mark %q is taken", bad)
		}
	}
}
