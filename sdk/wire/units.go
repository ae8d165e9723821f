package wire

import (
	"strconv"
	"strings"

	"agentd/sdk"
)

// unitsPlaces is the number of decimal places that Units keeps.
const unitsPlaces = 6

// ParseUnits reads a JSON number, exactly up to six decimal places; further places are rounded, half away from zero.
// What does not fit is refused with CodeInvalidEvent: the range is -9223372036854.775808 to 9223372036854.775807.
func ParseUnits(text string) (sdk.Units, error) {
	d, ok := parseDecimal(text)
	if !ok {
		return 0, sdk.Errorf(sdk.CodeInvalidEvent, "execution units %s: not a JSON number", quote(text))
	}
	// whole counts the digits that stand before the last place kept.
	whole := int64(len(d.digits)) + d.exponent + unitsPlaces
	digits, up := "", false
	switch {
	case d.digits == "" || whole < 0:
		return 0, nil
	case whole > 19: // more digits than an int64 has
		return 0, unitsRange(text)
	case whole >= int64(len(d.digits)):
		digits = d.digits + strings.Repeat("0", int(whole)-len(d.digits))
	default:
		digits, up = d.digits[:whole], d.digits[whole] >= '5'
	}
	n, err := strconv.ParseUint("0"+digits, 10, 64) // 19 digits always fit
	if err != nil {
		return 0, unitsRange(text)
	}
	if up {
		n++
	}
	limit := uint64(1<<63 - 1)
	if d.negative {
		limit++
	}
	switch {
	case n > limit:
		return 0, unitsRange(text)
	case d.negative:
		return -sdk.Units(n), nil
	default:
		return sdk.Units(n), nil
	}
}

func unitsRange(text string) error {
	return sdk.Errorf(sdk.CodeInvalidEvent, "execution units %s: out of range", quote(text))
}
