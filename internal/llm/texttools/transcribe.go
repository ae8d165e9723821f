package texttools

import (
	"encoding/json"
	"fmt"
	"strings"

	"agentd/sdk"
)

// transcribe turns calls and results into text. Messages of one role in a row become one, because the templates of many
// such models want roles to alternate.
func (f format) transcribe(messages []sdk.Message, tools directory) []sdk.Message {
	var out []sdk.Message
	for _, m := range messages {
		content := make([]sdk.Content, 0, len(m.Content))
		for _, c := range m.Content {
			switch c.Kind {
			case sdk.ContentToolUse:
				c = sdk.Content{Kind: sdk.ContentText, Text: f.call(c, tools)}
			case sdk.ContentToolResult:
				c = sdk.Content{Kind: sdk.ContentText, Text: result(c)}
			case sdk.ContentThinking, sdk.ContentRedacted:
				continue
			case sdk.ContentText, sdk.ContentMedia:
			}
			content = append(content, c)
		}
		if last := len(out) - 1; last >= 0 && out[last].Role == m.Role && (out[last].Seen > 0) == (m.Seen > 0) {
			content = append(out[last].Content, content...)
			out = out[:last]
		}
		out = append(out, sdk.Message{Role: m.Role, Content: joined(content), Seen: m.Seen})
	}
	return out
}

// joined puts texts that follow each other together.
func joined(content []sdk.Content) []sdk.Content {
	var out []sdk.Content
	for _, c := range content {
		if last := len(out) - 1; last >= 0 && c.Kind == sdk.ContentText && out[last].Kind == sdk.ContentText {
			out[last].Text += "\n" + c.Text
			continue
		}
		out = append(out, c)
	}
	return out
}

// call is a call of the history.
func (f format) call(c sdk.Content, tools directory) string {
	arguments := c.Args
	if len(arguments) == 0 {
		arguments = json.RawMessage("{}")
	}
	return f.written(tools.server(c.Tool), c.Tool, arguments)
}

func result(c sdk.Content) string {
	status := "success"
	if c.IsError {
		status = "error"
	}
	text := strings.ReplaceAll(c.Text, "</", `<\/`) // it cannot end the element, and JSON stays the same
	return fmt.Sprintf("<tool_result tool_name=%q status=%q>\n%s\n</tool_result>", c.Tool, status, text)
}
