package prompt

import (
	"math/bits"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tiktoken-go/tokenizer/codec"

	"agentd/internal/memo"
	"agentd/sdk"
)

// How many fifths of a character of ASCII are estimated to be a token: 3.2 characters of prose, 2.8 of a text with much punctuation.
const proseFifths, jsonFifths = 16, 14

// estimate is how many tokens a text has, rather too many than too few: some fifths of a character of ASCII are taken for a token, and any
// other character for one, whatever the model.
func estimate[T string | []byte](text T, fifths int) int {
	ascii := asciiIn(text)
	others := 0
	if ascii < len(text) {
		others = utf8.RuneCountInString(string(text)) - ascii
	}
	return (ascii*5+fifths-1)/fifths + others
}

// asciiIn is how many characters of ASCII a text has. It reads eight bytes at a time: all that was said so far is estimated for each turn.
func asciiIn[T string | []byte](text T) int {
	const highest = 0x8080808080808080
	n := len(text)
	for len(text) >= 8 {
		word := uint64(text[0]) | uint64(text[1])<<8 | uint64(text[2])<<16 | uint64(text[3])<<24 |
			uint64(text[4])<<32 | uint64(text[5])<<40 | uint64(text[6])<<48 | uint64(text[7])<<56
		n -= bits.OnesCount64(word & highest)
		text = text[8:]
	}
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			n--
		}
	}
	return n
}

// Counter counts tokens as a model does, or estimates them. What it returns depends on the text alone. Safe for concurrent use.
type Counter struct {
	exact, estimated bool
	// bytes counts a token for each byte.
	bytes bool
	// counted are the tokens of texts, which are counted exactly.
	counted *memo.Memo[string, int]
	// calibration is how many tokens the provider counts for a thousand of these; 0 is a thousand.
	calibration int
}

// CounterOf is the counter for a model and those that it falls back to: where they differ, the one that counts most. Models of
// OpenAI since gpt-4o are counted with their own vocabulary, which is part of the program; all others are estimated.
func CounterOf(model sdk.ModelSpec) Counter {
	var c Counter
	for _, m := range append([]sdk.ModelSpec{model}, model.Fallback...) {
		if o200k.MatchString(m.Name) {
			c.exact = true
		} else {
			c.estimated = true
		}
	}
	if c.exact {
		c.counted = memo.New[string, int](mostCounted)
	}
	return c
}

// AtMost is a counter that counts no fewer tokens than any that is not calibrated, at no cost: a token has at least one byte.
func AtMost() Counter { return Counter{bytes: true} }

// Calibrated is the counter with what the provider counts for a thousand tokens of it.
func (c Counter) Calibrated(calibration int) Counter {
	c.calibration = calibration
	return c
}

// Prose counts a text.
func (c Counter) Prose(text string) int { return countOf(c, text, proseFifths) }

// JSON counts a text with much punctuation.
func (c Counter) JSON(text string) int { return countOf(c, text, jsonFifths) }

func countOf[T string | []byte](c Counter, text T, fifths int) int {
	n := 0
	if c.bytes {
		n = len(text)
	}
	if c.exact {
		n = c.exactly(string(text))
	}
	if c.estimated {
		n = max(n, estimate(text, fifths))
	}
	if c.calibration > 0 {
		n = (n*c.calibration + 999) / 1000
	}
	return n
}

// What an estimate adds to the text: for each message, and for each call or result.
const (
	tokensPerMessage = 4
	tokensPerCall    = 10
	// tokensPerMedium is about what vendors charge for an image of usual size.
	tokensPerMedium = 1500
)

// Message counts a message. Media that the model has seen are a few words.
func (c Counter) Message(m *sdk.Message) int {
	n := tokensPerMessage
	for i := range m.Content {
		part := &m.Content[i]
		switch part.Kind {
		case sdk.ContentToolUse:
			n += tokensPerCall + c.Prose(part.Tool) + countOf(c, []byte(part.Args), jsonFifths)
		case sdk.ContentToolResult:
			n += tokensPerCall + c.Prose(part.Note) + c.JSON(part.Text)
		case sdk.ContentMedia:
			if n += tokensPerCall; m.Seen == 0 {
				n += tokensPerMedium
			}
		case sdk.ContentText, sdk.ContentThinking, sdk.ContentRedacted:
			n += c.Prose(part.Text) + c.JSON(part.Signature)
		}
	}
	return n
}

// Messages counts messages.
func (c Counter) Messages(messages []sdk.Message) int {
	n := 0
	for i := range messages {
		n += c.Message(&messages[i])
	}
	return n
}

// Tools counts what the definitions of tools take.
func (c Counter) Tools(tools []sdk.ToolDefinition) int {
	n := 0
	for i := range tools {
		t := &tools[i]
		n += tokensPerCall + c.Prose(t.Name) + c.Prose(t.Description) + countOf(c, []byte(t.Parameters), jsonFifths)
	}
	return n
}

// Sections counts sections with their tags.
func (c Counter) Sections(sections []sdk.Section) int {
	n := 0
	for _, text := range rendered(sections) {
		n += c.Prose(text)
	}
	return n
}

// o200k matches the names of models with that vocabulary, also behind the name of a vendor ("openai/gpt-4o").
var o200k = regexp.MustCompile(`^(?:.*/)?(?:chatgpt-4o|gpt-4o|gpt-4\.[1-9]|gpt-[5-9]|o[1-9])(?:[-.:].*)?$`)

// vocabulary is decoded when it is first needed.
var vocabulary = sync.OnceValue(codec.NewO200kBase)

// mostCounted bounds the texts of which it is remembered how many tokens they have, in bytes.
const mostCounted = 8 << 20

// exactly counts a text with the vocabulary. A prompt is mostly what the one before was, and to count it takes a hundred times as long as to look
// it up.
func (c Counter) exactly(text string) int {
	n, known := c.counted.Get(text)
	if !known {
		n = countO200k(text)
		c.counted.Keep(text, n, len(text))
	}
	return n
}

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
			count = estimate(piece, jsonFifths)
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
