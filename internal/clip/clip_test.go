package clip_test

import (
	"testing"

	"agentd/internal/clip"
)

func TestText_CutsAtAWholeCharacter(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]string{0: "…", 1: "a…", 2: "a…", 3: "aé…", 4: "aéb", 9: "aéb"} {
		if got := clip.Text("aéb", limit); got != want {
			t.Errorf("to %d bytes: %q, want %q", limit, got, want)
		}
	}
}
