package texttools

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// repairJSON mends what models often write wrong: typographic and single quotes, trailing commas, line breaks inside
// strings, and the constants of Python. It changes nothing inside of strings but what JSON does not allow there.
func repairJSON(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		switch {
		case isQuote(r):
			end := stringEnd(text[i+size:], r)
			writeString(&out, text[i+size:i+size+end], r)
			i += size + end
			if i < len(text) {
				_, closing := utf8.DecodeRuneInString(text[i:])
				i += closing
			}
			continue
		case r == ',' && strings.IndexAny(strings.TrimLeft(text[i+1:], " \t\r\n"), "}]") == 0:
		case pythonWord(text, i) != "":
			word := pythonWord(text, i)
			out.WriteString(pythonWords[word])
			size = len(word)
		default:
			out.WriteString(text[i : i+size])
		}
		i += size
	}
	return out.String()
}

func isQuote(r rune) bool { return r == '"' || r == '\'' || r == '“' || r == '”' || r == '„' }

// closes reports whether r ends a string that began with opening.
func closes(opening, r rune) bool {
	if opening == '"' || opening == '\'' {
		return r == opening
	}
	return r == '”' || r == '“'
}

func stringEnd(text string, opening rune) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '\\' && i+size < len(text) {
			_, escaped := utf8.DecodeRuneInString(text[i+size:])
			i += size + escaped
			continue
		}
		if closes(opening, r) {
			return i
		}
		i += size
	}
	return len(text)
}

func writeString(out *strings.Builder, content string, opening rune) {
	out.WriteByte('"')
	for i := 0; i < len(content); {
		r, size := utf8.DecodeRuneInString(content[i:])
		switch {
		case r == '\\' && i+1 < len(content) && content[i+1] == '\'':
			out.WriteByte('\'')
			size = 2
		case r == '\\' && i+1 < len(content):
			_, escaped := utf8.DecodeRuneInString(content[i+1:])
			size += escaped
			out.WriteString(content[i : i+size])
		case r == '"' && opening != '"':
			out.WriteString(`\"`)
		case r == '\n':
			out.WriteString(`\n`)
		case r == '\r':
			out.WriteString(`\r`)
		case r == '\t':
			out.WriteString(`\t`)
		default:
			out.WriteString(content[i : i+size])
		}
		i += size
	}
	out.WriteByte('"')
}

var pythonWords = map[string]string{"True": jsonTrue, "False": jsonFalse, "None": jsonNull}

func pythonWord(text string, i int) string {
	for word := range pythonWords {
		if strings.HasPrefix(text[i:], word) {
			return word
		}
	}
	return ""
}

var bareAmpersand = regexp.MustCompile(`&(amp;|lt;|gt;|quot;|apos;|#[0-9]+;|#[xX][0-9a-fA-F]+;)?`)

// repairXML escapes each & that begins no entity, outside of character data.
func repairXML(text string) string {
	var out strings.Builder
	for {
		start := strings.Index(text, cdataOpen)
		if start < 0 {
			break
		}
		length := strings.Index(text[start:], cdataClose)
		if length < 0 {
			break
		}
		end := start + length + len(cdataClose)
		out.WriteString(escapeAmpersands(text[:start]) + text[start:end])
		text = text[end:]
	}
	out.WriteString(escapeAmpersands(text))
	return out.String()
}

func escapeAmpersands(text string) string {
	return bareAmpersand.ReplaceAllStringFunc(text, func(found string) string {
		if found == "&" {
			return "&amp;"
		}
		return found
	})
}
