package prompt_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"agentd/internal/prompt"
	"agentd/sdk"
)

// estimated estimates, as for all models whose vocabulary is not known.
var estimated = prompt.CounterOf(sdk.ModelSpec{Name: "claude-sonnet-4-5"})

func TestCounterOf_CountsWithTheModelsVocabulary(t *testing.T) {
	t.Parallel()
	const text = "The quick brown fox jumps over the lazy dog, 12345 times."
	estimate, exact := 18, 15
	for name, want := range map[string]int{
		"gpt-4o": exact, "gpt-4o-mini-2024-07-18": exact, "openai/gpt-4.1": exact, "gpt-5": exact, "o3-mini": exact,
		"gpt-5.1-codex": exact, "gpt-4": estimate, "gpt-3.5-turbo": estimate, "claude-sonnet-4-5": estimate, "o": estimate,
		"llama-o1x": estimate,
	} {
		if got := prompt.CounterOf(sdk.ModelSpec{Name: name}).Prose(text); got != want {
			t.Errorf("%s: %d tokens, want %d", name, got, want)
		}
	}
	fallen := sdk.ModelSpec{Name: "gpt-5", Fallback: []sdk.ModelSpec{{Name: "claude-sonnet-4-5"}}}
	if got := prompt.CounterOf(fallen).Prose(text); got != max(exact, estimate) {
		t.Errorf("with a fallback: %d tokens, want %d", got, max(exact, estimate))
	}
}

// TestCounterOf_CountsAnything counts what is not language: each text is long enough that a count in the square of its length
// would not end.
func TestCounterOf_CountsAnything(t *testing.T) {
	t.Parallel()
	count := prompt.CounterOf(sdk.ModelSpec{Name: "gpt-5"}).Prose
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

// The two ratios: 3.2 bytes of prose and 2.8 of JSON are a token; what is not ASCII is a token each.
func TestEstimate_HasTwoRatios(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]int{
		"": {0, 0}, "a": {1, 1}, strings.Repeat("a", 320): {100, 115}, strings.Repeat("a", 280): {88, 100},
		"日本語": {3, 3}, "naïve": {3, 3}, "🛫": {1, 1},
	} {
		if got := [2]int{estimated.Prose(text), estimated.JSON(text)}; got != want {
			t.Errorf("%.10q… of %d bytes: %v tokens of prose and JSON, want %v", text, len(text), got, want)
		}
	}
	count := prompt.CounterOf(sdk.ModelSpec{Name: "m"})
	if n := count.Calibrated(1500).Prose(strings.Repeat("a", 320)); n != 150 {
		t.Errorf("where the provider counts half as many again, 100 tokens are %d", n)
	}
	message := sdk.Message{Role: sdk.RoleAssistant, Content: []sdk.Content{
		{Kind: sdk.ContentToolUse, CallID: "c1-0-x", Tool: "look", Args: []byte(`{"n":"` + strings.Repeat("a", 272) + `"}`)},
	}}
	if n := count.Message(&message); n != 4+10+2+100 {
		t.Errorf("a message with a call has %d tokens", n)
	}
}

func TestAtMost_CountsNoFewerThanAnyModel(t *testing.T) {
	t.Parallel()
	counters := []prompt.Counter{prompt.CounterOf(sdk.ModelSpec{Name: "gpt-5"}), prompt.CounterOf(sdk.ModelSpec{Name: "claude-sonnet-4-5"})}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,200}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		tools := []sdk.ToolDefinition{{Name: text, Description: text, Parameters: []byte(text)}, {}}
		most := prompt.AtMost()
		for i, c := range counters {
			if c.Prose(text) > most.Prose(text) || c.JSON(text) > most.JSON(text) || c.Tools(tools) > most.Tools(tools) {
				t.Fatalf("counter %d: %d, %d and %d tokens; at most %d", i, c.Prose(text), c.JSON(text), c.Tools(tools), most.Prose(text))
			}
		}
	})
}

// An estimate is what its definition says, written down here: so many characters of ASCII are a token, and each other character is one.
func TestProse_IsOfCharactersOfASCIIAndOthers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[ -~]{0,40}`), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })).Draw(t, "text")
		ascii, others := 0, 0
		for _, r := range text {
			if r < 128 {
				ascii++
			} else {
				others++
			}
		}
		for name, of := range map[string]struct {
			have       int
			characters float64
		}{"prose": {estimated.Prose(text), 3.2}, "JSON": {estimated.JSON(text), 2.8}} {
			if want := int(math.Ceil(float64(ascii)/of.characters-1e-9)) + others; of.have != want {
				t.Fatalf("%d tokens of %s, want %d", of.have, name, want)
			}
		}
	})
}

func BenchmarkProse(b *testing.B) {
	text := strings.Repeat("and so it goes on ", 60)
	for b.Loop() {
		estimated.Prose(text)
	}
}
