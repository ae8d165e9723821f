package toolcall

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// Step is one way in which a text was made JSON, in words for whoever wrote it.
type Step string

// The steps. None of them adds, changes or leaves out anything that was meant: what could be understood in two ways stays as it is.
const (
	DoubledQuote   Step = "a quotation mark was doubled"
	OtherQuotes    Step = `texts stood in other quotation marks than "`
	TrailingComma  Step = "a comma followed the last value"
	ControlSign    Step = "control characters were not escaped"
	OtherConstants Step = "True, False or None stood for true, false or null"
	MissingBracket Step = "closing brackets were missing"
	ObjectInText   Step = "the object was written as a text"
)

// deepest is how deep what is repaired may be nested.
const deepest = 512

// Repair makes JSON of a text that is almost so, and says how. whole says that all of the text arrived: of one that was cut off, no
// brackets are closed. It is not ok when the text cannot be understood, or has to be left as it is.
func Repair(text string, whole bool) (repaired string, done []Step, ok bool) {
	if !utf8.ValidString(text) {
		return "", nil, false
	}
	r := repair{text: text, whole: whole}
	if json.Valid([]byte(text)) {
		r.out.WriteString(text)
	} else if !r.run() || !json.Valid([]byte(r.out.String())) {
		return "", nil, false
	}
	var object string
	if json.Unmarshal([]byte(r.out.String()), &object) == nil && strings.HasPrefix(strings.TrimSpace(object), "{") {
		inner := repair{text: object, whole: whole, done: append(r.done, ObjectInText)}
		if json.Valid([]byte(object)) {
			return object, inner.done, true
		}
		if !inner.run() || !json.Valid([]byte(inner.out.String())) {
			return "", nil, false
		}
		return inner.out.String(), inner.done, true
	}
	if len(r.done) == 0 {
		return "", nil, false
	}
	return r.out.String(), r.done, true
}

// repair is one pass over a text.
type repair struct {
	text  string
	whole bool
	out   strings.Builder
	done  []Step
	// open are the brackets that are not closed yet.
	open []byte
	// last is the sign before, spaces left out; '"' is the end of a text.
	last byte
}

func (r *repair) did(s Step) {
	if !slices.Contains(r.done, s) {
		r.done = append(r.done, s)
	}
}

// run reports whether the text could be read to its end.
func (r *repair) run() bool {
	for i := 0; i < len(r.text); {
		sign, size := utf8.DecodeRuneInString(r.text[i:])
		switch {
		case isQuote(sign):
			n := r.quoted(i)
			if n == 0 {
				return false
			}
			i += n
			r.last = '"'
			continue
		case sign == '{', sign == '[':
			if len(r.open) == deepest {
				return false
			}
			r.open = append(r.open, r.text[i])
		case sign == '}', sign == ']':
			if len(r.open) == 0 || closing(r.open[len(r.open)-1]) != r.text[i] {
				return false
			}
			r.open = r.open[:len(r.open)-1]
		case sign == ',' && r.closes(i+1):
			r.did(TrailingComma)
			i++
			continue
		case sign < ' ' && !isSpace(r.text[i]):
			r.did(ControlSign)
			r.out.WriteByte(' ') // it separates: what was two is not to become one
			i++
			continue
		case pythonWord(r.text[i:]) != "":
			word := pythonWord(r.text[i:])
			r.did(OtherConstants)
			r.out.WriteString(pythonWords[word])
			i += len(word)
			r.last = 'l'
			continue
		}
		if size > 1 || !isSpace(r.text[i]) {
			r.last = r.text[i]
		}
		r.out.WriteString(r.text[i : i+size])
		i += size
	}
	return r.close()
}

// closes reports whether a bracket is closed after the spaces at i.
func (r *repair) closes(i int) bool {
	for ; i < len(r.text); i++ {
		if !isSpace(r.text[i]) {
			return r.text[i] == '}' || r.text[i] == ']'
		}
	}
	return false
}

// close closes what is open, where the text does not end in the middle of something: a number may have lost digits.
func (r *repair) close() bool {
	if len(r.open) == 0 {
		return true
	}
	if !r.whole || !strings.ContainsRune(`"}]el`, rune(r.last)) {
		return false
	}
	r.did(MissingBracket)
	for _, bracket := range slices.Backward(r.open) {
		r.out.WriteByte(closing(bracket))
	}
	return true
}

func closing(bracket byte) byte {
	if bracket == '{' {
		return '}'
	}
	return ']'
}

// quoted writes the text that begins at i with its quotation mark, and returns how long it is; 0 is a text without an end.
func (r *repair) quoted(i int) int {
	opening, size := utf8.DecodeRuneInString(r.text[i:])
	start := i + size
	if opening == '"' && strings.HasPrefix(r.text[start:], `"`) && !r.separates(start+1) {
		r.did(DoubledQuote)
		start++
	}
	length := textEnd(r.text[start:], opening)
	if length < 0 {
		return 0
	}
	if opening != '"' {
		r.did(OtherQuotes)
	}
	r.write(r.text[start:start+length], opening)
	_, end := utf8.DecodeRuneInString(r.text[start+length:])
	return start + length + end - i
}

// separates reports whether what is at i may follow a text.
func (r *repair) separates(i int) bool {
	for ; i < len(r.text); i++ {
		if !isSpace(r.text[i]) {
			return strings.IndexByte(",:}]", r.text[i]) >= 0
		}
	}
	return true
}

// write writes what stands between quotation marks. It changes nothing but what JSON does not allow there.
func (r *repair) write(content string, opening rune) {
	r.out.WriteByte('"')
	for i := 0; i < len(content); {
		sign, size := utf8.DecodeRuneInString(content[i:])
		switch {
		case sign == '\\' && i+1 < len(content) && content[i+1] == '\'':
			r.did(OtherQuotes)
			r.out.WriteByte('\'')
			size = 2
		case sign == '\\' && i+1 < len(content):
			_, escaped := utf8.DecodeRuneInString(content[i+1:])
			size += escaped
			r.out.WriteString(content[i : i+size])
		case sign == '"' && opening != '"':
			r.out.WriteString(`\"`)
		case sign < ' ':
			r.did(ControlSign)
			r.out.WriteString(escaped(byte(sign)))
		default:
			r.out.WriteString(content[i : i+size])
		}
		i += size
	}
	r.out.WriteByte('"')
}

// escaped is a control character as JSON has it inside of texts.
func escaped(sign byte) string {
	switch sign {
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	const hex = "0123456789abcdef"
	return `\u00` + string([]byte{hex[sign>>4], hex[sign&0xf]})
}

func isSpace(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }

func isQuote(r rune) bool { return r == '"' || r == '\'' || r == '“' || r == '”' || r == '„' }

// ends reports whether r ends a text that began with opening.
func ends(opening, r rune) bool {
	if opening == '"' || opening == '\'' {
		return r == opening
	}
	return r == '”' || r == '“'
}

// textEnd is where a text ends, without its quotation mark; -1 is nowhere.
func textEnd(text string, opening rune) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == '\\' && i+size < len(text) {
			_, escaped := utf8.DecodeRuneInString(text[i+size:])
			i += size + escaped
			continue
		}
		if ends(opening, r) {
			return i
		}
		i += size
	}
	return -1
}

var pythonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

func pythonWord(text string) string {
	switch {
	case strings.HasPrefix(text, "True"):
		return "True"
	case strings.HasPrefix(text, "False"):
		return "False"
	case strings.HasPrefix(text, "None"):
		return "None"
	}
	return ""
}
