package schema

import (
	"fmt"
	"regexp"
	"regexp/syntax"

	"agentd/sdk"
)

const (
	// maxPattern is the longest regular expression, in bytes.
	maxPattern = 4 << 10
	// maxPatternSize bounds what one expression comes to with its repetitions written out, in characters and ranges of
	// characters; maxPatternSizes all of a schema together. Matching takes time in proportion to it.
	maxPatternSize  = 10_000
	maxPatternSizes = 100_000
)

// patternSize returns what a regular expression comes to, without compiling it, and whether that is within the bounds. It
// is 0 for text that is not an expression: the validator says so.
func patternSize(text string) (size int, ok bool) {
	if len(text) > maxPattern {
		return 0, false
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return 0, true
	}
	size = expandedSize(parsed)
	return size, size <= maxPatternSize
}

// expandedSize saturates just above maxPatternSize.
func expandedSize(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	for _, sub := range re.Sub {
		size += expandedSize(sub)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return min(size, maxPatternSize+1)
}

// compilePattern compiles a name of patternProperties, whose schema stands at a place. It returns nil for a name that passes
// a bound, which is noted, and for one that is not an expression, which the validator refuses.
func (t *tree) compilePattern(at []string, text string) (*regexp.Regexp, int) {
	size, ok := t.measure(at, text)
	if !ok {
		return nil, 0
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, 0
	}
	return re, size
}

// addPattern measures the "pattern" of a node.
func (t *tree) addPattern(n *node) {
	if text, ok := n.object["pattern"].(string); ok {
		n.cost.pattern, _ = t.measure(n.child("pattern"), text)
	}
}

func (t *tree) measure(at []string, text string) (size int, ok bool) {
	size, ok = patternSize(text)
	t.patternSize += size
	if ok && t.patternSize <= maxPatternSizes {
		return size, true
	}
	t.excess = append(t.excess, sdk.Fault{
		Path: pathOf(t.doc, at), Got: show(text),
		Expected: fmt.Sprintf("a regular expression of at most %d bytes that comes to %d characters with its repetitions "+
			"written out, and to %d with all others of the schema", maxPattern, maxPatternSize, maxPatternSizes),
	})
	return size, false
}
