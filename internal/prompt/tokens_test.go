package prompt_test

import (
	"strings"
	"testing"

	"agentd/internal/prompt"
	"agentd/sdk"
)

func TestCounterOf_CountsWithTheModelsVocabulary(t *testing.T) {
	t.Parallel()
	const text = "The quick brown fox jumps over the lazy dog, 12345 times."
	estimate, exact := prompt.Tokens(text), 15
	for name, want := range map[string]int{
		"gpt-4o": exact, "gpt-4o-mini-2024-07-18": exact, "openai/gpt-4.1": exact, "gpt-5": exact, "o3-mini": exact,
		"gpt-5.1-codex": exact, "gpt-4": estimate, "gpt-3.5-turbo": estimate, "claude-sonnet-4-5": estimate, "o": estimate,
		"llama-o1x": estimate,
	} {
		if got := prompt.CounterOf(sdk.ModelSpec{Name: name})(text); got != want {
			t.Errorf("%s: %d tokens, want %d", name, got, want)
		}
	}
	fallen := sdk.ModelSpec{Name: "gpt-5", Fallback: []sdk.ModelSpec{{Name: "claude-sonnet-4-5"}}}
	if got := prompt.CounterOf(fallen)(text); got != max(exact, estimate) {
		t.Errorf("with a fallback: %d tokens, want %d", got, max(exact, estimate))
	}
}

// TestCounterOf_CountsAnything counts what is not language: each text is long enough that a count in the square of its length
// would not end.
func TestCounterOf_CountsAnything(t *testing.T) {
	t.Parallel()
	count := prompt.CounterOf(sdk.ModelSpec{Name: "gpt-5"})
	for name, text := range map[string]string{
		"a word":   strings.Repeat("a", 200_000),
		"spaces":   strings.Repeat(" ", 200_000),
		"emoji":    strings.Repeat("🛫", 50_000),
		"no UTF-8": strings.Repeat("\xff\xfe", 50_000),
		"words":    strings.Repeat("word ", 40_000),
	} {
		if n := count(text); n < len(text)/200 || n > len(text) {
			t.Errorf("%s: %d tokens of %d bytes", name, n, len(text))
		}
	}
	whole, parts := strings.Repeat("All work and no play makes Jack a dull boy.\n", 200), 0
	for line := range strings.Lines(whole) {
		parts += count(line)
	}
	if n := count(whole); n < parts-10 || n > parts+10 {
		t.Errorf("%d tokens, %d line by line", n, parts)
	}
}
