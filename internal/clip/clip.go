// Package clip shortens texts.
package clip

import "unicode/utf8"

// Text shortens s to at most limit bytes and an ellipsis, at a whole character.
func Text(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
