package texttools_test

import (
	"strings"
	"testing"

	"agentd/internal/llm/texttools"
)

// garbage are replies of about a megabyte on which work could explode.
func garbage() map[string]string {
	const size = 1 << 20
	fill := func(text string) string { return strings.Repeat(text, size/len(text)) }
	return map[string]string{
		"commas":          "<tool>{" + fill(", ") + "</tool>",
		"commas, spaces":  "<tool>{" + strings.Repeat(","+strings.Repeat(" ", 1000), 1000) + "</tool>",
		"quotes":          "<tool>{" + fill(`"`) + "</tool>",
		"apostrophes":     "<tool>{" + fill(`'`) + "</tool>",
		"brackets":        "<tool>" + fill("{[") + "</tool>",
		"words":           "<tool>{" + fill("True") + "</tool>",
		"opened":          fill("<tool>"),
		"mentioned":       fill("<tool> x "),
		"opened objects":  fill("<tool>{"),
		"opened texts":    fill(`<tool>{"`),
		"opened elements": fill("<tool><arguments>"),
		"character data":  fill("<tool><a><![CDATA["),
		"closed":          fill("</tool>"),
		"angle brackets":  "<tool><a>" + fill("<"),
		"ampersands":      "<tool><a>" + fill("&") + "</a></tool>",
	}
}

// TestParse_IsBounded: all take a second or two; were the work quadratic, it would be minutes.
func TestParse_IsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range garbage() {
		if got := texttools.Parse(text, nil); len(got.Calls) > 0 {
			t.Errorf("%s: read as %d calls, the first of %.40q", name, len(got.Calls), got.Calls[0].Tool)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	for name, text := range garbage() {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				texttools.Parse(text, nil)
			}
		})
	}
}
