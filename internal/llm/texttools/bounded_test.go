package texttools_test

import (
	"strings"
	"testing"

	"agentd/internal/llm/texttools"
	"agentd/sdk"
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
	for name, text := range map[string]string{
		"lists": strings.Repeat("[a(\n", 1<<18), "markers": strings.Repeat("<|tool_call_start|>", 1<<16), "names": strings.Repeat("Tool: x\n", 1<<17),
		"brackets": "[a(x=" + strings.Repeat("[", 1<<20), "commas": "[a(" + strings.Repeat("x=1,", 1<<18), "backticks": strings.Repeat("`", 1<<20),
		"objects": strings.Repeat("Tool: x\nArguments: {\n", 1<<16),
	} {
		for _, mode := range []sdk.ToolCallMode{sdk.ToolCallsPythonic, sdk.ToolCallsBracket} {
			reply, _, _ := generateIn(t, mode, &said{text: text, piece: 4 << 10}, sdk.ModelRequest{})
			if len(reply.Calls) > 0 {
				t.Errorf("%s, %s: read as %d calls", mode, name, len(reply.Calls))
			}
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
