package planning

import (
	"regexp"
	"strings"
)

var pair = regexp.MustCompile(`\b([A-Za-z_]\w*)\s*[=:]\s*(?:"([^"\n]*)"|'([^'\n]*)')`)

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
