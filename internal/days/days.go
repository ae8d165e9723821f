// Package days writes durations as agentd.yaml has them.
package days

import (
	"fmt"
	"strings"
	"time"
)

// Day is one of 24 hours.
const Day = 24 * time.Hour

// Text is a duration such as 7d, 1d12h, 36h or 90s. Days are told from two on.
func Text(d time.Duration) string {
	var b strings.Builder
	if whole := d / Day; whole >= 2 {
		fmt.Fprintf(&b, "%dd", whole)
		d -= whole * Day
	}
	if b.Len() > 0 && d == 0 {
		return b.String()
	}
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return b.String() + text
}
