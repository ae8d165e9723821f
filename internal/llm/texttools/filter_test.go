package texttools

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// The pending end of a text is what an expression says that searches all of it.
func TestPendingProse_IsWhatTheExpressionSays(t *testing.T) {
	t.Parallel()
	pending := regexp.MustCompile("(```[A-Za-z]*[ \t\r\n]*)?`{0,2}[ \t\r\n]*$")
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("``` \n\tgZä.")), 0, 12, -1).Draw(t, "text")
		if got, want := pendingProse(text), pending.FindStringIndex(text)[0]; got != want {
			t.Fatalf("what waits of %q begins at %d, want %d", text, got, want)
		}
	})
}
