package strict

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

const durationForm = "a duration such as 30s, 15m, 72h or 30d"

var days = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)d(.*)$`)

// ParseDuration reads a duration greater than zero, in the form of time.ParseDuration with days (d, 24 hours) in front:
// 30s, 1h30m, 30d, 1d12h.
func ParseDuration(text string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not %s", text, durationForm)
	var total time.Duration
	rest := text
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil || n > math.MaxInt64/float64(25*time.Hour) {
			return 0, bad
		}
		total, rest = time.Duration(n*float64(24*time.Hour)), m[2]
	}
	if rest != "" {
		d, err := time.ParseDuration(rest)
		if err != nil || d < 0 || total > math.MaxInt64-d {
			return 0, bad
		}
		total += d
	}
	if total <= 0 {
		return 0, bad
	}
	return total, nil
}
