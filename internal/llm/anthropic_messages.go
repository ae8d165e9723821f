package llm

import (
	"encoding/json"
	"fmt"
	"slices"

	"agentd/sdk"
)

// messages is the conversation in the vendor's form. Roles alternate there, and the results of calls are the beginning of
// the message that follows them.
func (p *Anthropic) messages(req sdk.ModelRequest) []messageParam {
	var out []messageParam
	for _, m := range req.Messages {
		role := chatUser
		if m.Role == sdk.RoleAssistant {
			role = chatAssistant
		}
		content := p.content(m, req.Model)
		if len(content) == 0 {
			continue // the protocol knows no empty messages
		}
		if last := len(out) - 1; last >= 0 && out[last].Role == role {
			out[last].Content = append(out[last].Content, content...)
			continue
		}
		out = append(out, messageParam{Role: role, Content: content})
	}
	for i := range out {
		slices.SortStableFunc(out[i].Content, func(a, b blockParam) int { return a.rank() - b.rank() })
	}
	return out
}

func (p *Anthropic) content(m sdk.Message, model string) []blockParam {
	var out []blockParam
	// A message that thought for another model is sent without.
	own := func(c sdk.Content) bool { return c.Model == p.modelName(model) }
	for _, c := range m.Content {
		switch c.Kind {
		case sdk.ContentText:
			if c.Text != "" {
				out = append(out, textBlock(c.Text))
			}
		case sdk.ContentMedia:
			out = append(out, mediaBlock(c.Media, m.Seen > 0 || m.Role == sdk.RoleAssistant))
		case sdk.ContentToolUse:
			out = append(out, toolUseParam{c.CallID, json.RawMessage(callArguments(c.Args)), wireName(c.Tool), blockTypeToolUse})
		case sdk.ContentToolResult:
			out = append(out, toolResultParam{c.CallID, c.IsError, []textParam{textBlock(c.Text)}, "tool_result"})
		case sdk.ContentThinking:
			if own(c) {
				out = append(out, thoughtParam{c.Signature, c.Text, blockTypeThinking})
			}
		case sdk.ContentRedacted:
			if own(c) {
				out = append(out, redactedParam{c.Signature, blockTypeRedacted})
			}
		}
	}
	return out
}

func mediaBlock(m *sdk.Media, seen bool) blockParam {
	switch {
	case m == nil || seen:
		return textBlock(describeMedia(m))
	case isImage(m):
		return fileParam{sourceOf(m), "image"}
	case m.MIME == "application/pdf":
		return fileParam{sourceOf(m), "document"}
	}
	// The protocol takes no other files.
	return textBlock(fmt.Sprintf("[file%s (%s): %s]", spaced(m.Name), m.MIME, m.URI))
}

func sourceOf(m *sdk.Media) sourceParam {
	if m.Data == "" {
		return sourceParam{URL: m.URI, Type: "url"}
	}
	return sourceParam{Data: m.Data, MediaType: m.MIME, Type: "base64"}
}
