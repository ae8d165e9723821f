package prompt

import (
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"agentd/sdk"
)

// Counter counts the tokens of a text as a model does, or estimates them. It is pure.
type Counter func(text string) int

// CounterOf is the counter for a model and those that it falls back to: where they differ, the one that counts most. Models of
// OpenAI since gpt-4o are counted with their own vocabulary, which is part of the program; all others are estimated.
func CounterOf(model sdk.ModelSpec) Counter {
	models := append([]sdk.ModelSpec{model}, model.Fallback...)
	counted, estimated := false, false
	for _, m := range models {
		if o200k.MatchString(m.Name) {
			counted = true
		} else {
			estimated = true
		}
	}
	switch {
	case counted && estimated:
		return func(text string) int { return max(Tokens(text), countO200k(text)) }
	case counted:
		return countO200k
	}
	return Tokens
}

// o200k matches the names of models with that vocabulary, also behind the name of a vendor ("openai/gpt-4o").
var o200k = regexp.MustCompile(`^(?:.*/)?(?:chatgpt-4o|gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|o[1-9])(?:[-.:].*)?$`)

// vocabulary is decoded when it is first needed.
var vocabulary = sync.OnceValue(codec.NewO200kBase)

// longestPiece bounds what is counted at once, in bytes: the time it takes grows with the square of a word's length, and texts
// may be anything.
const longestPiece = 2 << 10

// countO200k counts the pieces of a text by themselves, which is exact to a token for each.
func countO200k(text string) int {
	n := 0
	for text != "" {
		piece := firstPiece(text)
		count, err := vocabulary().Count(piece)
		if err != nil {
			count = Tokens(piece)
		}
		n += count
		text = text[len(piece):]
	}
	return n
}

// firstPiece is the beginning of a text up to a space, or if there is none up to a whole character.
func firstPiece(text string) string {
	if len(text) <= longestPiece {
		return text
	}
	if at := strings.LastIndexAny(text[:longestPiece], " \n"); at > 0 {
		return text[:at]
	}
	end := longestPiece
	for end > longestPiece-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
