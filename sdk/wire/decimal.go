package wire

import "strings"

// maxExponent is where exponents saturate. It is far outside of what a float64 or Units can hold, and far inside of what
// an int64 can.
const maxExponent = 1_000_000_000

// decimal is the exact value of a JSON number: digits × 10^exponent, without leading and trailing zeros. Zero has no
// digits, no exponent and no sign. It grows with the text of the number, never with its exponent.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// parseDecimal reads the grammar of JSON numbers (RFC 8259 §6).
func parseDecimal(text string) (decimal, bool) {
	var d decimal
	rest, negative := strings.CutPrefix(text, "-")
	whole, rest := leadingDigits(rest)
	if whole == "" || len(whole) > 1 && whole[0] == '0' {
		return decimal{}, false
	}
	var fraction string
	if after, ok := strings.CutPrefix(rest, "."); ok {
		if fraction, rest = leadingDigits(after); fraction == "" {
			return decimal{}, false
		}
	}
	if rest != "" {
		exponent, ok := parseExponent(rest)
		if !ok {
			return decimal{}, false
		}
		d.exponent = exponent
	}
	d.exponent -= int64(len(fraction))
	digits := strings.TrimLeft(whole+fraction, "0")
	trimmed := strings.TrimRight(digits, "0")
	if trimmed == "" {
		return decimal{}, true
	}
	d.exponent += int64(len(digits) - len(trimmed))
	d.digits, d.negative = trimmed, negative
	return d, true
}

func leadingDigits(s string) (digits, rest string) {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return s[:i], s[i:]
}

// parseExponent reads "e" or "E", an optional sign and digits to the end of s.
func parseExponent(s string) (int64, bool) {
	if s[0] != 'e' && s[0] != 'E' {
		return 0, false
	}
	s = s[1:]
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	digits, rest := leadingDigits(s)
	if digits == "" || rest != "" {
		return 0, false
	}
	var n int64
	for _, c := range []byte(digits) {
		if n = n*10 + int64(c-'0'); n > maxExponent {
			n = maxExponent
			break
		}
	}
	if negative {
		n = -n
	}
	return n, true
}
