package interop

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Whoever may see all runs sees and cancels those that others have started, also under a name of their own; others are told that they may not.
func TestNodeSDK_RunsOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, docContract(t), time.Minute, city("Bern"))
	for _, name := range []string{"trip", "tour"} {
		init := w.Init("desk", map[string]string{"message": "hello"})
		init.Subject, init.ID = name, name
		w.Suspended(w.SendAs("bob", "desk", init), 1)
	}
	want := [][]any{
		{"status", "bob"},
		{"asked", 0.0},
		{"cancelled", "cancelled"},
		{"not theirs", "permission_denied"},
	}
	if diff := cmp.Diff(want, w.nodeSays("others_sdk.mjs")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.NoDeadLetter()
}
