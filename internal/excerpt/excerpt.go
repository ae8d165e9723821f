// Package excerpt shows parts of results that are too long for a model. It is pure, and never cuts inside a character. Texts are UTF-8.
package excerpt

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text is what a model reads of a result's JSON: the text, where the result is a string or an object of nothing but "text",
// else the JSON itself. Offsets in a result are bytes of it.
func Text(data string) string {
	if strings.HasPrefix(data, `"`) {
		var text string
		if json.Unmarshal([]byte(data), &text) == nil {
			return text
		}
	}
	if strings.HasPrefix(data, `{"text":"`) {
		var only map[string]json.RawMessage
		var text string
		if json.Unmarshal([]byte(data), &only) == nil && len(only) == 1 && json.Unmarshal(only["text"], &text) == nil {
			return text
		}
	}
	return data
}

// Ends are the beginning and the end of a text of Size bytes. They have all of it when it is at most as long as both together.
type Ends struct {
	Head string `json:"head"`
	Tail string `json:"tail"`
	Size int    `json:"size"`
}

// Of keeps at most head and tail characters of a text.
func Of(text string, head, tail int) Ends {
	if !Longer(text, head+tail) {
		return Ends{Head: text, Size: len(text)}
	}
	return Ends{Head: text[:beginning(text, head)], Tail: text[ending(text, tail):], Size: len(text)}
}

// Whole reports whether nothing is left out between the ends.
func (e Ends) Whole() bool { return len(e.Head)+len(e.Tail) >= e.Size }

// Shorter keeps at most limit characters of the ends, two thirds of them of the head.
func (e Ends) Shorter(limit int) Ends {
	if e.Whole() {
		return Of(e.Head+e.Tail, limit-limit/3, limit/3)
	}
	return Ends{Head: e.Head[:beginning(e.Head, limit-limit/3)], Tail: e.Tail[ending(e.Tail, limit/3):], Size: e.Size}
}

// String is the ends as a model is shown them: result is what it names the result by to read on.
func (e Ends) String(result string) string {
	if e.Whole() {
		return e.Head + e.Tail
	}
	return fmt.Sprintf("%s\n[bytes %d to %d of %d are left out here; to read on, call read_more with result %q and offset %d]\n%s",
		e.Head, len(e.Head), e.Size-len(e.Tail), e.Size, result, len(e.Head), e.Tail)
}

// Piece is a part of a text.
type Piece struct {
	Text string `json:"text"`
	// Offset is where it begins, and Next where the text goes on; 0 is that nothing follows. Size is that of the whole. All are
	// in bytes.
	Offset int `json:"offset"`
	Next   int `json:"next,omitempty"`
	Size   int `json:"size"`
}

// At is the piece of at most limit characters from offset on, or from the beginning of the character that offset is in.
func At(text string, offset, limit int) Piece {
	offset = min(max(offset, 0), len(text))
	for offset > 0 && !boundary(text, offset) {
		offset--
	}
	rest := text[offset:]
	end := len(rest)
	if Longer(rest, limit) {
		end = max(beginning(rest, limit), firstCharacter(rest))
	}
	p := Piece{Text: rest[:end], Offset: offset, Size: len(text)}
	if end < len(rest) {
		p.Next = offset + end
	}
	return p
}

// Longer reports whether a text has more than limit characters. It looks at no more of it than that takes.
func Longer(text string, limit int) bool {
	if len(text) <= limit {
		return false
	}
	for range text {
		if limit--; limit < 0 {
			return true
		}
	}
	return false
}

// tidy is which part of a cut text may be left out so that it is cut between lines, or else between words: an eighth.
const tidy = 8

// beginning is where the first characters of a text end, at most limit of them: after a line if one ends near there, else after a
// word, else after a character.
func beginning(text string, limit int) int {
	end, least, characters := len(text), 0, 0
	for at := range text {
		if characters == limit-limit/tidy {
			least = at
		}
		if characters == limit {
			end = at
			break
		}
		characters++
	}
	if end == len(text) {
		return end
	}
	for _, separator := range []string{"\n", " "} {
		if at := strings.LastIndex(text[least:end], separator); at >= 0 {
			return least + at + 1
		}
	}
	for end > 0 && !boundary(text, end) {
		end--
	}
	return end
}

// ending is where the last characters of a text begin, as beginning is where the first end.
func ending(text string, limit int) int {
	start, most, characters := 0, len(text), 0
	for at := len(text); at > 0; {
		if characters == limit-limit/tidy {
			most = at
		}
		if characters == limit {
			start = at
			break
		}
		_, size := utf8.DecodeLastRuneInString(text[:at])
		at -= size
		characters++
	}
	if start == 0 {
		return 0
	}
	for _, separator := range []string{"\n", " "} {
		if at := strings.Index(text[start:most], separator); at >= 0 {
			return start + at + 1
		}
	}
	for start < len(text) && !boundary(text, start) {
		start++
	}
	return start
}

// firstCharacter is where the first character of a text ends.
func firstCharacter(text string) int {
	_, end := utf8.DecodeRuneInString(text)
	for end < len(text) && !boundary(text, end) {
		end++
	}
	return end
}

// boundary reports whether a text may be cut there: between characters as people see them, of which marks and joined signs are
// parts.
func boundary(text string, at int) bool {
	if at <= 0 || at >= len(text) {
		return true
	}
	if !utf8.RuneStart(text[at]) {
		return false
	}
	const joiner = '\u200d'
	last, _ := utf8.DecodeLastRuneInString(text[:at])
	next, _ := utf8.DecodeRuneInString(text[at:])
	return last != joiner && next != joiner && !unicode.In(next, unicode.Mn, unicode.Me, unicode.Variation_Selector)
}
