package prompt

import (
	"encoding/json"
	"slices"

	"agentd/internal/excerpt"
	"agentd/sdk"
	"agentd/sdk/wire"
)

// Cut returns messages whose results have at most the characters that may be shown of their tool at once, and whether something is
// left out of any. It does not modify messages.
func Cut(messages []sdk.Message, shown func(tool string) int) (out []sdk.Message, cut bool) {
	out = slices.Clone(messages)
	for i, m := range out {
		for j := range m.Content {
			c := &m.Content[j]
			if c.Kind != sdk.ContentToolResult {
				continue
			}
			text, whole := shortened(c, shown(c.Tool))
			if text == c.Text {
				continue
			}
			out[i].Content = slices.Clone(out[i].Content)
			out[i].Content[j].Text = text
			cut = cut || !whole
		}
	}
	return out, cut
}

// Noted puts the notes of results in front of them. It does not modify messages.
func Noted(messages []sdk.Message) []sdk.Message {
	noted := func(m sdk.Message) bool {
		return slices.ContainsFunc(m.Content, func(c sdk.Content) bool { return c.Note != "" })
	}
	if !slices.ContainsFunc(messages, noted) {
		return messages
	}
	out := slices.Clone(messages)
	for i := range out {
		for j, c := range out[i].Content {
			if c.Note != "" {
				out[i].Content = slices.Clone(out[i].Content)
				out[i].Content[j].Text, out[i].Content[j].Note = c.Note+"\n"+c.Text, ""
			}
		}
	}
	return out
}

// shortened is a result as the model is shown it, and whether that is all of it.
func shortened(c *sdk.Content, limit int) (text string, whole bool) {
	if c.Size == 0 && !excerpt.Longer(c.Text, limit) {
		return c.Text, true
	}
	ends := endsOf(c).Shorter(limit)
	return ends.String(wire.CallPlace(c.CallID)), ends.Whole()
}

// endsOf are the ends of a result: of one that is kept as a blob those that the conversation has, else all of it.
func endsOf(c *sdk.Content) excerpt.Ends {
	var ends excerpt.Ends
	if c.Size > 0 && json.Unmarshal([]byte(c.Text), &ends) == nil {
		return ends
	}
	text := excerpt.Text(c.Text)
	return excerpt.Ends{Head: text, Size: len(text)}
}
