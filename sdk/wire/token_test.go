package wire

import (
	"strings"
	"testing"
)

func TestIsToken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"a": true, "A-z_09": true, "-": true, "0123456789": true,
		"": false, "01234567890": false, "a.b": false, "a b": false, "é": false, "a\n": false, "*": false, "a>": false, "a\x00": false,
	} {
		if IsToken(text, 10) != want {
			t.Errorf("%q is a token of at most 10 characters: %t, want %t", text, !want, want)
		}
	}
	if !IsToken(strings.Repeat("x", 128), 128) || IsToken(strings.Repeat("x", 129), 128) {
		t.Error("want 128 characters, and no more")
	}
}
