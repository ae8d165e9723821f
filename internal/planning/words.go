package planning

import (
	"regexp"
	"strings"
)

var (
	// pair is an argument in a text.
	pair = regexp.MustCompile(`\b([A-Za-z_]\w*)\s*[=:]\s*(?:"([^"\n]*)"|'([^'\n]*)')`)
	// unread is an argument whose value is not a text in quotes.
	unread = regexp.MustCompile(`\b[A-Za-z_]\w*\s*(?:=\s*[^\s"']|:\s*[\d{\[])`)
	quoted = regexp.MustCompile(`"[^"\n]*"|(?:\B)'[^'\n]*'`)
	// negation is of the languages that the judges know.
	negation = regexp.MustCompile(`(?i)\b(?:not|never|cannot|no|nicht|kein|keine|keinen|nie|pas|jamais|aucun|aucune)\b|n['’]t\b`)
)

// names reports whether a name stands in a text as a word of its own.
func names(text, name string) bool {
	for from := 0; ; {
		at := strings.Index(text[from:], name)
		if at < 0 {
			return false
		}
		at += from
		if !wordAt(text, at-1) && !wordAt(text, at+len(name)) {
			return true
		}
		from = at + 1
	}
}

// wordAt reports whether a sign of names stands there.
func wordAt(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	c := text[at]
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
