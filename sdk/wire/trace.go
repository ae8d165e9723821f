package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// The lengths of the parts of a traceparent: version-trace-span-flags, in lower-case hexadecimal (W3C Trace Context).
const (
	traceVersionLen = 2
	traceIDLen      = 32
	traceSpanLen    = 16
	traceFlagsLen   = 2
)

// EventTrace is the traceparent of an event that a run publishes: in the trace of its init event, with a span that follows
// from the event's id. So every worker writes the same bytes, whichever publishes it, and whoever handles the event can be
// shown under the call that it answers. What is not a traceparent of the W3C form is carried as it is.
func EventTrace(traceparent, eventID string) string {
	version, rest, _ := strings.Cut(traceparent, "-")
	trace, rest, _ := strings.Cut(rest, "-")
	span, flags, _ := strings.Cut(rest, "-")
	if !lowerHex(version, traceVersionLen) || !lowerHex(trace, traceIDLen) || !lowerHex(span, traceSpanLen) ||
		!lowerHex(flags, traceFlagsLen) || version == "ff" {
		return traceparent
	}
	sum := sha256.Sum256([]byte(trace + "\x00" + eventID))
	sum[0] |= 1 // a span of zeros is none
	return version + "-" + trace + "-" + hex.EncodeToString(sum[:traceSpanLen/2]) + "-" + flags
}

func lowerHex(text string, length int) bool {
	return len(text) == length && strings.Trim(text, "0123456789abcdef") == ""
}
