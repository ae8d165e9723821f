package sdk

import (
	"math"
	"strconv"
	"strings"
)

// Units is a cost in millionths of an execution unit.
type Units int64

// String is the exact decimal text: "12", "0.5", "-0.000001".
func (u Units) String() string {
	n, sign := uint64(u), ""
	if u < 0 {
		n, sign = -n, "-"
	}
	const one = 1_000_000
	text := sign + strconv.FormatUint(n/one, 10)
	if rest := n % one; rest > 0 {
		places := strconv.FormatUint(one+rest, 10)[1:]
		text += "." + strings.TrimRight(places, "0")
	}
	return text
}

// Add adds what another model call cost, as Usage.Add does.
func (u *Units) Add(o Units) { *u += min(max(o, 0), math.MaxInt64-max(*u, 0)) }
