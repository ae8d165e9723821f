package screen

import "unicode/utf8"

// Key is a key: a name in angle brackets, or the character that was typed.
type Key string

// The keys with names.
const (
	KeyUp        Key = "<up>"
	KeyDown      Key = "<down>"
	KeyPageUp    Key = "<page up>"
	KeyPageDown  Key = "<page down>"
	KeyEnter     Key = "<enter>"
	KeyEscape    Key = "<escape>"
	KeyBackspace Key = "<backspace>"
	KeyClear     Key = "<clear>"
	KeyInterrupt Key = "<interrupt>"
	keyUnknown   Key = "<unknown>"
)

var sequences = map[string]Key{
	"[A": KeyUp, "OA": KeyUp, "[B": KeyDown, "OB": KeyDown, "[5~": KeyPageUp, "[6~": KeyPageDown,
}

var controls = map[byte]Key{
	'\r': KeyEnter, '\n': KeyEnter, 0x7f: KeyBackspace, 0x08: KeyBackspace, 0x15: KeyClear, 0x03: KeyInterrupt, 0x04: KeyInterrupt,
}

// Keys decodes what a terminal in raw mode sends in one read.
func Keys(input []byte) []Key {
	var keys []Key
	for len(input) > 0 {
		key, size := decode(input)
		if key != keyUnknown {
			keys = append(keys, key)
		}
		input = input[size:]
	}
	return keys
}

func decode(input []byte) (key Key, size int) {
	if input[0] == 0x1b {
		return decodeEscape(input)
	}
	if key, ok := controls[input[0]]; ok {
		return key, 1
	}
	r, size := utf8.DecodeRune(input)
	if r < ' ' || r == utf8.RuneError {
		return keyUnknown, size
	}
	return Key(input[:size]), size
}

// decodeEscape reads an escape sequence; an escape alone is the key.
func decodeEscape(input []byte) (Key, int) {
	if len(input) == 1 || input[1] != '[' && input[1] != 'O' {
		return KeyEscape, 1
	}
	for end := 2; end < len(input); end++ {
		if final := input[end]; final >= '@' && final <= '~' {
			if key, ok := sequences[string(input[1:end+1])]; ok {
				return key, end + 1
			}
			return keyUnknown, end + 1
		}
	}
	return keyUnknown, len(input)
}
