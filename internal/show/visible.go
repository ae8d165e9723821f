package show

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Visible is text as it may be shown to a person who decides: everything that cannot be seen, or that changes how the rest
// is seen, is written out (\u202e): controls, bidirectional marks, invisible and unassigned characters, broken encoding.
// It is one line: the line feed is written out too.
func Visible(text string) string { return visible(text, seen) }

// VisibleLines is Visible of a text that keeps its lines.
func VisibleLines(text string) string { return visible(text, seenInLines) }

// visible is text with every character written out that shown does not accept.
func visible(text string, shown func(rune) bool) string {
	if plain(text, shown) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, text[0])
		case shown(r):
			b.WriteString(text[:size])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		text = text[size:]
	}
	return b.String()
}

// VisibleJSON is a JSON document with its lines indented, escaped like VisibleLines.
func VisibleJSON(data json.RawMessage) string { return VisibleLines(Indent(data)) }

// EscapeJSON is the same JSON with every character escaped that VisibleLines would write out.
func EscapeJSON(data []byte) []byte {
	if plain(string(data), seenInLines) {
		return data
	}
	escaped := make([]byte, 0, len(data)+64)
	for _, r := range string(data) { // beside ASCII, JSON has characters in strings alone
		switch {
		case seenInLines(r):
			escaped = utf8.AppendRune(escaped, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escaped = fmt.Appendf(escaped, `\u%04x\u%04x`, high, low)
		default:
			escaped = fmt.Appendf(escaped, `\u%04x`, r)
		}
	}
	return escaped
}

// plain reports whether all of a text may be shown as it is.
func plain(text string, shown func(rune) bool) bool {
	hidden := func(r rune) bool { return !shown(r) }
	return utf8.ValidString(text) && !strings.ContainsFunc(text, hidden)
}

// blank are characters that Unicode counts as letters, marks or symbols, and that show nothing.
var blank = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x034f, Hi: 0x034f, Stride: 1}, // combining grapheme joiner
		{Lo: 0x115f, Hi: 0x1160, Stride: 1}, // Hangul fillers
		{Lo: 0x17b4, Hi: 0x17b5, Stride: 1}, // Khmer inherent vowels
		{Lo: 0x180b, Hi: 0x180f, Stride: 1}, // Mongolian variation selectors
		{Lo: 0x2800, Hi: 0x2800, Stride: 1}, // empty Braille pattern
		{Lo: 0x3164, Hi: 0x3164, Stride: 1}, // Hangul filler
		{Lo: 0xfe00, Hi: 0xfe0f, Stride: 1}, // variation selectors
		{Lo: 0xffa0, Hi: 0xffa0, Stride: 1}, // half-width Hangul filler
	},
	R32:         []unicode.Range32{{Lo: 0xe0100, Hi: 0xe01ef, Stride: 1}}, // variation selectors
	LatinOffset: 0,
}

// seen reports whether a character shows, and only itself.
func seen(r rune) bool { return unicode.IsPrint(r) && !unicode.Is(blank, r) }

func seenInLines(r rune) bool { return r == '\n' || seen(r) }
